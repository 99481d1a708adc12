//! `hosts [FILE [ZONE…]] { … }` and `file DBFILE [ZONE…]`: names from files, and written here.

use crate::form::{ANY, Form, Words, many, once};
use crate::parse::{Block, Line};
use crate::problem::Report;
use crate::values::path;
use crate::{FileSpan, Zone};
use namewall_policy::addr::parse_address;
use namewall_policy::domain::DomainName;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HOSTS: Form = once("hosts", "[FILE [ZONE…]] { … }", 0, ANY);
pub(crate) const FILE: Form = many("file", "DBFILE [ZONE…] { … }", 1, ANY);

/// An option of `hosts`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HostsOption {
    Ttl,
    NoReverse,
    Reload,
    Fallthrough,
}

const HOSTS_OPTIONS: Words<HostsOption> = Words {
    served: &[
        (HostsOption::Ttl, once("ttl", "SECONDS", 1, 1)),
        (HostsOption::NoReverse, once("no_reverse", "", 0, 0)),
        (HostsOption::Reload, once("reload", "DURATION", 1, 1)),
        (HostsOption::Fallthrough, once("fallthrough", "[ZONE…]", 0, ANY)),
    ],
    not_served: &[],
};
/// An option of `file`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileOption {
    Reload,
    Fallthrough,
}

const FILE_OPTIONS: Words<FileOption> = Words {
    served: &[
        (FileOption::Reload, once("reload", "DURATION", 1, 1)),
        (FileOption::Fallthrough, once("fallthrough", "[ZONE…]", 0, ANY)),
    ],
    not_served: &[],
};

#[derive(Clone, PartialEq, Debug)]
pub struct Hosts {
    pub file: PathBuf,
    /// Empty is all of the server's.
    pub zones: Vec<Zone>,
    /// What is written in the Corefile itself.
    pub entries: Vec<HostEntry>,
    pub ttl: Duration,
    /// Whether addresses have their names, too.
    pub has_reverse: bool,
    /// How often the file is looked at; none is never.
    pub reload: Option<Duration>,
    /// Where names it does not know are asked further.
    pub fallthrough: Vec<Zone>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostEntry {
    pub address: IpAddr,
    pub names: Vec<DomainName>,
}

/// A zone file.
#[derive(Clone, PartialEq, Debug)]
pub struct ZoneFile {
    pub file: PathBuf,
    /// Empty is all of the server's.
    pub zones: Vec<Zone>,
    /// How often the file is looked at; none is never.
    pub reload: Option<Duration>,
    pub fallthrough: Vec<Zone>,
    pub place: FileSpan,
}

pub(crate) fn hosts(mut line: Line, report: &mut Report) -> Hosts {
    let mut hosts = Hosts {
        file: line.args.first().map_or_else(|| PathBuf::from("/etc/hosts"), path),
        zones: report.zones(line.args.get(1..).unwrap_or_default()),
        entries: Vec::new(),
        ttl: Duration::from_secs(3600),
        has_reverse: true,
        reload: Some(Duration::from_secs(5)),
        fallthrough: Vec::new(),
    };
    if let Some(Block { lines, open }) = line.block.take() {
        let (entries, lines): (Vec<Line>, Vec<Line>) =
            lines.into_iter().partition(|line| parse_address(&line.name.text).is_some());
        hosts.entries = entries.iter().filter_map(|entry| host_entry(entry, report)).collect();
        line.block = Some(Block { lines, open });
    }
    for (key, option) in report.options(&line, &HOSTS_OPTIONS) {
        match key {
            HostsOption::Ttl => hosts.ttl = report.seconds(&option.args[0], 1..=65_535).unwrap_or(hosts.ttl),
            HostsOption::NoReverse => hosts.has_reverse = false,
            HostsOption::Reload => hosts.reload = report.duration(&option.args[0]).filter(|every| !every.is_zero()),
            HostsOption::Fallthrough => hosts.fallthrough = report.fallthrough(&option.args),
        }
    }
    hosts
}

/// `ADDRESS NAME…`
fn host_entry(line: &Line, report: &mut Report) -> Option<HostEntry> {
    report.no_block(line);
    if line.args.is_empty() {
        report.error("missing-argument", line.place(), "an address needs a name").help("write `ADDRESS NAME…`");
    }
    let names = line.args.iter().filter_map(|name| report.name(name)).collect();
    parse_address(&line.name.text).map(|address| HostEntry { address, names })
}

pub(crate) fn file(line: &Line, report: &mut Report) -> ZoneFile {
    let mut file = ZoneFile {
        file: path(&line.args[0]),
        zones: report.zones(&line.args[1..]),
        reload: Some(Duration::from_secs(60)),
        fallthrough: Vec::new(),
        place: line.place().clone(),
    };
    for (key, option) in report.options(line, &FILE_OPTIONS) {
        match key {
            FileOption::Reload => file.reload = report.duration(&option.args[0]).filter(|every| !every.is_zero()),
            FileOption::Fallthrough => file.fallthrough = report.fallthrough(&option.args),
        }
    }
    file
}
