//! The `dns:` of a topology, and the `zone:` step that changes it.

use super::Zones;
use super::name::Name;
use super::owner::{Alias, Exact, Owner, RecordSet};
use super::record::{Data, Rcode, Record, RecordType};
use super::server::{Server, Spoof, Transport};
use crate::file::{Reader, ScenarioError};
use namewall_cluster::yaml::{Entry, Node, Value};
use namewall_policy::addr::{Cidr, next_address, parse_address};
use std::net::IpAddr;
use std::str::FromStr;

type Result<T> = std::result::Result<T, ScenarioError>;

const DEFAULT_TTL: u32 = 30;
/// Of one owner and family. All of them in one message would be too many already.
const MOST_ADDRESSES: usize = 16_384;

const SERVER_KEYS: &[&str] =
    &["slow", "silent", "rcode", "truncate", "tcpOnly", "udpOnly", "drop", "spoof", "garbage", "wrongCase", "compress"];

pub(crate) fn read(reader: &Reader<'_>, node: &Node) -> Result<Zones> {
    reader.only(node, &["servers", "zones"])?;
    let mut zones = Zones::default();
    for entry in entries(reader, node.get("servers"), "`servers` is a map, by address")? {
        let Some(address) = parse_address(&entry.key) else {
            return reader.wrong(&entry.node, format!("`{}` is not an IP address", entry.key));
        };
        zones.servers.push((address, server(reader, &entry.node)?));
    }
    if zones.servers.is_empty() {
        return reader.wrong(node, "`servers` is missing: who answers, by address");
    }
    if let Some(changes) = node.get("zones").filter(|node| !node.is_null()) {
        for (name, owner) in read_changes(reader, changes)? {
            zones.replace(name, owner);
        }
    }
    Ok(zones)
}

/// Owners and what each has from now on; null takes a name away.
pub(crate) fn read_changes(reader: &Reader<'_>, node: &Node) -> Result<Vec<(Name, Option<Owner>)>> {
    let mut changes = Vec::new();
    for entry in entries(reader, Some(node), "records are a map, by their owner")? {
        let name = parse::<Name>(reader, &entry.node, &entry.key)?;
        let owner = if entry.node.is_null() { None } else { Some(owner(reader, &entry.node)?) };
        changes.push((name, owner));
    }
    Ok(changes)
}

fn entries<'n>(reader: &Reader<'_>, node: Option<&'n Node>, form: &str) -> Result<&'n [Entry]> {
    match node {
        None => Ok(&[]),
        Some(node) if matches!(node.value, Value::Map(_)) => Ok(node.entries()),
        Some(node) => reader.wrong(node, form),
    }
}

fn parse<T: FromStr<Err: ToString>>(reader: &Reader<'_>, node: &Node, text: &str) -> Result<T> {
    text.parse().or_else(|error: T::Err| reader.wrong(node, error.to_string()))
}

fn server(reader: &Reader<'_>, node: &Node) -> Result<Server> {
    let mut server = Server::default();
    if node.is_null() {
        return Ok(server);
    }
    reader.only(node, SERVER_KEYS)?;
    let is = |key: &str| reader.flag(node, key);
    if let Some(slow) = node.get("slow") {
        server.slow = reader.duration(slow)?;
    }
    if let Some(rcode) = node.get("rcode") {
        server.rcode = Some(parse(reader, rcode, reader.text(rcode)?)?);
    }
    server.silent = is("silent")?.unwrap_or(false);
    server.truncate = is("truncate")?.unwrap_or(false);
    server.garbage = is("garbage")?.unwrap_or(false);
    server.wrong_case = is("wrongCase")?.unwrap_or(false);
    server.compress = is("compress")?.unwrap_or(true);
    server.only = match (is("tcpOnly")?.unwrap_or(false), is("udpOnly")?.unwrap_or(false)) {
        (true, true) => return reader.wrong(node, "with `tcpOnly` and `udpOnly` nobody would answer"),
        (true, false) => Some(Transport::Tcp),
        (false, true) => Some(Transport::Udp),
        (false, false) => None,
    };
    server.drop = reader.count(node, "drop")?.unwrap_or(0) as u64;
    if let Some(spoof) = node.get("spoof") {
        for text in texts(reader, spoof)? {
            server.spoof.push(match text {
                "id" => Spoof::Id,
                "port" => Spoof::Port,
                "question" => Spoof::Question,
                "source" => Spoof::Source,
                other => return reader.wrong(spoof, format!("`{other}`: use id, port, question or source")),
            });
        }
    }
    Ok(server)
}

/// A text, or a list of texts.
fn texts<'n>(reader: &Reader<'_>, node: &'n Node) -> Result<Vec<&'n str>> {
    match &node.value {
        Value::Seq(items) => items.iter().map(|item| reader.text(item)).collect(),
        _ => Ok(vec![reader.text(node)?]),
    }
}

fn owner(reader: &Reader<'_>, node: &Node) -> Result<Owner> {
    if !matches!(node.value, Value::Map(_)) {
        return reader.wrong(node, "expected a map of records by type, like {A: [198.51.100.7], ttl: 30}");
    }
    const EXACT: &[&str] = &["answer", "authority", "additional", "rcode"];
    if node.entries().iter().any(|entry| EXACT.contains(&&*entry.key)) {
        reader.only(node, EXACT)?;
        return exact(reader, node).map(Owner::Exact);
    }
    let mut set = RecordSet::of_addresses(Vec::new(), DEFAULT_TTL);
    let mut chase = true;
    for entry in node.entries() {
        match &*entry.key {
            "ttl" => set.ttl = ttl(reader, &entry.node)?,
            "rotate" => set.rotate = reader.count(node, "rotate")?,
            "chase" => chase = reader.flag(node, "chase")?.unwrap_or(true),
            "A" => addresses(reader, entry, &mut set.addresses[0])?,
            "AAAA" => addresses(reader, entry, &mut set.addresses[1])?,
            "CNAME" => {
                let target = parse(reader, &entry.node, reader.text(&entry.node)?)?;
                set.alias = Some(Alias { target, chase });
            }
            other => {
                let Ok(kind) = other.parse::<RecordType>() else {
                    let known = "a type of record, ttl, rotate, chase, answer, authority, additional, rcode";
                    return reader.wrong(&entry.node, format!("`{other}` is not known here; use {known}"));
                };
                for text in texts(reader, &entry.node)? {
                    let data = Data::parse(kind, text).or_else(|error| reader.wrong(&entry.node, error))?;
                    set.others.push(data);
                }
            }
        }
    }
    let has_more = !set.addresses.concat().is_empty() || !set.others.is_empty();
    match &mut set.alias {
        Some(_) if has_more => return reader.wrong(node, "an owner with a CNAME has no other records"),
        Some(alias) => alias.chase = chase,
        None if !chase => return reader.wrong(node, "`chase` is for a CNAME"),
        None => {}
    }
    if set.rotate == Some(0) {
        return reader.wrong(node, "`rotate` is how many addresses an answer has, at least 1");
    }
    Ok(Owner::Records(set))
}

fn ttl(reader: &Reader<'_>, node: &Node) -> Result<u32> {
    match node.plain() {
        // RFC 2181, section 8: 31 bits.
        Value::Int(seconds @ 0..0x8000_0000) => Ok(*seconds as u32),
        _ => reader.wrong(node, "`ttl` is a number of seconds"),
    }
}

/// Addresses, and blocks that mean each address in them.
fn addresses(reader: &Reader<'_>, entry: &Entry, all: &mut Vec<IpAddr>) -> Result<()> {
    let v4 = &*entry.key == "A";
    for text in texts(reader, &entry.node)? {
        let block = match parse_address(text) {
            Some(address) => Cidr::host(address),
            None => parse(reader, &entry.node, text)?,
        };
        if block.address().is_ipv4() != v4 {
            return reader.wrong(&entry.node, format!("`{text}` is no address for {}", entry.key));
        }
        let host_bits = (if v4 { 32 } else { 128 }) - block.prefix();
        if host_bits > 14 || all.len() + (1 << host_bits) > MOST_ADDRESSES {
            return reader.wrong(&entry.node, format!("`{text}`: more than {MOST_ADDRESSES} addresses"));
        }
        let mut next = Some(block.address());
        while let Some(address) = next.filter(|address| block.contains(*address)) {
            all.push(address);
            next = next_address(address);
        }
    }
    Ok(())
}

fn exact(reader: &Reader<'_>, node: &Node) -> Result<Exact> {
    let records = |key: &str| {
        let items = reader.items(node.get(key))?;
        items.iter().map(|item| parse::<Record>(reader, item, reader.text(item)?)).collect::<Result<Vec<_>>>()
    };
    let rcode = node.get("rcode").map(|rcode| parse::<Rcode>(reader, rcode, reader.text(rcode)?)).transpose()?;
    Ok(Exact {
        rcode,
        answer: records("answer")?,
        authority: records("authority")?,
        additional: records("additional")?,
    })
}
