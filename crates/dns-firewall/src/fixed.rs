//! Answers that are the same everywhere: `local` (names of this machine), `any` (RFC 8482) and `chaos` (who serves).
//! They are CoreDNS' answers, which claim no authority.

use crate::reply::{self, Sections};
use namewall_corefile::{Chaos, LocalNames};
use namewall_dns::wire::{Question, Rcode, RecordType};
use namewall_zones::Record;

const IN: u16 = 1;
const CHAOS: u16 = 3;
const NS: RecordType = RecordType::NS;
const SOA: RecordType = RecordType(6);
const PTR: RecordType = RecordType(12);
const HINFO: RecordType = RecordType(13);
const TXT: RecordType = RecordType(16);
/// How long names of this machine last: a week.
const LOCAL_TTL: u32 = 604_800;
/// How long it may be remembered that ANY is not answered: the number of the RFC, as CoreDNS has it.
const ANY_TTL: u32 = 8_482;
const LOCALHOST: &[u8] = b"\x09localhost\0";
const ROOT_LOCALHOST: &[u8] = b"\x04root\x09localhost\0";

/// Which of them a server block has.
#[derive(Debug, Default)]
pub(crate) struct Fixed {
    pub(crate) local: Option<LocalNames>,
    pub(crate) any: bool,
    pub(crate) chaos: Option<Chaos>,
}

impl Fixed {
    /// The answer, and whose it is.
    pub(crate) fn answer(&self, query: &[u8], question: &Question) -> Option<(Vec<u8>, &'static str)> {
        let local = self.local.as_ref().and_then(|local| of_local(local, query, question));
        let any = || (self.any && question.record_type == RecordType::ANY).then(|| of_any(query, question));
        let chaos = || self.chaos.as_ref().and_then(|chaos| of_chaos(chaos, query, question));
        let local = local.map(|answer| (answer, "local"));
        let any = || any().map(|answer| (answer, "any"));
        local.or_else(any).or_else(|| chaos().map(|answer| (answer, "chaos")))
    }
}

/// Answers with records of the question's section or of authority.
fn answered(query: &[u8], rcode: Rcode, answer: &[Record], authority: &[Record]) -> Vec<u8> {
    let sections = Sections { answer, authority, additional: &[], is_elsewhere: true };
    reply::with_records(query, rcode, sections)
}

fn record(owner: &[u8], kind: RecordType, ttl: u32, data: Vec<u8>) -> Record {
    Record { owner: owner.to_vec(), kind, class: IN, ttl, data }
}

fn of_any(query: &[u8], question: &Question) -> Vec<u8> {
    let text = b"\x0dANY obsoleted\x0cSee RFC 8482".to_vec();
    answered(query, Rcode::NO_ERROR, &[record(question.name.as_bytes(), HINFO, ANY_TTL, text)], &[])
}

fn of_chaos(chaos: &Chaos, query: &[u8], question: &Question) -> Option<Vec<u8>> {
    if question.class != CHAOS || question.record_type != TXT {
        return None;
    }
    let lines = match &*question.name.to_string() {
        "version.bind" | "version.server" => {
            let own = concat!("namewall-", env!("CARGO_PKG_VERSION"));
            vec![chaos.version.as_deref().unwrap_or(own).to_owned()]
        }
        "authors.bind" if !chaos.authors.is_empty() => chaos.authors.iter().map(ToString::to_string).collect(),
        "hostname.bind" | "id.server" => vec![host_name()],
        _ => return None,
    };
    Some(reply::texts(query, &lines))
}

pub(crate) fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if read.trim().is_empty() { "localhost".to_owned() } else { read.trim().to_owned() }
}

fn soa(owner: &[u8]) -> Record {
    let numbers = [1, 0, 0, 0, LOCAL_TTL].map(u32::to_be_bytes).concat();
    record(owner, SOA, LOCAL_TTL, [LOCALHOST, ROOT_LOCALHOST, &numbers].concat())
}

/// The address of this machine, of a type.
fn loopback(owner: &[u8], kind: RecordType) -> Option<Record> {
    let data = match kind {
        RecordType::A => std::net::Ipv4Addr::LOCALHOST.octets().to_vec(),
        RecordType::AAAA => std::net::Ipv6Addr::LOCALHOST.octets().to_vec(),
        _ => return None,
    };
    Some(record(owner, kind, LOCAL_TTL, data))
}

/// Names of this machine: `localhost`, names below it, and the reverse zones of 0, 127 and 255.
fn of_local(local: &LocalNames, query: &[u8], question: &Question) -> Option<Vec<u8>> {
    if question.class != IN {
        return None;
    }
    let (owner, kind) = (question.name.as_bytes(), question.record_type);
    let text = question.name.to_string();
    let no_data = |zone: &[u8]| answered(query, Rcode::NO_ERROR, &[], &[soa(zone)]);
    let found = |record: Record| answered(query, Rcode::NO_ERROR, &[record], &[]);
    let is_below = text.ends_with(".localhost");
    let begins = local.has_prefix && text.starts_with("localhost.");
    if is_below || begins {
        return Some(loopback(owner, kind).map_or_else(|| no_data(owner), found));
    }
    match &*text {
        "localhost" | "0.in-addr.arpa" | "127.in-addr.arpa" | "255.in-addr.arpa" => Some(match kind {
            RecordType::A | RecordType::AAAA if text == "localhost" => {
                loopback(owner, kind).map_or_else(|| no_data(owner), found)
            }
            SOA => found(soa(owner)),
            NS => found(record(owner, NS, LOCAL_TTL, LOCALHOST.to_vec())),
            _ => no_data(owner),
        }),
        "1.0.0.127.in-addr.arpa" if kind == PTR => Some(found(record(owner, PTR, LOCAL_TTL, LOCALHOST.to_vec()))),
        _ => {
            let zones = ["0.in-addr.arpa", "127.in-addr.arpa", "255.in-addr.arpa"];
            let zone = zones.into_iter().find(|zone| text.ends_with(&format!(".{zone}")))?;
            // The name on the wire is as long as its text and two bytes more.
            let zone = owner.get(owner.len().checked_sub(zone.len() + 2)?..)?;
            Some(match &*text {
                "1.0.0.127.in-addr.arpa" => no_data(zone),
                _ => answered(query, Rcode::NX_DOMAIN, &[], &[soa(zone)]),
            })
        }
    }
}
