//! A scenario's lookups with packets, as a pod's own resolver makes them.

use super::words;
use crate::dns::{Ask, Heard, PORT};
use crate::probe::Place;
use crate::sandbox::Sandbox;
use namewall_policy::ask::Host;
use namewall_scenario::zones::{Name, Rcode};
use namewall_scenario::{Lookup, Resolved};
use std::net::{IpAddr, SocketAddr};

/// Which names are looked up, and where.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub lookup: &'a Lookup,
    pub names: &'a [Name],
    /// In this order, until one answers.
    pub servers: &'a [IpAddr],
}

pub(super) fn resolve(sandbox: &Sandbox, asked: &Asked<'_>) -> Result<Vec<Resolved>, String> {
    let mut heard: Vec<Option<Heard>> = vec![None; asked.names.len()];
    let suffixes = asked.lookup.search.iter().map(Some).chain([None]);
    for suffix in suffixes {
        let mut names = Vec::new();
        for (at, name) in asked.names.iter().enumerate() {
            let name = suffix.map_or(Some(name.clone()), |suffix| name.followed_by(suffix));
            names.extend(name.filter(|_| goes_on(heard[at].as_ref())).map(|name| (at, name)));
        }
        for (at, answer) in ask_in_turn(sandbox, asked, names)? {
            heard[at] = answer;
        }
    }
    Ok(heard.into_iter().map(resolved).collect())
}

/// A search goes on where there is nothing of that name.
fn goes_on(heard: Option<&Heard>) -> bool {
    heard.is_none_or(|heard| heard.is_empty && matches!(heard.rcode, Rcode::NOERROR | Rcode::NXDOMAIN))
}

/// Asks the first server, and of what it does not answer the next.
fn ask_in_turn(
    sandbox: &Sandbox,
    asked: &Asked<'_>,
    mut names: Vec<(usize, Name)>,
) -> Result<Vec<(usize, Option<Heard>)>, String> {
    let mut answers = Vec::new();
    for &server in asked.servers {
        if names.is_empty() {
            break;
        }
        let ask = |(_, name): &(usize, Name)| Ask {
            server: SocketAddr::new(server, PORT),
            name: name.clone(),
            kind: asked.lookup.kind,
            via: asked.lookup.via,
            edns: asked.lookup.edns,
            // The case was tossed with the names.
            mixed_case: false,
        };
        let asks: Vec<Ask> = names.iter().map(ask).collect();
        let from = place(sandbox, &asked.lookup.from, server)?;
        let heard = sandbox.ask(&from, &asks, asked.lookup.parallel).map_err(words)?;
        let mut silent = Vec::new();
        for (name, heard) in names.into_iter().zip(heard) {
            match heard {
                Some(heard) => answers.push((name.0, Some(heard))),
                None => silent.push(name),
            }
        }
        names = silent;
    }
    Ok(answers)
}

/// Where the client is, by its address of the server's family.
fn place(sandbox: &Sandbox, from: &Host, server: IpAddr) -> Result<Place, String> {
    let address = match from {
        Host::Address(address) => Some(*address),
        Host::Object { namespace, name, .. } => {
            let pod = sandbox.topology().pods.get(format!("{namespace}/{name}").as_str());
            let addresses = pod.into_iter().flat_map(|pod| &pod.addresses);
            addresses.copied().find(|address| address.is_ipv4() == server.is_ipv4())
        }
        Host::Name(_) => None,
    };
    let address = address.ok_or_else(|| format!("{from} has no address to ask {server} from"))?;
    sandbox.place(address).map_err(words)
}

fn resolved(heard: Option<Heard>) -> Resolved {
    let Some(heard) = heard else { return Resolved::default() };
    Resolved { rcode: Some(heard.rcode), addresses: heard.addresses, ..Resolved::default() }
}
