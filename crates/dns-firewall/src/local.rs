//! Who answers without asking anybody: `local`, `any`, `chaos`, `template`, `hosts`, `kubernetes` and `file`, in this
//! order, and `whoami` where nobody else would. Rules are asked of their answers as of any others.

use crate::cluster::{ClusterAnswer, ClusterZones};
use crate::fixed::Fixed;
use crate::hosts::Hosts;
use crate::message::is_under;
use crate::reply::{self, Sections};
use crate::template::Template;
use crate::watch::Watched;
use namewall_corefile as corefile;
use namewall_dns::Asked;
use namewall_dns::wire::{Question, Rcode, RecordType, reply as plain};
use namewall_zones::{Found, Record, Zone};
use std::net::IpAddr;
use std::sync::Arc;

const IN: u16 = 1;
/// Whole zones are given to nobody.
const TRANSFERS: [RecordType; 2] = [RecordType(251), RecordType(252)];

#[derive(Debug, Default)]
pub(crate) struct Local {
    pub(crate) fixed: Fixed,
    pub(crate) templates: Vec<Template>,
    pub(crate) hosts: Option<Arc<Watched<Hosts>>>,
    pub(crate) cluster: Option<ClusterZones>,
    pub(crate) files: Vec<ZoneFile>,
    pub(crate) says_who_asks: bool,
}

/// A zone file, read for each zone it is for.
#[derive(Debug)]
pub(crate) struct ZoneFile {
    pub(crate) zones: Arc<Watched<Vec<(corefile::Zone, Zone)>>>,
    pub(crate) fallthrough: Vec<corefile::Zone>,
}

/// An answer of a directive.
#[derive(Debug)]
pub(crate) struct LocalAnswer {
    pub(crate) message: Vec<u8>,
    /// The directive.
    pub(crate) whose: &'static str,
    /// Where the alias leads that the answer ends with, if its target has to be looked up.
    pub(crate) alias: Option<Alias>,
}

/// An alias whose target has to be looked up.
#[derive(Debug)]
pub(crate) struct Alias {
    /// The name, as it is on the wire.
    pub(crate) target: Vec<u8>,
    /// The answer if the target has no records; without it, the alias alone.
    pub(crate) without: Option<Vec<u8>>,
}

impl LocalAnswer {
    fn new(message: Vec<u8>, whose: &'static str) -> Self {
        Self { message, whose, alias: None }
    }
}

impl Local {
    /// The answer, and whose it is.
    pub(crate) fn answer(&self, asked: &Asked<'_>, question: &Question) -> Option<LocalAnswer> {
        if let Some((message, whose)) = self.fixed.answer(asked.query, question) {
            return Some(LocalAnswer::new(message, whose));
        }
        for template in &self.templates {
            if let Some(answer) = template.answer(asked, question) {
                return Some(LocalAnswer::new(answer, "template"));
            }
        }
        let of_hosts = || self.hosts.as_ref()?.now().answer(asked.query, question);
        if let Some(answer) = of_hosts() {
            return Some(LocalAnswer::new(answer, "hosts"));
        }
        match self.cluster.as_ref().and_then(|cluster| cluster.answer(asked.query, question)) {
            Some(ClusterAnswer::Whole(message)) => return Some(LocalAnswer::new(message, "kubernetes")),
            Some(ClusterAnswer::Alias(message, alias)) => {
                return Some(LocalAnswer { message, whose: "kubernetes", alias: Some(alias) });
            }
            None => {}
        }
        // Of several files the one with the longest zone is asked.
        let depth = |file: &ZoneFile| {
            let zones = file.zones.now();
            zones.iter().filter(|(zone, _)| is_under(&question.name, zone)).map(|(zone, _)| zone.depth()).max()
        };
        let fitting = self.files.iter().filter_map(|file| Some((depth(file)?, file)));
        let (_, file) = fitting.max_by_key(|(depth, _)| *depth)?;
        Some(LocalAnswer::new(file.answer(asked.query, question)?, "file"))
    }

    /// False while the objects of a cluster are not known.
    pub(crate) fn knows_cluster(&self) -> bool {
        self.cluster.as_ref().is_none_or(ClusterZones::is_known)
    }

    /// Who asks: the address, the port, and by what, as CoreDNS tells it.
    pub(crate) fn who_asks(&self, asked: &Asked<'_>, question: &Question) -> Option<Vec<u8>> {
        // Addresses are of the class IN. CoreDNS refuses other classes where nobody is there for them.
        if !self.says_who_asks || question.class != IN {
            return None;
        }
        let name = question.name.as_bytes();
        let (kind, data) = match asked.client.ip().to_canonical() {
            IpAddr::V4(v4) => (RecordType::A, v4.octets().to_vec()),
            IpAddr::V6(v6) => (RecordType::AAAA, v6.octets().to_vec()),
        };
        let address = Record { owner: name.to_vec(), kind, class: question.class, ttl: 0, data };
        let protocol: &[u8] = if asked.over_tcp() { b"\x04_tcp" } else { b"\x04_udp" };
        let mut data = vec![0; 4];
        data.extend(asked.client.port().to_be_bytes());
        data.push(0);
        let port = Record { owner: [protocol, name].concat(), kind: RecordType(33), data, ..address.clone() };
        let additional: Vec<Record> = [address, port].into_iter().filter(|record| record.owner.len() <= 255).collect();
        Some(reply::with_records(
            asked.query,
            Rcode::NO_ERROR,
            Sections { additional: &additional, ..Sections::default() },
        ))
    }
}

impl ZoneFile {
    fn answer(&self, query: &[u8], question: &Question) -> Option<Vec<u8>> {
        if question.class != IN {
            return None;
        }
        if TRANSFERS.contains(&question.record_type) {
            return Some(plain::failure(query, Rcode::REFUSED));
        }
        let zones = self.zones.now();
        let fitting = zones.iter().filter(|(zone, _)| is_under(&question.name, zone));
        let (_, zone) = fitting.max_by_key(|(zone, _)| zone.depth())?;
        let found = zone.answer(&question.name, question.record_type)?;
        let is_none = found.found == Found::NoName && found.answer.is_empty();
        if is_none && self.fallthrough.iter().any(|zone| is_under(&question.name, zone)) {
            return None;
        }
        let rcode = if found.found == Found::NoName { Rcode::NX_DOMAIN } else { Rcode::NO_ERROR };
        let sections = Sections {
            answer: &found.answer,
            authority: &found.authority,
            additional: &found.additional,
            is_elsewhere: found.found == Found::Elsewhere,
        };
        Some(reply::with_records(query, rcode, sections))
    }
}
