//! Response policy zones at work (`rpz`): what they say of a question and of its answer.
//!
//! ```text
//! query rules ─► policies: client, name ─► … ─► answer ─► policies: aliases, addresses ─► response rules ─► client
//! ```
//!
//! Of several zones the first in the Corefile counts that has a policy; within a zone one for the client before one
//! for the name, and that before one for an address of the answer. A policy for the name that was asked for counts
//! before one for a name that an alias leads to. `transfer` fetches zones from servers and `follow` keeps them current;
//! `apply` is what an exchange does with a policy.

mod apply;
mod follow;
mod transfer;

pub(crate) use apply::Applied;
pub(crate) use follow::Followers;

use crate::tell::Teller;
use crate::watch::Watched;
use follow::{Followed, Follower, not_asked};
use namewall_corefile::{FileSpan, Rpz, RpzFrom, Zone};
use namewall_dns::wire::{Question, Section, records};
use namewall_runtime::files::open_regular;
use namewall_zones::{PolicyBounds, PolicyFound, PolicyZone};
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CNAME: u16 = 5;
/// Classes.
const IN: u16 = 1;
const ANY: u16 = 255;
/// Aliases of an answer that are followed.
const MOST_ALIASES: usize = 16;

/// A policy zone of a server block.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(crate) zone: Zone,
    pub(crate) place: FileSpan,
    pub(crate) file: Option<PathBuf>,
    pub(crate) source: Source,
}

/// Where a policy zone comes from.
#[derive(Debug)]
pub(crate) enum Source {
    File(Arc<Watched<PolicyZone>>),
    Servers(Arc<Follower>),
}

/// What policies say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    /// The zone, by its place among those of the block.
    pub(crate) policy: usize,
    /// What it says; an error is why it is not known what it would say.
    pub(crate) said: Result<PolicyFound, &'static str>,
}

impl Policy {
    /// Reads a policy zone, or begins to follow it. Returns it, and what is probably not meant.
    pub(crate) fn open(rpz: &Rpz, teller: &Arc<Teller>) -> Result<(Self, Option<String>), String> {
        let usual = PolicyBounds::default();
        let bounds = PolicyBounds {
            records: rpz.max_records.map_or(usual.records, |most| most as usize),
            bytes: rpz.max_bytes.map_or(usual.bytes, |most| most as usize),
        };
        let (file, source) = match &rpz.from {
            RpzFrom::Servers(servers) => {
                let (zone, servers) = (rpz.zone.clone(), servers.clone());
                let followed = Followed { zone, servers, expired: rpz.expired, bounds };
                (None, Source::Servers(teller.followers().open(followed, teller)?))
            }
            RpzFrom::File { path, reload } => {
                let (zone, file) = (rpz.zone.to_string(), path.clone());
                let read = move || read(&file, &zone, bounds);
                let watched = Watched::start(path, *reload, read, teller);
                let watched = watched.map_err(|error| format!("{}: {error}", path.display()))?;
                (Some(path.clone()), Source::File(watched))
            }
        };
        let of_servers = match &source {
            Source::File(watched) => watched.now().of_servers(),
            // It is told when the zone has been transferred.
            Source::Servers(_) => 0,
        };
        let warning = (of_servers > 0).then(|| format!("rpz {}: {}", rpz.zone, not_asked(of_servers)));
        Ok((Self { zone: rpz.zone.clone(), place: rpz.place.clone(), file, source }, warning))
    }

    /// False while nothing is known of a zone that is being transferred.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.source {
            Source::File(_) => true,
            Source::Servers(follower) => follower.is_settled(),
        }
    }

    /// What metrics and logs call it.
    pub(crate) fn label(&self) -> Arc<str> {
        format!("rpz {}", self.zone).into()
    }

    /// Asks the zone as it is now. An error is that nothing can be asked.
    fn with<T>(&self, ask: impl FnOnce(&PolicyZone) -> T) -> Result<T, &'static str> {
        match &self.source {
            Source::File(watched) => Ok(ask(&watched.now())),
            Source::Servers(follower) => follower.with(ask),
        }
    }
}

fn read(file: &Path, zone: &str, bounds: PolicyBounds) -> Result<PolicyZone, String> {
    let mut text = String::new();
    let mut opened = open_regular(file).map_err(|error| error.to_string())?;
    opened.read_to_string(&mut text).map_err(|error| error.to_string())?;
    PolicyZone::read(zone, &text, bounds).map_err(|error| error.to_string())
}

/// Whether policies are for the class of a question. Servers answer the class ANY with records of IN.
fn is_judged(question: &Question) -> bool {
    [IN, ANY].contains(&question.class)
}

/// What the policies of a block say of a question; none is that they say nothing yet.
pub(crate) fn of_question(policies: &[Policy], client: IpAddr, question: &Question) -> Option<Verdict> {
    if !is_judged(question) {
        return None;
    }
    for (policy, one) in policies.iter().enumerate() {
        let asked = one.with(|zone| {
            let of_client = zone.for_client(client.to_canonical());
            (of_client.or_else(|| zone.for_name(question.name.as_bytes())), zone.looks_at_addresses())
        });
        match asked {
            Err(why) => return Some(Verdict { policy, said: Err(why) }),
            Ok((Some(found), _)) => return Some(Verdict { policy, said: Ok(found) }),
            // What it says of addresses counts before what zones behind it say of names.
            Ok((None, true)) => return None,
            Ok((None, false)) => {}
        }
    }
    None
}

/// What an answer has that policies look at.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// The name of the question, and those that aliases lead to.
    names: Vec<Vec<u8>>,
    addresses: Vec<IpAddr>,
}

impl Looked {
    /// Reads an answer; none if it cannot be read.
    pub(crate) fn read(question: &Question, answer: &[u8], addresses: &[IpAddr]) -> Option<Self> {
        let mut aliases = Vec::new();
        for record in records(answer).ok()?.iter().filter(|record| record.section == Section::Answer) {
            // Who asks for an alias is not led on by it.
            if record.kind.0 == CNAME && question.record_type.0 != CNAME {
                let name = |at| namewall_dns::wire::Name::read(answer, at).ok().map(|(name, _)| name);
                // The data stand behind the TTL and their length.
                aliases.push((name(record.owner)?, name(record.ttl_at + 6)?));
            }
        }
        let mut names = vec![question.name.as_bytes().to_vec()];
        while let Some(last) = names.last()
            && let Some((_, target)) = aliases.iter().find(|(owner, _)| owner.as_bytes() == &last[..])
        {
            let target = target.as_bytes().to_vec();
            if names.len() > MOST_ALIASES || names.contains(&target) {
                break;
            }
            names.push(target);
        }
        Some(Self { names, addresses: addresses.to_vec() })
    }
}

/// What the policies of a block say of an answer.
pub(crate) fn of_answer(policies: &[Policy], client: IpAddr, looked: &Looked) -> Option<Verdict> {
    let client = client.to_canonical();
    for (position, name) in looked.names.iter().enumerate() {
        let (is_first, is_last) = (position == 0, position + 1 == looked.names.len());
        for (policy, one) in policies.iter().enumerate() {
            let asked = one.with(|zone| {
                let of_client = if is_first { zone.for_client(client) } else { None };
                let of_name = || zone.for_name(name);
                let of_addresses = || if is_last { zone.for_addresses(&looked.addresses) } else { None };
                of_client.or_else(of_name).or_else(of_addresses)
            });
            match asked {
                Err(why) => return Some(Verdict { policy, said: Err(why) }),
                Ok(Some(found)) => return Some(Verdict { policy, said: Ok(found) }),
                Ok(None) => {}
            }
        }
    }
    None
}
