//! A scenario's lookups with packets, as a pod's own resolver makes them, and
//! the connections it opens with the answers.

use super::words;
use crate::dns::{Ask, Heard, Opening, PORT, Questions};
use crate::listen::Listen;
use crate::probe::{Measured, ProbeSource};
use crate::sandbox::Sandbox;
use namewall_policy::Prediction;
use namewall_policy::ask::Host;
use namewall_policy::port::Protocol;
use namewall_scenario::zones::{Name, Rcode};
use namewall_scenario::{Lookup, Resolved, Then};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a connection has that should open; TCP would ask again after a second.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(900);

/// Which names are looked up, and where.
#[derive(Clone, Copy)]
pub(super) struct LookupQuestion<'a> {
    pub lookup: &'a Lookup,
    pub names: &'a [Name],
    pub server: IpAddr,
}

/// Whatever address an answer has, if anybody has it, somebody listens there.
pub(super) fn listen(sandbox: &mut Sandbox, then: &Then) -> Result<(), String> {
    if then.protocol == Protocol::Icmp {
        return Ok(());
    }
    let spoken_of = sandbox.name_servers().map(|servers| servers.addresses()).unwrap_or_default();
    let held = spoken_of.into_iter().filter(|&address| sandbox.place(address).is_ok());
    let listen = |address| Listen { address, protocol: then.protocol, port: then.port };
    let wanted: Vec<Listen> = held.map(listen).collect();
    sandbox.ensure_listening(&wanted).map_err(words)
}

pub(super) fn resolve(sandbox: &Sandbox, asked: &LookupQuestion<'_>) -> Result<Vec<Resolved>, String> {
    let addresses = addresses(sandbox, &asked.lookup.from);
    let from = place(sandbox, asked, &addresses)?;
    let then = asked.lookup.then.as_ref().map(|then| Opening {
        protocol: then.protocol,
        port: then.port,
        sources: addresses,
        timeout: if then.expect.verdict == Prediction::Allow { CONNECT_TIMEOUT } else { sandbox.timeout },
    });
    let mut heard: Vec<Option<Heard>> = vec![None; asked.names.len()];
    let suffixes = asked.lookup.search.iter().map(Some).chain([None]);
    for suffix in suffixes {
        let (mut at, mut asks) = (Vec::new(), Vec::new());
        for (number, name) in asked.names.iter().enumerate().filter(|(at, _)| goes_on(heard[*at].as_ref())) {
            if let Some(name) = suffix.map_or(Some(name.clone()), |suffix| name.followed_by(suffix)) {
                at.push(number);
                asks.push(ask(asked, name));
            }
        }
        let questions = Questions { asks: &asks, at_once: asked.lookup.parallel, then: then.as_ref() };
        let answers = sandbox.ask_and_open(&from, &questions).map_err(words)?;
        at.into_iter().zip(answers).for_each(|(at, answer)| heard[at] = answer);
    }
    Ok(heard.into_iter().map(|heard| resolved(heard, then.is_some())).collect())
}

/// A search goes on where there is nothing of that name.
fn goes_on(heard: Option<&Heard>) -> bool {
    heard.is_none_or(|heard| heard.is_empty && matches!(heard.rcode, Rcode::NOERROR | Rcode::NXDOMAIN))
}

fn ask(asked: &LookupQuestion<'_>, name: Name) -> Ask {
    Ask {
        server: SocketAddr::new(asked.server, PORT),
        name,
        kind: asked.lookup.kind,
        via: asked.lookup.via,
        edns: asked.lookup.edns,
        // The case was tossed with the names.
        mixed_case: false,
    }
}

/// The client's addresses.
fn addresses(sandbox: &Sandbox, from: &Host) -> Vec<IpAddr> {
    match from {
        Host::Address(address) => vec![*address],
        Host::Object { namespace, name, .. } => {
            let pod = sandbox.topology().pods.get(format!("{namespace}/{name}").as_str());
            pod.map(|pod| pod.addresses.clone()).unwrap_or_default()
        }
        Host::Name(_) | Host::Absolute(_) => Vec::new(),
    }
}

/// Where the client is, by its address of the server's family.
fn place(sandbox: &Sandbox, asked: &LookupQuestion<'_>, addresses: &[IpAddr]) -> Result<ProbeSource, String> {
    let address = addresses.iter().copied().find(|address| address.is_ipv4() == asked.server.is_ipv4());
    let (from, server) = (&asked.lookup.from, asked.server);
    let address = address.ok_or_else(|| format!("{from} has no address to ask {server} from"))?;
    sandbox.place(address).map_err(words)
}

fn resolved(heard: Option<Heard>, opens: bool) -> Resolved {
    let Some(heard) = heard else { return Resolved::default() };
    let reached = heard.reached.into_iter().map(|(address, measured)| (address, measured == Measured::Open));
    let reached = opens.then(|| reached.collect());
    Resolved { rcode: Some(heard.rcode), addresses: heard.addresses, reached, ..Resolved::default() }
}
