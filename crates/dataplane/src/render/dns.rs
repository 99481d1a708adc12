//! Pods' questions to any DNS server are taken to ours, on the node, where
//! what the answers open is learned.
//!
//! ```text
//! prerouting  dns-policy  may the pod open this connection?   as in forward, since after it nobody can tell any more
//! prerouting  dns         ─► the node's own server            instead of what kube-proxy would do
//! input       egress      it is one of these: accept
//! ```
//! A Service's address is no destination that a policy speaks of: which pod
//! may ask which Service is settled beforehand, by its backends (`asker`). One
//! that may not, and one for which only some backends are open, goes the usual
//! way: to a backend, and is judged there.
//!
//! All of it holds only while the set `alive` has its elements, which go by
//! themselves if nobody renews them: then questions go to the servers they
//! were meant for, and nothing new opens.

use super::elements::{Placed, Pods};
use super::rules::protocol_number;
use super::stages::Mode;
use super::{Render, Scope};
use crate::nft::rule::{Action as Do, End, Rule, TCP, Test, UDP};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Version};
use crate::nft::table::{Hook, HookKind, Point, Table};
use namewall_policy::program::{Member, Resolver};
use namewall_policy::{Flow, Instant, LeaseTable, Program, Verdict, evaluate};
use std::net::IpAddr;

/// Before anybody else's destination NAT, and what judges before that.
const TAKEN_AT: i32 = -105;
const JUDGED_AT: i32 = -110;
/// The port DNS is asked at.
pub(crate) const DNS: u16 = 53;

const TAKE: &str = "dns/take";
const TO: &str = "dns/to";
const TAKEN: &str = "dns/taken";

/// Where pods' questions are taken to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intercept {
    /// At least one that is meant for no server in particular, for each version of IP that pods ask over.
    pub listeners: Vec<Listener>,
}

/// An address of the node where our server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    /// The server that questions from here are meant for, which is trusted.
    pub server: Option<IpAddr>,
}

impl Intercept {
    /// Whether our server is asked at this address and port.
    pub(crate) fn is_at(&self, address: IpAddr, port: u16) -> bool {
        self.listeners.iter().any(|listener| (listener.address, listener.port) == (address, port))
    }

    fn ports(&self) -> Option<(u16, u16)> {
        let ports = || self.listeners.iter().map(|listener| listener.port);
        ports().min().zip(ports().max())
    }

    fn is_trusted(&self, server: IpAddr) -> bool {
        self.listeners.iter().any(|listener| listener.server == Some(server))
    }
}

/// Whether a pod may ask a Service, whichever of its backends would answer.
pub(crate) fn may_ask(program: &Program, from: IpAddr, resolver: &Resolver) -> bool {
    let nothing = LeaseTable::default();
    let open = |&(address, port): &(IpAddr, u16)| {
        let flow = Flow {
            from: program.endpoint_at(from),
            hop: None,
            to: program.endpoint_at(address),
            protocol: resolver.protocol,
            port,
            via: Some(resolver.service),
        };
        evaluate(program, &nothing, &flow, Instant::default()).verdict == Verdict::Allow
    };
    !resolver.backends.is_empty() && resolver.backends.iter().all(open)
}

impl Render<'_> {
    pub(super) fn dns_sets(&self, table: &mut Table) {
        let Some(intercept) = &self.scope.dns else { return };
        table.set(SetSpec::new(set::ALIVE, &[Field::Protocol], Holds::Keys).timeout());
        for version in Version::BOTH {
            let address = Field::Address(version);
            table.set(SetSpec::new(set::RESOLVERS[version], &[address, Field::Protocol], Holds::Keys));
            table.set(SetSpec::new(set::ASKERS[version], &[address, address, Field::Protocol], Holds::Keys));
            table.set(SetSpec::new(set::SERVERS[version], &[address], Holds::Keys));
        }
        for resolver in &self.program.resolvers {
            let version = Version::of(resolver.address);
            let key = Key::default().address(resolver.address).protocol(protocol_number(resolver.protocol));
            if let Some(set) = table.sets.get_mut(set::RESOLVERS[version]) {
                set.insert(Element::key(key));
            }
            if !intercept.is_trusted(resolver.address) {
                continue;
            }
            // Whoever answers for a server that we ask must not be sent back to us.
            for (address, _) in &resolver.backends {
                if let Some(set) = table.sets.get_mut(set::SERVERS[Version::of(*address)]) {
                    set.insert(Element::key(Key::default().address(*address)));
                }
            }
        }
    }

    /// Judges questions before they are taken.
    pub(super) fn dns_policy(&self, table: &mut Table, mode: Mode) {
        if self.scope.dns.is_none() {
            return;
        }
        let (egress, _) = mode.walks();
        let (base, chain) = (format!("{}dns-policy", mode.prefix()), format!("{}dns-policy/new", mode.prefix()));
        let policy = table.chains.entry(base).or_default();
        let priority = JUDGED_AT + i32::from(mode == Mode::Audit);
        policy.hook = Some(Hook { point: Point::Prerouting, priority, kind: HookKind::Filter });
        policy.rules = vec![Rule::new([Test::AsksDns, Test::New], Do::Jump(chain.clone()))];
        let mut rules = Vec::new();
        for version in Version::BOTH {
            rules.extend(self.not_taken(version));
            rules.push(Rule::new([Test::Resolver { version, asked: false }], Do::Accept));
            let end = End::Source;
            rules.push(Rule::new([], Do::Dispatch { end, version, walk: egress }));
        }
        table.chains.entry(chain).or_default().rules = rules;
        let Some(input) = table.chains.get_mut(&format!("{}egress-input", mode.prefix())) else { return };
        let Some((low, high)) = self.scope.dns.as_ref().and_then(Intercept::ports) else { return };
        // After the rules about connections that exist; before the node is judged as a destination.
        let at = input.rules.iter().position(|rule| rule.tests.contains(&Test::Translated)).unwrap_or(0);
        let taken = Rule::new([Test::Translated, Test::Port { low, high }], Do::Jump(TAKEN.to_owned()));
        input.rules.insert(at, taken);
    }

    /// Whose questions go their own way.
    fn not_taken(&self, version: Version) -> [Rule; 2] {
        let within = |end, set: set::Twins| Test::Within { end, version, set: set[version].to_owned() };
        [
            Rule::new([within(End::Source, set::SERVERS)], Do::Accept).about("answers for a server that we ask"),
            // It is judged where it is, by its own policies.
            Rule::new([within(End::Destination, set::PODS)], Do::Accept),
        ]
    }

    pub(super) fn dns_chains(&self, table: &mut Table) {
        let Some(intercept) = &self.scope.dns else { return };
        let base = table.chains.entry("dns".to_owned()).or_default();
        base.hook = Some(Hook { point: Point::Prerouting, priority: TAKEN_AT, kind: HookKind::Nat });
        base.rules = vec![Rule::new([Test::AsksDns], Do::Jump(TAKE.to_owned()))];
        let take = Version::BOTH.into_iter().flat_map(|version| {
            let [servers, pods] = self.not_taken(version);
            let to = || Do::Goto(TO.to_owned());
            [
                servers,
                pods,
                Rule::new([Test::Asker { version, asked: false }], to()),
                Rule::new([Test::Resolver { version, asked: false }], Do::Accept),
                Rule::new([Test::Local(version)], to()),
            ]
        });
        table.chains.entry(TAKE.to_owned()).or_default().rules = take.collect();
        let rule = |listener: &Listener| {
            let Listener { address, port, server } = *listener;
            let test = match server {
                Some(server) => Test::Between { end: End::Destination, low: server, high: server },
                None => Test::Version(Version::of(address)),
            };
            Rule::new([test], Do::TranslateTo { address, port })
        };
        // A server over the other version of IP cannot be told apart once its question is taken: the usual ones are asked.
        let is_possible = |one: &&Listener| one.server.is_none_or(|server| server.is_ipv4() == one.address.is_ipv4());
        let (meant, usual): (Vec<&Listener>, Vec<&Listener>) =
            intercept.listeners.iter().filter(is_possible).partition(|listener| listener.server.is_some());
        table.chains.entry(TO.to_owned()).or_default().rules = meant.into_iter().chain(usual).map(rule).collect();
        let taken = Version::BOTH.into_iter().flat_map(|version| {
            [
                Rule::new([Test::Asker { version, asked: true }], Do::Accept),
                // Somebody's Service has brought it here, not we.
                Rule::new([Test::Resolver { version, asked: true }], Do::Return),
            ]
        });
        let asked = Rule::new([Test::AskedPort(DNS)], Do::Accept);
        table.chains.entry(TAKEN.to_owned()).or_default().rules = taken.chain([asked]).collect();
    }
}

impl Pods<'_> {
    /// Which Services the pod at this address may ask.
    pub(super) fn asks(&self, address: IpAddr, member: &Member, out: &mut Vec<Placed>) {
        if self.scope.dns.is_none() || !self.scope.judges(member) {
            return;
        }
        let version = Version::of(address);
        for resolver in self.program.resolvers.iter().filter(|one| Version::of(one.address) == version) {
            if may_ask(self.program, address, resolver) {
                let key = Key::default().address(address).address(resolver.address);
                let key = key.protocol(protocol_number(resolver.protocol));
                out.push((set::ASKERS[version], Element::key(key)));
            }
        }
    }
}

impl Scope {
    /// The protocols DNS is asked over, which are alive or not.
    pub(crate) const ASKED_OVER: [u8; 2] = [TCP, UDP];
}
