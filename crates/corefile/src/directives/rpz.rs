//! `rpz ZONE file PATH` and `rpz ZONE from ADDRESS…`: a response policy zone, from a file or from servers that have it.

use crate::form::{ANY, Form, Words, many, once};
use crate::parse::Line;
use crate::problem::Report;
use crate::values::path;
use crate::{FileSpan, Zone};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const RPZ: Form = many("rpz", "ZONE file PATH | ZONE from ADDRESS… { … }", 3, ANY);

/// An option of `rpz`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RpzOption {
    Reload,
    Expired,
    MaxRecords,
    MaxBytes,
}

const OPTIONS: Words<RpzOption> = Words {
    served: &[
        (RpzOption::Reload, once("reload", "DURATION", 1, 1)),
        (RpzOption::Expired, once("expired", "servfail|keep", 1, 1)),
        (RpzOption::MaxRecords, once("max_records", "NUMBER", 1, 1)),
        (RpzOption::MaxBytes, once("max_bytes", "NUMBER", 1, 1)),
    ],
    not_served: &[],
};

/// A response policy zone.
#[derive(Clone, PartialEq, Debug)]
pub struct Rpz {
    pub zone: Zone,
    pub from: RpzFrom,
    pub expired: Expired,
    /// How much of it is taken; without a number, as much as usual.
    pub max_records: Option<u32>,
    pub max_bytes: Option<u32>,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RpzFrom {
    /// How often the file is looked at; none is never.
    File { path: PathBuf, reload: Option<Duration> },
    /// Servers that are asked one after the other.
    Servers(Vec<SocketAddr>),
}

/// What counts once a zone has not been heard of for as long as its SOA says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expired {
    /// Every question gets SERVFAIL.
    #[default]
    ServFail,
    /// The last version goes on to count.
    Keep,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Option<Rpz> {
    let [zone, word, rest @ ..] = &line.args[..] else { return None };
    let zones = report.zone(zone);
    let is_file = report.word(word, &[("file", true), ("from", false)])?;
    let from = match (is_file, rest) {
        (true, [file]) => RpzFrom::File { path: path(file), reload: Some(Duration::from_secs(60)) },
        (true, _) => {
            report
                .error("extra-argument", &word.place, "a policy zone has one file")
                .help("write `rpz ZONE file PATH`");
            return None;
        }
        (false, servers) => RpzFrom::Servers(servers.iter().filter_map(|server| report.socket(server, 53)).collect()),
    };
    let [zone] = &zones[..] else {
        if zones.len() > 1 {
            report
                .error("bad-zone", &zone.place, "a policy zone has one name")
                .help("write a name, like `rpz.example`");
        }
        return None;
    };
    let mut rpz = Rpz {
        zone: zone.clone(),
        from,
        expired: Expired::default(),
        max_records: None,
        max_bytes: None,
        place: line.place().clone(),
    };
    for (key, option) in report.options(line, &OPTIONS) {
        let argument = &option.args[0];
        match (key, &mut rpz.from) {
            (RpzOption::Reload, RpzFrom::File { reload, .. }) => {
                *reload = report.duration(argument).filter(|every| !every.is_zero());
            }
            (RpzOption::Reload, RpzFrom::Servers(_)) => {
                report
                    .error("extra-option", option.place(), "the SOA of the zone says how often its servers are asked")
                    .help("remove it");
            }
            (RpzOption::Expired, RpzFrom::File { .. }) => {
                report.error("extra-option", option.place(), "a file does not expire").help("remove it");
            }
            (RpzOption::Expired, RpzFrom::Servers(_)) => {
                let words = [("servfail", Expired::ServFail), ("keep", Expired::Keep)];
                rpz.expired = report.word(argument, &words).unwrap_or_default();
            }
            (RpzOption::MaxRecords, _) => rpz.max_records = report.number(argument, 1..=u32::MAX),
            (RpzOption::MaxBytes, _) => rpz.max_bytes = report.number(argument, 1..=u32::MAX),
        }
    }
    Some(rpz)
}
