//! A policy zone in memory: owners as names with numbers, and the records of each owner in one block of bytes.

use super::prefixes::Prefixes;
use super::trigger::{Trigger, TriggerKind};
use crate::name::{is_within, lower, parent, shown, wire};
use crate::name_table::NameTable;
use crate::read::{Reader, ZoneError};
use crate::record::{CNAME, Record, SOA};
use crate::words::Entries;
use namewall_dns::wire::RecordType;
use rustc_hash::FxHashSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

const NS: RecordType = RecordType(2);
const IN: u16 = 1;
/// Types that sign a zone, or deny names of it: they are no policy.
const OF_SIGNATURES: [u16; 6] = [46, 47, 48, 50, 51, 63];

/// Records of one owner, at most: each question for it copies them.
const MOST_OF_OWNER: usize = 256;

/// How much of a policy zone is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyBounds {
    pub records: usize,
    /// Of owners and data.
    pub bytes: usize,
}

impl Default for PolicyBounds {
    fn default() -> Self {
        Self { records: 5_000_000, bytes: 512 * 1024 * 1024 }
    }
}

/// What a client gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyAction {
    NxDomain,
    NoData,
    /// The answer as it is, and no other policy is asked.
    Passthru,
    /// Nothing.
    Drop,
    /// Over UDP, an answer that is cut off.
    TcpOnly,
    /// These records; their owner is the trigger.
    Local(Vec<Record>),
}

/// A policy that is for a question or an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub trigger: TriggerKind,
    /// The owner of its records, with the name of the zone.
    pub owner: String,
    /// The line of the zone's file, if it has one.
    pub line: Option<u32>,
    pub action: PolicyAction,
}

/// A policy zone.
#[derive(Clone)]
pub struct PolicyZone {
    origin: Box<[u8]>,
    soa: Record,
    /// Without the name of the zone.
    owners: NameTable,
    /// By the number of the owner.
    about: Vec<About>,
    clients: Prefixes,
    addresses: Prefixes,
    /// By the number of the owner: where its records begin, and where the last ones end.
    starts: Vec<u32>,
    records: Vec<Stored>,
    data: Vec<u8>,
    of_servers: usize,
}

/// What is known of an owner.
#[derive(Clone, Copy, Debug)]
struct About {
    is_name: bool,
    /// 0 is none.
    line: u32,
}

/// A record without its owner and data.
#[derive(Clone, Copy, Debug)]
struct Stored {
    owner: u32,
    ttl: u32,
    start: u32,
    kind: RecordType,
    length: u16,
}

/// A policy zone that is being read.
pub struct PolicyBuilder {
    zone: PolicyZone,
    soa: Option<Record>,
    bounds: PolicyBounds,
}

impl PolicyBuilder {
    /// Of a zone by its name on the wire.
    pub fn new(origin: &[u8], bounds: PolicyBounds) -> Self {
        let soa = Record { owner: origin.to_vec(), kind: SOA, class: IN, ttl: 0, data: Vec::new() };
        let zone = PolicyZone {
            origin: lower(origin),
            soa,
            owners: NameTable::default(),
            about: Vec::new(),
            clients: Prefixes::default(),
            addresses: Prefixes::default(),
            starts: Vec::new(),
            records: Vec::new(),
            data: Vec::new(),
            of_servers: 0,
        };
        Self { zone, soa: None, bounds }
    }

    /// Adds a record; the line is that of a file, or 0.
    pub fn add(&mut self, record: &Record, line: u32) -> Result<(), String> {
        let zone = &mut self.zone;
        let owner = lower(&record.owner);
        if record.class != IN {
            return Err("records of other classes than IN are no policy".to_owned());
        }
        if !is_within(&owner, &zone.origin) {
            return Err(format!("{} is not in {}", shown(&owner), shown(&zone.origin)));
        }
        if owner == zone.origin {
            if record.kind == SOA && self.soa.replace(record.clone()).is_some() {
                return Err("a zone has one SOA".to_owned());
            }
            // Other records of the zone itself, like its servers, are no policy.
            return Ok(());
        }
        // In a transfer an SOA begins and ends versions. BIND refuses it elsewhere, too.
        if record.kind == SOA {
            return Err(format!("an SOA stands at {}, and nowhere else", shown(&zone.origin)));
        }
        let mut own = owner[..owner.len() - zone.origin.len()].to_vec();
        own.push(0);
        let trigger = Trigger::read(&own)?;
        let (id, is_new) = zone.owners.insert(&own).map_err(|full| full.to_string())?;
        if is_new {
            zone.about.push(About { is_name: trigger == Trigger::Name, line });
            match trigger {
                Trigger::Name => zone.add_names_above(&own)?,
                Trigger::Address(TriggerKind::ClientIp, network) => zone.clients.add(network, id),
                Trigger::Address(_, network) => zone.addresses.add(network, id),
                Trigger::OfServers => zone.of_servers += 1,
            }
        }
        if let Some(about) = zone.about.get_mut(id as usize).filter(|about| about.line == 0) {
            about.line = line;
        }
        let length = u16::try_from(record.data.len()).map_err(|_| "its data are too long".to_owned())?;
        let start = u32::try_from(zone.data.len()).map_err(|_| "there is no room for more data".to_owned())?;
        zone.data.extend(&record.data);
        zone.records.push(Stored { owner: id, ttl: record.ttl, start, kind: record.kind, length });
        if zone.records.len() > self.bounds.records {
            return Err(format!("the zone has more than {} records (`max_records`)", self.bounds.records));
        }
        if zone.data.len() + zone.owners.bytes() > self.bounds.bytes {
            return Err(format!("the zone takes more than {} bytes (`max_bytes`)", self.bounds.bytes));
        }
        Ok(())
    }

    /// The zone, if all of it is policy.
    pub fn finish(self) -> Result<PolicyZone, String> {
        let Self { mut zone, soa, .. } = self;
        zone.soa = soa.ok_or_else(|| format!("there is no SOA of {}", shown(&zone.origin)))?;
        if zone.timers().is_none() {
            return Err("the SOA cannot be read".to_owned());
        }
        zone.owners.shrink();
        zone.records.sort_by_key(|record| record.owner);
        zone.remove_duplicates()?;
        zone.starts = vec![0; zone.owners.len() + 1];
        for record in &zone.records {
            zone.starts[record.owner as usize + 1] += 1;
        }
        for at in 1..zone.starts.len() {
            zone.starts[at] += zone.starts[at - 1];
        }
        for id in 0..zone.owners.len() as u32 {
            zone.check(id)?;
        }
        Ok(zone)
    }
}

/// The times of an SOA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timers {
    pub serial: u32,
    pub refresh: Duration,
    pub retry: Duration,
    pub expire: Duration,
}

/// The times of an SOA's data.
pub(super) fn timers(data: &[u8]) -> Option<Timers> {
    let numbers: &[u8; 20] = data.last_chunk()?;
    let number = |at: usize| -> Option<u32> { Some(u32::from_be_bytes(*numbers.get(at..)?.first_chunk()?)) };
    let seconds = |at| Some(Duration::from_secs(number(at)?.into()));
    Some(Timers { serial: number(0)?, refresh: seconds(4)?, retry: seconds(8)?, expire: seconds(12)? })
}

impl PolicyZone {
    /// Reads the policy zone of this name, which is whole (`policy.example.`), from a file.
    pub fn read(name: &str, text: &str, bounds: PolicyBounds) -> Result<Self, ZoneError> {
        let at = |line| move |message: String| ZoneError { line, message };
        let origin = wire(name, &[0]).map_err(at(0))?;
        let mut reader = Reader::new(origin.clone());
        let mut builder = PolicyBuilder::new(&origin, bounds);
        for entry in Entries::new(text) {
            let entry = entry.map_err(|(line, message)| ZoneError { line, message })?;
            if let Some(record) = reader.take(&entry).map_err(at(entry.line))? {
                builder.add(&record, entry.line).map_err(at(entry.line))?;
            }
        }
        // What is wrong with an owner is said with its own line.
        builder.finish().map_err(|message| {
            let line = message.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
            match line.and_then(|(line, message)| Some((line.parse().ok()?, message.to_owned()))) {
                Some((line, message)) => ZoneError { line, message },
                None => ZoneError { line: 1, message },
            }
        })
    }

    pub fn timers(&self) -> Option<Timers> {
        timers(&self.soa.data)
    }

    /// The name of the zone on the wire.
    pub fn origin(&self) -> &[u8] {
        &self.origin
    }

    pub fn soa(&self) -> &Record {
        &self.soa
    }

    /// How many records it has, without its SOA.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Bytes of memory that it takes, but for its networks.
    pub fn bytes(&self) -> usize {
        let records = self.records.capacity() * size_of::<Stored>() + self.data.capacity();
        let owners = self.about.capacity() * size_of::<About>() + self.starts.capacity() * size_of::<u32>();
        self.owners.bytes() + records + owners
    }

    /// Whether it is within these bounds.
    pub fn fits(&self, bounds: PolicyBounds) -> bool {
        self.records.len() <= bounds.records && self.data.len() + self.owners.bytes() <= bounds.bytes
    }

    /// How many owners are about servers of zones, which a forwarder does not see.
    pub fn of_servers(&self) -> usize {
        self.of_servers
    }

    /// Whether answers have to be known for all of its policies.
    pub fn looks_at_addresses(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// The policy for a client.
    pub fn for_client(&self, client: IpAddr) -> Option<Found> {
        self.clients.over(client).find_map(|(_, id)| self.found(id, TriggerKind::ClientIp))
    }

    /// The policy for a name, which is on the wire and in lower case: its own or, if the zone has no such name, that of
    /// the wildcard of the longest name above it that the zone has (RFC 4592).
    pub fn for_name(&self, name: &[u8]) -> Option<Found> {
        let closest = self.owners.above(name).last().map(|above| above.id);
        let id = match closest.map(|id| (id, self.owners.name(id))) {
            Some((id, own)) if own.len() == name.len() => id,
            Some((_, above)) => self.owners.wildcard_of(above)?,
            None => self.owners.wildcard_of(&[0])?,
        };
        let is_name = self.about.get(id as usize).is_some_and(|about| about.is_name);
        if is_name { self.found(id, TriggerKind::Name) } else { None }
    }

    /// Removes all but the first of equal records. Expects records in the order of their owners.
    fn remove_duplicates(&mut self) -> Result<(), String> {
        let (records, data) = (&mut self.records, &self.data);
        let mut owner = None;
        let mut seen = FxHashSet::default();
        let mut overfull = None;
        records.retain(|record| {
            if owner.replace(record.owner) != Some(record.owner) {
                seen.clear();
            }
            if overfull.is_some() {
                return true;
            }
            let is_new = seen.insert((record.kind.0, data_of(data, record)));
            overfull = (seen.len() > MOST_OF_OWNER).then_some(record.owner);
            is_new
        });
        overfull
            .map_or(Ok(()), |id| Err(self.about_owner(id, &format!("an owner has at most {MOST_OF_OWNER} records"))))
    }

    /// A name under which there is one exists, though it has no policy.
    fn add_names_above(&mut self, name: &[u8]) -> Result<(), String> {
        let mut above = parent(name);
        while let Some(one) = above.filter(|one| one.len() > 1) {
            let (_, is_new) = self.owners.insert(one).map_err(|full| full.to_string())?;
            if !is_new {
                break;
            }
            self.about.push(About { is_name: true, line: 0 });
            above = parent(one);
        }
        Ok(())
    }

    /// The policy for one of the addresses of an answer: that of the longest prefix, and of two that are as long that of
    /// the lower address. A prefix of IPv4 counts as that of the mapped address, 96 bits longer.
    pub fn for_addresses(&self, addresses: &[IpAddr]) -> Option<Found> {
        let mut best: Option<(u8, std::cmp::Reverse<IpAddr>, Found)> = None;
        for address in addresses.iter().map(IpAddr::to_canonical) {
            let mut over = self.addresses.over(address);
            let found = over.find_map(|(length, id)| Some((length, self.found(id, TriggerKind::ResponseIp)?)));
            let Some((length, found)) = found else { continue };
            let length = if address.is_ipv4() { length + 96 } else { length };
            let rank = (length, std::cmp::Reverse(address));
            if best.as_ref().is_none_or(|(length, address, _)| rank > (*length, *address)) {
                best = Some((rank.0, rank.1, found));
            }
        }
        best.map(|(_, _, found)| found)
    }

    /// All records but the SOA, with whole owners.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.records.iter().map(|record| self.whole(record))
    }

    fn whole(&self, record: &Stored) -> Record {
        let owner = self.owners.name(record.owner);
        let owner = [&owner[..owner.len().saturating_sub(1)], &self.origin].concat();
        let data = data_of(&self.data, record).to_vec();
        Record { owner, kind: record.kind, class: IN, ttl: record.ttl, data }
    }

    fn of_owner(&self, id: u32) -> &[Stored] {
        let range = self.starts.get(id as usize).zip(self.starts.get(id as usize + 1));
        range.and_then(|(start, end)| self.records.get(*start as usize..*end as usize)).unwrap_or_default()
    }

    fn found(&self, id: u32, trigger: TriggerKind) -> Option<Found> {
        let action = self.action(id).ok().flatten()?;
        let line = self.about.get(id as usize).map(|about| about.line).filter(|line| *line > 0);
        Some(Found { trigger, owner: self.shown(id), line, action })
    }

    /// An owner with the name of the zone.
    fn shown(&self, id: u32) -> String {
        let owner = self.owners.name(id);
        shown(&[&owner[..owner.len().saturating_sub(1)], &self.origin].concat())
    }

    /// What the records of an owner say; none if they are no policy.
    fn action(&self, id: u32) -> Result<Option<PolicyAction>, String> {
        let is_policy = |record: &&Stored| !OF_SIGNATURES.contains(&record.kind.0);
        let records: Vec<Record> =
            self.of_owner(id).iter().filter(is_policy).map(|record| self.whole(record)).collect();
        let alias = match &records[..] {
            [] => return Ok(None),
            [one] if one.kind == CNAME => &one.data,
            all if all.iter().any(|record| record.kind == CNAME) => {
                return Err("an alias is the only record of its owner".to_owned());
            }
            all if all.iter().any(|record| matches!(record.kind.0, 39) || record.kind == NS) => {
                return Err("neither a delegation nor a DNAME is a policy".to_owned());
            }
            _ => return Ok(Some(PolicyAction::Local(records))),
        };
        let target = lower(alias);
        Ok(Some(match &*target {
            b"\0" => PolicyAction::NxDomain,
            b"\x01*\0" => PolicyAction::NoData,
            b"\x0crpz-passthru\0" => PolicyAction::Passthru,
            b"\x08rpz-drop\0" => PolicyAction::Drop,
            b"\x0crpz-tcp-only\0" => PolicyAction::TcpOnly,
            // The form of old zones.
            own if own == self.owners.name(id) => PolicyAction::Passthru,
            other if is_reserved(other) => return Err(format!("{} is no action that is known", shown(other))),
            _ => PolicyAction::Local(records),
        }))
    }

    /// Checks that what an owner says is understood.
    fn check(&self, id: u32) -> Result<(), String> {
        self.action(id).map(drop).map_err(|why| self.about_owner(id, &why))
    }

    /// What is wrong with an owner, with its line if it has one.
    fn about_owner(&self, id: u32, why: &str) -> String {
        match self.about.get(id as usize).map(|about| about.line) {
            Some(line @ 1..) => format!("line {line}: {}: {why}", self.shown(id)),
            _ => format!("{}: {why}", self.shown(id)),
        }
    }
}

/// The data of a record, of the data of all records.
fn data_of<'d>(data: &'d [u8], record: &Stored) -> &'d [u8] {
    let start = record.start as usize;
    data.get(start..start + usize::from(record.length)).unwrap_or_default()
}

/// Whether the last label of a name begins with `rpz-`.
fn is_reserved(name: &[u8]) -> bool {
    let mut last: &[u8] = &[];
    let mut rest = name;
    while let Some((&length, after)) = rest.split_first()
        && let Some((label, after)) = after.split_at_checked(usize::from(length)).filter(|_| length > 0)
    {
        (last, rest) = (label, after);
    }
    last.starts_with(b"rpz-")
}

impl fmt::Debug for PolicyZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} records", shown(&self.origin), self.records.len())
    }
}

impl fmt::Debug for PolicyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.zone.fmt(f)
    }
}
