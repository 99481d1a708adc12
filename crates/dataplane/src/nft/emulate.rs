//! A kernel for tests: what the rules of a table make of one packet, and how many
//! expressions that takes. It knows what rules of ours use, and panics at the
//! rest.

use super::expression::{Base, Expression, FIRST, conntrack, family_number, meta, verdict};
use super::rule::Rule;
use super::set::{Element, Index, Key, Value, Version};
use super::table::{Fallback, Set, Table};
use std::net::IpAddr;

/// The first packet of a connection, as it comes to a base chain.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
    /// Of the connection: `conntrack::NEW`, or another.
    pub(crate) state: u32,
    pub(crate) mark: u32,
    /// True if the destination was changed.
    pub(crate) is_translated: bool,
}

impl Packet {
    pub(crate) fn tcp(source: &str, destination: &str, port: u16) -> Self {
        let address = |text: &str| text.parse().expect("an address");
        let (source, destination) = (address(source), address(destination));
        Self {
            source,
            destination,
            protocol: super::rule::TCP,
            port,
            state: conntrack::NEW,
            mark: 0,
            is_translated: false,
        }
    }

    pub(crate) fn udp(source: &str, destination: &str, port: u16) -> Self {
        Self { protocol: super::rule::UDP, ..Self::tcp(source, destination, port) }
    }
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: bool,
    pub(crate) expressions: usize,
    /// Of these, look-ups in sets and maps.
    pub(crate) lookups: usize,
}

/// What a rule, or a chain, says.
enum Outcome {
    Next,
    Accept,
    Drop,
    Return,
    To { chain: String, returns: bool },
}

struct Run<'a> {
    table: &'a Table,
    packet: &'a Packet,
    seen: Seen,
    /// For whom the packet is counted: the comments of counters, and of rules that count.
    counted: Vec<String>,
}

/// Sends a packet through one base chain.
pub(crate) fn send(table: &Table, base: &str, packet: &Packet) -> Seen {
    send_counted(table, base, packet).0
}

/// The same, and for whom the packet is counted.
pub(crate) fn send_counted(table: &Table, base: &str, packet: &Packet) -> (Seen, Vec<String>) {
    let mut run = Run { table, packet, seen: Seen::default(), counted: Vec::new() };
    let chain = &table.chains[base];
    let fallback = chain.hook.as_ref().expect("packets come in at a hook").fallback;
    let accepted = run.chain(base).unwrap_or(fallback == Fallback::Accept);
    (Seen { accepted, ..run.seen }, run.counted)
}

impl Run<'_> {
    /// Whether the packet is accepted; None if the chain does not say.
    fn chain(&mut self, name: &str) -> Option<bool> {
        let table = self.table;
        let rules = &table.chains.get(name).unwrap_or_else(|| panic!("there is no chain {name}")).rules;
        for rule in rules {
            match self.rule(rule) {
                Outcome::Next => {}
                Outcome::Accept => return Some(true),
                Outcome::Drop => return Some(false),
                Outcome::Return => return None,
                Outcome::To { chain, returns } => match self.chain(&chain) {
                    None if returns => {}
                    said => return said,
                },
            }
        }
        None
    }

    fn rule(&mut self, rule: &Rule) -> Outcome {
        let mut registers = [0; 128];
        for expression in &rule.expressions() {
            self.seen.expressions += 1;
            let at = |register: u32| (register - FIRST) as usize * 4;
            let mut load = |into: u32, value: &[u8]| registers[at(into)..at(into) + value.len()].copy_from_slice(value);
            match expression {
                Expression::Payload { into, base, offset, length } => {
                    load(*into, &self.payload(*base, *offset, *length))
                }
                Expression::Meta { into, key } => load(*into, &self.meta(*key)),
                Expression::Conntrack { into, key: conntrack::STATE, .. } => {
                    load(*into, &self.packet.state.to_ne_bytes())
                }
                Expression::Conntrack { into, key: conntrack::STATUS, .. } => {
                    let status = if self.packet.is_translated { conntrack::TRANSLATED } else { 0 };
                    load(*into, &status.to_ne_bytes())
                }
                Expression::Bitwise { register, mask, flip } => {
                    for (index, (mask, flip)) in mask.iter().zip(flip).enumerate() {
                        let byte = &mut registers[at(*register) + index];
                        *byte = *byte & mask ^ flip;
                    }
                }
                Expression::Compare { register, equal, to } => {
                    if (registers[at(*register)..].starts_with(to)) != *equal {
                        return Outcome::Next;
                    }
                }
                Expression::Range { register, low, high } => {
                    let value = &registers[at(*register)..at(*register) + low.len()];
                    if value < low.as_slice() || value > high.as_slice() {
                        return Outcome::Next;
                    }
                }
                Expression::Lookup { set, register } => {
                    if self.look_up(set, &registers[at(*register)..]).is_none() {
                        return Outcome::Next;
                    }
                }
                Expression::CountIn { map, register } => {
                    let Some(Value::Counter(name)) =
                        self.look_up(map, &registers[at(*register)..]).map(|one| one.value)
                    else {
                        return Outcome::Next;
                    };
                    self.counted.push(self.table.counters[name.as_str()].clone());
                }
                Expression::Dispatch { map, register } => {
                    let Some(Value::Goto(chain)) = self.look_up(map, &registers[at(*register)..]).map(|one| one.value)
                    else {
                        return Outcome::Next;
                    };
                    return Outcome::To { chain: *chain, returns: false };
                }
                Expression::Verdict { code: verdict::ACCEPT, .. } => return Outcome::Accept,
                Expression::Verdict { code: verdict::DROP, .. } | Expression::Reset => return Outcome::Drop,
                Expression::Verdict { code: verdict::RETURN, .. } => return Outcome::Return,
                Expression::Verdict { code, chain: Some(chain) } => {
                    return Outcome::To { chain: chain.clone(), returns: *code == verdict::JUMP };
                }
                Expression::Counter => self.counted.extend(rule.comment.clone()),
                Expression::Limit { .. } | Expression::Log { .. } => {}
                other => panic!("no test needs {other:?}"),
            }
        }
        Outcome::Next
    }

    fn meta(&self, key: u32) -> Vec<u8> {
        match key {
            meta::FAMILY => vec![family_number(self.packet.source.is_ipv4())],
            meta::PROTOCOL => vec![self.packet.protocol],
            meta::MARK => self.packet.mark.to_ne_bytes().to_vec(),
            other => panic!("no test needs meta {other}"),
        }
    }

    fn payload(&self, base: Base, offset: u32, length: u32) -> Vec<u8> {
        let Packet { source, destination, port, .. } = self.packet;
        let address = |one: &IpAddr| Key::default().address(*one).as_bytes().to_vec();
        match (base, offset, length) {
            (Base::Network, 12, 4) | (Base::Network, 8, 16) => address(source),
            (Base::Network, 16, 4) | (Base::Network, 24, 16) => address(destination),
            (Base::Network, 7, 1) => vec![64],
            (Base::Transport, 0, 2) => 1000_u16.to_be_bytes().to_vec(),
            (Base::Transport, 2, 2) => port.to_be_bytes().to_vec(),
            // The flags of a SYN.
            (Base::Transport, 13, 1) => vec![2],
            other => panic!("no test needs the payload {other:?}"),
        }
    }

    fn look_up(&mut self, name: &str, registers: &[u8]) -> Option<Element> {
        self.seen.lookups += 1;
        let Set { spec, elements } = &self.table.sets[name];
        let key = Key::from_bytes(&registers[..spec.key_length() as usize]).expect("keys are short");
        if !spec.interval {
            return elements.get(Index { key, ends_interval: false });
        }
        if spec.key.len() > 1 {
            let is_within = |one: &Element| one.key <= key && one.key_end.as_ref().is_some_and(|end| key <= **end);
            return elements.iter().find(is_within);
        }
        // The last end at or before the address says whether it is in an interval.
        let before = elements.iter().filter(|element| element.key <= key);
        before.max_by_key(|element| (element.key, !element.ends_interval)).filter(|last| !last.ends_interval)
    }
}

/// Both directions of a new connection from pod to pod.
pub(crate) fn forward(table: &Table, packet: &Packet) -> Seen {
    let egress = send(table, "egress-forward", packet);
    if !egress.accepted {
        return egress;
    }
    let ingress = send(table, "ingress-forward", packet);
    let (expressions, lookups) = (egress.expressions + ingress.expressions, egress.lookups + ingress.lookups);
    Seen { accepted: ingress.accepted, expressions, lookups }
}

/// The first address of a version, for tests that speak both.
pub(crate) fn example(version: Version, last: u8) -> String {
    match version {
        Version::V4 => format!("10.0.0.{last}"),
        Version::V6 => format!("fd00::{last}"),
    }
}
