//! The `resolve:` step: names that clients look up, and what must come of it.

use crate::expectation::Expectation;
use crate::file::{Probe, Reader, ScenarioError};
use crate::settings;
use crate::zones::{Name, Rcode, RecordType, Transport};
use namewall_cluster::yaml::{Node, Value};
use namewall_policy::Source;
use namewall_policy::addr::parse_address;
use namewall_policy::ask::{Host, Target};
use namewall_policy::port::Protocol;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

type Result<T> = std::result::Result<T, ScenarioError>;

/// How long a client waits for an answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const EDNS_SIZE: u16 = 1232;
/// Enough for any flood that a machine can be asked to make.
const MOST: usize = 20_000;

/// Lookups of one name, by one client.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// As a user reads it.
    pub text: String,
    pub from: Host,
    /// A first label `*` is another one in every lookup.
    pub name: Name,
    pub kind: RecordType,
    /// None: UDP, and TCP where the answer is truncated.
    pub via: Option<Transport>,
    /// None: whoever the client is set to ask.
    pub server: Option<IpAddr>,
    /// What a client with a search list appends, in order, before it asks for the name itself.
    pub search: Vec<Name>,
    pub mixed_case: bool,
    /// The size the client says it takes over UDP, if it speaks EDNS0.
    pub edns: Option<u16>,
    pub times: usize,
    /// How many are under way at once.
    pub parallel: usize,
    pub expect: Expected,
    pub then: Option<Then>,
    pub source: Source,
}

/// What must come of each lookup.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Expected {
    pub answer: Option<ExpectedAnswer>,
    /// Exactly these addresses of the answer were leased.
    pub leased: Option<BTreeSet<IpAddr>>,
    /// Exactly these must never be (S6.8).
    pub refused: Option<BTreeSet<IpAddr>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExpectedAnswer {
    /// NOERROR, and exactly these.
    Addresses(BTreeSet<IpAddr>),
    /// NOERROR, and so many addresses.
    Count(usize),
    Rcode(Rcode),
    /// No answer.
    Timeout,
    /// No answer, or SERVFAIL in its place.
    Fails,
}

/// A connection that the client opens with the answer in hand, to every address in it.
#[derive(Clone, Debug)]
pub struct Then {
    pub protocol: Protocol,
    pub port: u16,
    pub expect: Expectation,
}

/// What came of one lookup.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Resolved {
    /// None: no answer.
    pub rcode: Option<Rcode>,
    pub addresses: Vec<IpAddr>,
    /// None: it cannot be told.
    pub leased: Option<Vec<IpAddr>>,
    pub refused: Option<Vec<IpAddr>>,
    /// Where a connection was opened at once, and whether it could be. None: none was tried.
    pub reached: Option<Vec<(IpAddr, bool)>>,
}

/// How a lookup went.
#[derive(Debug)]
pub struct LookupResult {
    pub text: String,
    pub expected: String,
    pub passed: bool,
    pub got: String,
    pub source: Source,
}

const KEYS: &[&str] =
    &["from", "name", "type", "via", "server", "search", "case", "edns", "times", "parallel", "expect", "then"];

/// `FROM NAME [TYPE]`, or all of it as a map.
pub(crate) fn read(reader: &Reader<'_>, body: &Node) -> Result<Lookup> {
    if let Value::String(text) = &body.value {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (from, name, kind) = match words.as_slice() {
            [from, name] => (from, name, "A"),
            [from, name, kind] => (from, name, *kind),
            _ => return reader.wrong(body, "write FROM NAME, like shop/web api.example.com"),
        };
        let (from, name, kind) = (parse(reader, body, from)?, parse(reader, body, name)?, parse(reader, body, kind)?);
        return Ok(plain(from, name, kind, reader.place(body)));
    }
    reader.only(body, KEYS)?;
    let text = |key: &str| body.get(key).map(|node| reader.text(node)).transpose();
    let (Some(from), Some(name)) = (body.get("from"), body.get("name")) else {
        return reader.wrong(body, "`from` and `name` are needed: who looks up what");
    };
    let kind = parse(reader, body, text("type")?.unwrap_or("A"))?;
    let from = parse(reader, from, reader.text(from)?)?;
    let name = parse(reader, name, reader.text(name)?)?;
    let mut lookup = plain(from, name, kind, reader.place(body));
    lookup.via = match text("via")? {
        None => None,
        Some("udp") => Some(Transport::Udp),
        Some("tcp") => Some(Transport::Tcp),
        Some(other) => return reader.wrong(body, format!("`via` is udp or tcp, not `{other}`")),
    };
    if let Some(node) = body.get("server") {
        let Some(server) = parse_address(reader.text(node)?) else {
            return reader.wrong(node, "this is not an IP address");
        };
        lookup.server = Some(server);
    }
    for node in reader.items(body.get("search"))? {
        lookup.search.push(parse(reader, node, reader.text(node)?)?);
    }
    lookup.mixed_case = match text("case")? {
        None => false,
        Some("mixed") => true,
        Some(other) => return reader.wrong(body, format!("`case` is mixed, or as the name is written; not `{other}`")),
    };
    lookup.edns = match body.get("edns").map(|node| (node.plain(), node)) {
        None | Some((Value::Bool(true), _)) => Some(EDNS_SIZE),
        Some((Value::Bool(false), _)) => None,
        Some((Value::Int(size @ 0..=0xffff), _)) => Some(*size as u16),
        Some((_, node)) => return reader.wrong(node, "`edns` is the size the client takes, or false"),
    };
    lookup.times = reader.count(body, "times")?.unwrap_or(1);
    lookup.parallel = reader.count(body, "parallel")?.unwrap_or(1);
    if !(1..=MOST).contains(&lookup.times) || !(1..=MOST).contains(&lookup.parallel) {
        return reader.wrong(body, format!("`times` and `parallel` are 1 to {MOST}"));
    }
    if let Some(node) = body.get("expect") {
        lookup.expect = expected(reader, node)?;
    }
    if let Some(node) = body.get("then") {
        lookup.then = Some(parse(reader, node, reader.text(node)?)?);
    }
    Ok(lookup)
}

fn plain(from: Host, name: Name, kind: RecordType, source: Source) -> Lookup {
    Lookup {
        text: format!("{from} resolves {name} {kind}"),
        from,
        name,
        kind,
        via: None,
        server: None,
        search: Vec::new(),
        mixed_case: false,
        edns: Some(EDNS_SIZE),
        times: 1,
        parallel: 1,
        expect: Expected::default(),
        then: None,
        source,
    }
}

fn parse<T: FromStr<Err: ToString>>(reader: &Reader<'_>, node: &Node, text: &str) -> Result<T> {
    text.parse().or_else(|error: T::Err| reader.wrong(node, error.to_string()))
}

fn expected(reader: &Reader<'_>, node: &Node) -> Result<Expected> {
    reader.only(node, &["addresses", "rcode", "timeout", "fails", "leased", "refused"])?;
    let set = |key: &str| {
        let found = node.get(key).map(|node| settings::addresses(reader, node)).transpose()?;
        Ok(found.map(|addresses| addresses.into_iter().collect::<BTreeSet<IpAddr>>()))
    };
    let mut answers = Vec::new();
    match node.get("addresses").map(Node::plain) {
        Some(Value::Int(count @ 0..)) => answers.push(ExpectedAnswer::Count(*count as usize)),
        _ => answers.extend(set("addresses")?.map(ExpectedAnswer::Addresses)),
    }
    if let Some(rcode) = node.get("rcode") {
        answers.push(ExpectedAnswer::Rcode(parse(reader, rcode, reader.text(rcode)?)?));
    }
    for (key, expected) in [("timeout", ExpectedAnswer::Timeout), ("fails", ExpectedAnswer::Fails)] {
        match reader.flag(node, key)? {
            None => {}
            Some(true) => answers.push(expected),
            Some(false) => return reader.wrong(node, format!("`{key}` is true, or left out")),
        }
    }
    if answers.len() > 1 {
        return reader.wrong(node, "one of addresses, rcode, timeout and fails is enough");
    }
    Ok(Expected { answer: answers.pop(), leased: set("leased")?, refused: set("refused")? })
}

impl FromStr for Then {
    type Err = String;

    /// `443/TCP allow by …`, `ICMP deny`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let form = || format!("`{text}`: write a port and what is expected, like `443/TCP allow`");
        let (target, expect) = text.trim().split_once(' ').ok_or_else(form)?;
        let (port, protocol) = match target.split_once('/') {
            Some((port, protocol)) => (Some(port), protocol.parse::<Protocol>()),
            None if target.starts_with(|first: char| first.is_ascii_digit()) => (Some(target), Ok(Protocol::Tcp)),
            None => (None, target.parse::<Protocol>()),
        };
        let protocol = protocol.map_err(|_| form())?;
        let port = match port {
            Some(port) if protocol.has_ports() => port.parse().map_err(|_| form())?,
            None if !protocol.has_ports() => 0,
            _ => return Err(form()),
        };
        Ok(Self { protocol, port, expect: expect.parse()? })
    }
}

impl Then {
    /// The connection to one address of the answer.
    pub(crate) fn probe(&self, lookup: &Lookup, address: IpAddr) -> Probe {
        let port = self.protocol.has_ports().then_some(self.port);
        let end = match port {
            Some(port) => SocketAddr::new(address, port).to_string(),
            None => address.to_string(),
        };
        Probe {
            text: format!("{} -> {end}/{}, with the answer for {}", lookup.from, self.protocol, lookup.name),
            from: lookup.from.clone(),
            to: Target { host: Host::Address(address), protocol: self.protocol, port },
            expect: self.expect.clone(),
            source: lookup.source.clone(),
        }
    }
}

impl Expected {
    /// Whether a lookup for that type went so.
    pub(crate) fn agrees(&self, kind: RecordType, resolved: &Resolved) -> bool {
        let set = |addresses: &[IpAddr]| addresses.iter().copied().collect::<BTreeSet<IpAddr>>();
        let same = |expected: &Option<BTreeSet<IpAddr>>, got: &Option<Vec<IpAddr>>| match (expected, got) {
            (Some(expected), Some(got)) => *expected == set(got),
            // What cannot be told is not held against anybody.
            _ => true,
        };
        let answered = resolved.rcode == Some(Rcode::NOERROR);
        let answer = match &self.answer {
            Some(ExpectedAnswer::Addresses(expected)) => answered && *expected == set(&resolved.addresses),
            Some(ExpectedAnswer::Count(count)) => answered && resolved.addresses.len() == *count,
            Some(ExpectedAnswer::Rcode(rcode)) => resolved.rcode == Some(*rcode),
            Some(ExpectedAnswer::Timeout) => resolved.rcode.is_none(),
            Some(ExpectedAnswer::Fails) => resolved.rcode.is_none_or(|rcode| rcode == Rcode::SERVFAIL),
            None if matches!(kind, RecordType::A | RecordType::AAAA) => answered && !resolved.addresses.is_empty(),
            None => answered,
        };
        answer && same(&self.leased, &resolved.leased) && same(&self.refused, &resolved.refused)
    }
}

/// Addresses as a user reads them; a few of many.
fn list<'a>(addresses: impl IntoIterator<Item = &'a IpAddr>) -> String {
    const FEW: usize = 8;
    let texts: Vec<String> = addresses.into_iter().map(IpAddr::to_string).collect();
    match texts.len() {
        0 => "none".to_owned(),
        count if count > FEW => format!("{} and {} more", texts[..FEW].join(" "), count - FEW),
        _ => texts.join(" "),
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            None => f.write_str("an answer")?,
            Some(ExpectedAnswer::Addresses(addresses)) => f.write_str(&list(addresses))?,
            Some(ExpectedAnswer::Count(count)) => write!(f, "{count} addresses")?,
            Some(ExpectedAnswer::Rcode(rcode)) => write!(f, "{rcode}")?,
            Some(ExpectedAnswer::Timeout) => f.write_str("no answer")?,
            Some(ExpectedAnswer::Fails) => f.write_str("no answer, or SERVFAIL")?,
        }
        tell(f, "leased", self.leased.as_ref())?;
        tell(f, "refused", self.refused.as_ref())
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rcode {
            None => f.write_str("no answer")?,
            Some(Rcode::NOERROR) => f.write_str(&list(&self.addresses))?,
            Some(rcode) => write!(f, "{rcode}")?,
        }
        tell(f, "leased", self.leased.as_ref())?;
        tell(f, "refused", self.refused.as_ref())
    }
}

fn tell<'a, T>(f: &mut fmt::Formatter<'_>, word: &str, addresses: Option<&'a T>) -> fmt::Result
where
    &'a T: IntoIterator<Item = &'a IpAddr>,
{
    addresses.map_or(Ok(()), |addresses| write!(f, ", {word}: {}", list(addresses)))
}
