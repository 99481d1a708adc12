//! The answers of `kubernetes`.

use super::find::{Place, Shown, Target};
use super::index::{ClusterIndex, Objects};
use super::name::{ClusterNames, Parts, labels_before};
use super::objects::{ClusterKey, ServiceForm};
use crate::local::Alias;
use crate::message::is_under;
use crate::reply::{self, Sections};
use namewall_corefile::{Kubernetes, Zone};
use namewall_dns::wire::{Name, Question, Rcode, RecordType, reply as plain};
use namewall_zones::Record;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const IN: u16 = 1;
const SOA: RecordType = RecordType(6);
const PTR: RecordType = RecordType(12);
const TXT: RecordType = RecordType(16);
const SRV: RecordType = RecordType(33);
/// Whole zones are given to nobody.
const TRANSFERS: [RecordType; 2] = [RecordType(251), RecordType(252)];
/// The version of the specification, and how long that lasts.
const VERSION: &[u8] = b"\x051.1.0";
const VERSION_TTL: u32 = 28_800;
/// An SOA record lasts no longer, as with CoreDNS.
const MOST_SOA_TTL: u32 = 300;

/// The zones of a directive, and the cluster that they show.
#[derive(Debug)]
pub(crate) struct ClusterZones {
    names: ClusterNames,
    /// The zone that names of addresses lead to.
    primary: Zone,
    directive: Kubernetes,
    index: Arc<ClusterIndex>,
    /// Where we are asked, to be found as the zones' name servers.
    own: Vec<IpAddr>,
}

pub(crate) enum ClusterAnswer {
    Whole(Vec<u8>),
    /// It ends with an alias.
    Alias(Vec<u8>, Alias),
}

/// What is to be said of a name.
enum Said {
    NoName,
    NoData,
    Records { answer: Vec<Record>, additional: Vec<Record> },
    Alias(Record, Box<Name>),
}

impl Said {
    fn of(answer: Vec<Record>) -> Self {
        if answer.is_empty() { Self::NoData } else { Self::Records { answer, additional: Vec::new() } }
    }
}

impl ClusterZones {
    /// None if no zone could hold the names of addresses.
    pub(crate) fn new(
        directive: &Kubernetes,
        zones: Vec<Zone>,
        index: Arc<ClusterIndex>,
        own: Vec<IpAddr>,
    ) -> Option<Self> {
        let primary = zones.iter().find(|zone| !zone.is_reverse())?.clone();
        Some(Self { names: ClusterNames::new(zones), primary, directive: directive.clone(), index, own })
    }

    /// False while nothing is known to answer from.
    pub(crate) fn is_known(&self) -> bool {
        self.index.is_known() || self.index.before().is_some_and(|before| before.index.is_known())
    }

    fn ttl(&self) -> u32 {
        self.directive.ttl.as_secs() as u32
    }

    /// None if the name is in no zone of ours, or is not there and others are asked.
    pub(crate) fn answer(&self, query: &[u8], question: &Question) -> Option<ClusterAnswer> {
        if question.class != IN {
            return None;
        }
        let zone = self.names.zone_of(&question.name)?;
        if TRANSFERS.contains(&question.record_type) {
            return Some(ClusterAnswer::Whole(plain::failure(query, Rcode::REFUSED)));
        }
        let before = self.index.before();
        let (index, directive) = match &before {
            Some(before) => (&before.index, &*before.directive),
            None => (&self.index, &self.directive),
        };
        if !index.is_known() {
            // It is not known yet whether there is such a name: nobody may hear that there is none.
            return Some(ClusterAnswer::Whole(plain::failure(query, Rcode::SERV_FAIL)));
        }
        let objects = index.objects();
        let said =
            Lookup { zones: self, zone, objects: &objects, directive }.look_up(&question.name, question.record_type);
        let authority = [self.soa(zone)];
        let without = |rcode| {
            let sections = Sections { authority: &authority, ..Sections::default() };
            reply::with_records(query, rcode, sections)
        };
        let denied = |rcode| Some(ClusterAnswer::Whole(without(rcode)));
        let sections = |answer| Sections { answer, ..Sections::default() };
        match said {
            Said::NoName if self.directive.fallthrough.iter().any(|zone| is_under(&question.name, zone)) => None,
            Said::NoName => denied(Rcode::NX_DOMAIN),
            Said::NoData => denied(Rcode::NO_ERROR),
            Said::Records { answer, additional } => {
                let sections = Sections { additional: &additional, ..sections(&answer) };
                Some(ClusterAnswer::Whole(reply::with_records(query, Rcode::NO_ERROR, sections)))
            }
            Said::Alias(record, target) => {
                let message = reply::with_records(query, Rcode::NO_ERROR, sections(&[record]));
                let without = is_under(&target, zone).then(|| without(Rcode::NO_ERROR));
                Some(ClusterAnswer::Alias(message, Alias { target: target.as_bytes().to_vec(), without }))
            }
        }
    }

    fn soa(&self, zone: &Zone) -> Record {
        let name = |first: &[&str]| wire(first, zone).unwrap_or_else(|| vec![0]);
        let mut data = [name(&["ns", "dns"]), name(&["hostmaster"])].concat();
        for number in [self.index.serial(), 7_200, 1_800, 86_400, self.ttl()] {
            data.extend(number.to_be_bytes());
        }
        Record { owner: name(&[]), kind: SOA, class: IN, ttl: self.ttl().min(MOST_SOA_TTL), data }
    }
}

/// One look-up in the objects as they are now.
struct Lookup<'a> {
    zones: &'a ClusterZones,
    zone: &'a Zone,
    objects: &'a Objects,
    /// What of them is shown.
    directive: &'a Kubernetes,
}

impl Lookup<'_> {
    fn record(&self, owner: &[u8], kind: RecordType, data: Vec<u8>) -> Record {
        Record { owner: owner.to_vec(), kind, class: IN, ttl: self.zones.ttl(), data }
    }

    fn look_up(&self, name: &Name, kind: RecordType) -> Said {
        let labels = labels_before(name, self.zone);
        let owner = name.as_bytes();
        if is_reverse(name) && !labels.is_empty() {
            return match reverse_address(name).filter(|_| kind == PTR) {
                Some(address) => self.names_of(owner, address),
                None => self.unless_address(name),
            };
        }
        match labels.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => match kind {
                SOA => Said::of(vec![self.zones.soa(self.zone)]),
                RecordType::NS => self.name_servers_of(owner),
                _ => Said::NoData,
            },
            ["dns-version"] if kind == TXT => {
                let record = Record { ttl: VERSION_TTL, ..self.record(owner, TXT, VERSION.to_vec()) };
                Said::of(vec![record])
            }
            ["dns-version"] => Said::NoData,
            ["ns", "dns"] => {
                let servers = self.name_servers().into_iter().map(|(_, address)| address);
                Said::of(servers.filter_map(|address| self.address_record(owner, address, Some(kind))).collect())
            }
            _ => match Parts::read(&labels).and_then(|parts| self.shown().find(&parts)) {
                None => Said::NoName,
                Some(Target::Empty) => Said::NoData,
                Some(Target::Alias(target)) => self.alias(name, kind, &target),
                Some(Target::Places(places)) => self.places(owner, kind, &places),
            },
        }
    }

    fn shown(&self) -> Shown<'_> {
        Shown { objects: self.objects, directive: self.directive }
    }

    /// The name of an address that is known has no other records.
    fn unless_address(&self, name: &Name) -> Said {
        match reverse_address(name).map(|address| self.shown().names_of(address)) {
            Some(names) if !names.is_empty() => Said::NoData,
            _ => Said::NoName,
        }
    }

    fn names_of(&self, owner: &[u8], address: IpAddr) -> Said {
        let names = self.shown().names_of(address);
        if names.is_empty() {
            return Said::NoName;
        }
        let targets = names.iter().filter_map(|labels| wire(labels, &self.zones.primary));
        Said::of(targets.map(|target| self.record(owner, PTR, target)).collect())
    }

    fn places(&self, owner: &[u8], kind: RecordType, places: &[Place]) -> Said {
        if kind == SRV {
            return self.services(owner, places);
        }
        let mut answer = Vec::new();
        for record in places.iter().filter_map(|place| self.address_record(owner, place.address, Some(kind))) {
            if !answer.contains(&record) {
                answer.push(record);
            }
        }
        Said::of(answer)
    }

    /// The record of an address, if it is of the type that is wanted.
    fn address_record(&self, owner: &[u8], address: IpAddr, wanted: Option<RecordType>) -> Option<Record> {
        let (kind, data) = match address {
            IpAddr::V4(v4) => (RecordType::A, v4.octets().to_vec()),
            IpAddr::V6(v6) => (RecordType::AAAA, v6.octets().to_vec()),
        };
        wanted.is_none_or(|wanted| wanted == kind).then(|| self.record(owner, kind, data))
    }

    /// SRV records, and the addresses of their targets. All places have the same weight.
    fn services(&self, owner: &[u8], places: &[Place]) -> Said {
        let (mut answer, mut additional): (Vec<Record>, Vec<Record>) = (Vec::new(), Vec::new());
        let weight = ((100.0 / (100 * places.len()) as f64 * 100.0).floor() as u16).max(1);
        for place in places {
            let (Some(port), Some(target)) = (place.port, wire(&place.labels, self.zone)) else { continue };
            let mut data = [0, weight, port].map(u16::to_be_bytes).concat();
            data.extend(&target);
            let service = self.record(owner, SRV, data);
            if !answer.contains(&service) {
                answer.push(service);
            }
            let address = self.address_record(&target, place.address, None);
            if let Some(address) = address.filter(|address| !additional.contains(address)) {
                additional.push(address);
            }
        }
        if answer.is_empty() { Said::NoData } else { Said::Records { answer, additional } }
    }

    /// An alias. Its target is looked up as a question of the client, also within the zone: rules decide about it.
    fn alias(&self, name: &Name, kind: RecordType, target: &str) -> Said {
        if !matches!(kind, RecordType::A | RecordType::AAAA | RecordType::CNAME) {
            return Said::NoData;
        }
        let Some(target) = name_of(target) else { return Said::NoData };
        let record = self.record(name.as_bytes(), RecordType::CNAME, target.as_bytes().to_vec());
        match kind {
            RecordType::CNAME => Said::of(vec![record]),
            _ if ends_with(&target, name) => Said::NoData,
            _ => Said::Alias(record, Box::new(target)),
        }
    }

    fn name_servers_of(&self, owner: &[u8]) -> Said {
        let (mut answer, mut additional) = (Vec::new(), Vec::new());
        for (name, address) in self.name_servers() {
            additional.extend(self.address_record(&name, address, None));
            let server = self.record(owner, RecordType::NS, name);
            if !answer.contains(&server) {
                answer.push(server);
            }
        }
        if answer.is_empty() { Said::NoData } else { Said::Records { answer, additional } }
    }

    /// The names of the Services that lead to us, with their addresses; without one `ns.dns` at our own addresses.
    fn name_servers(&self) -> Vec<(Vec<u8>, IpAddr)> {
        let (mut servers, mut is_endpoint) = (Vec::new(), false);
        for own in &self.zones.own {
            for (key, slice) in self.objects.slices_at(*own) {
                is_endpoint = true;
                let (namespace, name) = (&*key.namespace, &*slice.service);
                let service = ClusterKey { namespace: namespace.into(), name: name.into() };
                let labels = [name, namespace, "svc"];
                match self.objects.service(&service).map(|service| &service.form) {
                    Some(ServiceForm::Balanced(addresses)) => {
                        let name = wire(&labels, self.zone);
                        servers.extend(name.iter().flat_map(|name| addresses.iter().map(|ip| (name.clone(), *ip))));
                    }
                    Some(ServiceForm::Headless) => servers.extend(slice.endpoints.iter().filter_map(|endpoint| {
                        let first = endpoint.label(self.directive.endpoint_pod_names);
                        let labels: Vec<&str> = [&*first].into_iter().chain(labels).collect();
                        Some((wire(&labels, self.zone)?, endpoint.address))
                    })),
                    _ => {}
                }
            }
        }
        if !is_endpoint {
            let name = wire(&["ns", "dns"], self.zone);
            servers.extend(name.iter().flat_map(|name| self.zones.own.iter().map(|ip| (name.clone(), *ip))));
        }
        servers
    }
}

/// A name of labels and a zone as it is on the wire. None if it is too long.
fn wire(labels: &[impl AsRef<str>], zone: &Zone) -> Option<Vec<u8>> {
    let of_zone: Vec<&str> = match zone {
        Zone::Root => Vec::new(),
        Zone::Name(name) => name.labels().collect(),
    };
    let mut name = Vec::new();
    for label in labels.iter().map(AsRef::as_ref).chain(of_zone) {
        name.push(u8::try_from(label.len()).ok().filter(|length| (1..64).contains(length))?);
        name.extend(label.as_bytes());
    }
    name.push(0);
    (name.len() <= 255).then_some(name)
}

/// A name that is written in an object. None if it is none.
fn name_of(text: &str) -> Option<Name> {
    let labels: Vec<&str> = text.strip_suffix('.').unwrap_or(text).split('.').collect();
    Name::read(&wire(&labels, &Zone::Root)?, 0).ok().map(|(name, _)| name)
}

/// True if a name is another one, or below it.
fn ends_with(name: &Name, other: &Name) -> bool {
    let (name, other): (Vec<&[u8]>, Vec<&[u8]>) = (name.labels().collect(), other.labels().collect());
    name.ends_with(&other)
}

/// True for names of addresses and of networks.
fn is_reverse(name: &Name) -> bool {
    let labels: Vec<&[u8]> = name.labels().collect();
    labels.ends_with(&[b"in-addr", b"arpa"]) || labels.ends_with(&[b"ip6", b"arpa"])
}

/// The address whose name is asked for.
fn reverse_address(name: &Name) -> Option<IpAddr> {
    let labels: Vec<&str> = name.labels().map(|label| std::str::from_utf8(label).ok()).collect::<Option<_>>()?;
    match &labels[..] {
        [digits @ .., "in-addr", "arpa"] if digits.len() == 4 => {
            let text: Vec<&str> = digits.iter().rev().copied().collect();
            text.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::from)
        }
        [digits @ .., "ip6", "arpa"] if digits.len() == 32 && digits.iter().all(|digit| digit.len() == 1) => {
            let text: String = digits.iter().rev().copied().collect();
            let number = u128::from_str_radix(&text, 16).ok()?;
            Some(Ipv6Addr::from_bits(number).to_canonical())
        }
        _ => None,
    }
}
