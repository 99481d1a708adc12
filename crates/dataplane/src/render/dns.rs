//! Pods' questions to any DNS server are taken to ours, on the node, where
//! what the answers open is learned.
//!
//! ```text
//! prerouting  dns-policy  may the pod open this connection?   as in forward, since after it nobody can tell any more
//! prerouting  dns         ─► the node's own server            instead of what kube-proxy would do
//! input       egress      it is one of these: accept
//! input       egress      any other packet to a port of our server: drop (`own_dns`)
//! ```
//! A Service's address is no destination that a policy speaks of: which pod
//! may ask which Service is settled beforehand, by its backends (`asker`). One
//! that may not, and one for which only some backends are open, goes the usual
//! way: to a backend, and is judged there.
//!
//! Questions of the pods behind an upstream are not intercepted: they would
//! loop. A node's own question to those pods is always allowed, since the pod
//! that it asks for was judged before:
//!
//! ```text
//! forward  ingress  from a node, to who answers for a server that we ask, at its port: accept
//! ```
//! Questions are taken only while the set `alive` has its elements, which go by
//! themselves if nobody renews them: then questions go to the servers they
//! were meant for, and nothing new opens. They are judged all the same.

use super::elements::{Placed, Pods};
use super::rules::protocol_number;
use super::stages::Mode;
use super::{Render, Scope, own_dns};
use crate::nft::rule::{Action as Do, End, Rule, TCP, Test, UDP};
use crate::nft::set::{self, Element, Field, Holds, Key, SetSpec, Version};
use crate::nft::table::{Fallback, Hook, HookKind, Point, Table};
use namewall_policy::port::Protocol;
use namewall_policy::program::{Member, Resolver};
use namewall_policy::{Flow, Instant, LeaseTable, Program, Verdict, evaluate};
use std::collections::BTreeSet;
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
    /// Whom our server asks, in pods' stead.
    pub servers: Vec<IpAddr>,
}

/// An address of the node where our server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    /// The server that questions from here are meant for, which is trusted.
    pub server: Option<IpAddr>,
}

/// Who answers for a server that we ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answerer {
    pub(crate) address: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
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

    /// Who answers for the servers that we ask: the backends of a Service, or a pod itself.
    fn answering<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = Answerer> + 'a {
        let asked = program.resolvers.iter().filter(|resolver| self.servers.contains(&resolver.address));
        let backends = asked.flat_map(|resolver| {
            let answerer = |&(address, port): &_| Answerer { address, protocol: resolver.protocol, port };
            resolver.backends.iter().map(answerer)
        });
        let pods = self.servers.iter().copied().filter(|&server| program.class_at(server).is_some());
        let pods = pods.flat_map(|address| {
            [Protocol::Udp, Protocol::Tcp].map(|protocol| Answerer { address, protocol, port: DNS })
        });
        backends.chain(pods)
    }

    /// Whether a node asks a server there in a pod's stead.
    pub(crate) fn asks(&self, program: &Program, from: IpAddr, to: Answerer) -> bool {
        program.is_node_address(from) && self.answering(program).any(|one| one == to)
    }
}

/// Whether a pod may ask the Service at an address, whichever of its backends would answer; None if there is no such
/// Service. Where two claim the same, nobody can tell which is meant, and a tenant must not open what the other's closes.
pub(crate) fn may_ask(program: &Program, from: IpAddr, server: IpAddr, protocol: Protocol) -> Option<bool> {
    let nothing = LeaseTable::default();
    let open = |resolver: &Resolver, (address, port): (IpAddr, u16)| {
        let flow = Flow {
            from: program.endpoint_at(from),
            hop: None,
            masker: None,
            to: program.endpoint_at(address),
            protocol: resolver.protocol,
            port,
            via: Some(resolver.service),
        };
        evaluate(program, &nothing, &flow, Instant::default()).verdict == Verdict::Allow
    };
    let all_open = |one: &Resolver| !one.backends.is_empty() && one.backends.iter().all(|&backend| open(one, backend));
    let mut claims =
        program.resolvers.iter().filter(|one| one.address == server && one.protocol == protocol).peekable();
    claims.peek()?;
    Some(claims.all(all_open))
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
        }
        for Answerer { address, .. } in intercept.answering(self.program) {
            if let Some(set) = table.sets.get_mut(set::SERVERS[Version::of(address)]) {
                set.insert(Element::key(Key::default().address(address)));
            }
        }
    }

    /// Judges questions before they are taken.
    pub(super) fn dns_policy(&self, table: &mut Table, mode: Mode) {
        let Some(intercept) = &self.scope.dns else { return };
        self.let_nodes_ask(table, intercept, mode);
        let (egress, _) = mode.walks();
        let (base, chain) = (format!("{}dns-policy", mode.prefix()), format!("{}dns-policy/new", mode.prefix()));
        let policy = table.chains.entry(base).or_default();
        let priority = JUDGED_AT + i32::from(mode == Mode::Audit);
        let (point, kind) = (Point::Prerouting, HookKind::Filter);
        policy.hook = Some(Hook { point, device: None, priority, kind, fallback: mode.fallback() });
        // Whether our server lives or not: if it came to life between this hook and the next, the question would be
        // taken, and nobody would have judged it.
        let asks = |protocol| [Test::Port { low: DNS, high: DNS }, Test::Protocol(protocol), Test::New];
        policy.rules = Scope::ASKED_OVER.map(|one| Rule::new(asks(one), Do::Goto(chain.clone()))).to_vec();
        policy.rules.push(Rule::new([], Do::Accept));
        let mut rules = Vec::new();
        for version in Version::BOTH {
            rules.extend(self.not_taken(version, &mode.allowance()));
            rules.push(Rule::new([Test::Resolver { version, asked: false }], mode.allowance()));
            let end = End::Source;
            rules.push(Rule::new([], Do::Dispatch { end, version, walk: egress }));
        }
        rules.push(Rule::new([], mode.allowance()));
        table.chains.entry(chain).or_default().rules = rules;
        let Some(input) = table.chains.get_mut(&format!("{}egress-input", mode.prefix())) else { return };
        let Some((low, high)) = intercept.ports() else { return };
        // After the rules about connections that exist; before the node is judged as a destination.
        let at = input.rules.iter().position(|rule| rule.tests.contains(&Test::Translated)).unwrap_or(0);
        let taken = Rule::new([Test::Translated, Test::Port { low, high }], Do::Jump(TAKEN.to_owned()));
        input.rules.insert(at, taken);
        if mode == Mode::Enforce {
            input.rules.insert(at + 1, own_dns::leads_there(low, high));
            self.own_dns_chain(table, intercept);
        }
    }

    /// Before the policies of whoever answers are asked, which know pods and not who asks in their stead.
    fn let_nodes_ask(&self, table: &mut Table, intercept: &Intercept, mode: Mode) {
        let Some(chain) = table.chains.get_mut(&format!("{}ingress-forward", mode.prefix())) else { return };
        let answering = intercept.answering(self.program);
        let ports: BTreeSet<(u8, u16)> = answering.map(|one| (protocol_number(one.protocol), one.port)).collect();
        let at = chain.rules.iter().position(|rule| rule.tests.contains(&Test::Translated)).unwrap_or(0);
        for (protocol, port) in ports {
            for version in Version::BOTH {
                let within = |end, set: set::Twins| Test::Within { end, version, set: set[version].to_owned() };
                let (from, to) = (within(End::Source, set::NODES), within(End::Destination, set::SERVERS));
                let asks = [Test::Protocol(protocol), Test::Port { low: port, high: port }, from, to];
                chain.rules.insert(at, Rule::new(asks, mode.allowance()).about("asks in a pod's stead"));
            }
        }
    }

    /// Whose questions go their own way.
    fn not_taken(&self, version: Version, then: &Do) -> [Rule; 2] {
        let within = |end, set: set::Twins| Test::Within { end, version, set: set[version].to_owned() };
        [
            Rule::new([within(End::Source, set::SERVERS)], then.clone()).about("answers for a server that we ask"),
            // It is judged where it is, by its own policies.
            Rule::new([within(End::Destination, set::PODS)], then.clone()),
        ]
    }

    pub(super) fn dns_chains(&self, table: &mut Table) {
        let Some(intercept) = &self.scope.dns else { return };
        let base = table.chains.entry("dns".to_owned()).or_default();
        base.hook = Some(Hook {
            point: Point::Prerouting,
            device: None,
            priority: TAKEN_AT,
            kind: HookKind::Nat,
            fallback: Fallback::Accept,
        });
        base.rules = vec![Rule::new([Test::AsksDns], Do::Jump(TAKE.to_owned()))];
        let take = Version::BOTH.into_iter().flat_map(|version| {
            let [servers, pods] = self.not_taken(version, &Do::Accept);
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
            // nft reads a port to translate to only after a test of the protocol.
            let to =
                move |protocol| Rule::new([test.clone(), Test::Protocol(protocol)], Do::TranslateTo { address, port });
            Scope::ASKED_OVER.map(to)
        };
        // A server over the other version of IP cannot be told apart once its question is taken: the usual ones are asked.
        let is_possible = |one: &&Listener| one.server.is_none_or(|server| server.is_ipv4() == one.address.is_ipv4());
        let (meant, usual): (Vec<&Listener>, Vec<&Listener>) =
            intercept.listeners.iter().filter(is_possible).partition(|listener| listener.server.is_some());
        table.chains.entry(TO.to_owned()).or_default().rules = meant.into_iter().chain(usual).flat_map(rule).collect();
        let taken = Version::BOTH.into_iter().flat_map(|version| {
            [
                Rule::new([Test::Asker { version, asked: true }], Do::Accept),
                // Somebody's Service has brought it here, not we.
                Rule::new([Test::Resolver { version, asked: true }], Do::Return),
            ]
        });
        let asked = Scope::ASKED_OVER.map(|one| Rule::new([Test::Protocol(one), Test::AskedPort(DNS)], Do::Accept));
        table.chains.entry(TAKEN.to_owned()).or_default().rules = taken.chain(asked).collect();
    }
}

impl Pods<'_> {
    /// The pod at this address has its questions taken; which Services it may ask.
    pub(super) fn asks(&self, address: IpAddr, member: &Member, out: &mut Vec<Placed>) {
        let version = Version::of(address);
        if self.numbers.knows_local && self.scope.judges(member) {
            out.push((set::LOCAL[version], Element::key(Key::default().address(address))));
        }
        if self.scope.dns.is_none() || !self.scope.judges(member) {
            return;
        }
        for resolver in self.program.resolvers.iter().filter(|one| Version::of(one.address) == version) {
            if may_ask(self.program, address, resolver.address, resolver.protocol) == Some(true) {
                let key = Key::default().address(address).address(resolver.address);
                let key = key.protocol(protocol_number(resolver.protocol));
                out.push((set::ASKERS[version], Element::key(key)));
            }
        }
    }
}

impl Scope {
    /// The protocols DNS is asked over, which are alive or not; the usual one first.
    pub(crate) const ASKED_OVER: [u8; 2] = [UDP, TCP];
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::model::ServiceId;

    #[test]
    fn s10_1_a_second_claim_on_a_servers_address_opens_nothing() {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let (server, protocol) = (address(53), Protocol::Udp);
        let claim = |backends| Resolver { service: ServiceId(0), address: server, protocol, backends };
        let mut program = Program::default();
        assert_eq!(may_ask(&program, address(1), server, protocol), None);
        program.resolvers.push(claim(vec![(address(2), 53)]));
        assert_eq!(may_ask(&program, address(1), server, protocol), Some(true));
        program.resolvers.push(claim(Vec::new()));
        assert_eq!(may_ask(&program, address(1), server, protocol), Some(false), "whichever of the two is meant");
    }
}
