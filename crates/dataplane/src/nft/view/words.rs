//! What a kernel rule tests, in words. The version of IP is left out: a rule of a
//! policy is written for both.

use crate::conntrack::protocol_of;
use crate::nft::expression::{Base, Expression, meta};
use crate::nft::read::Live;
use crate::nft::rule::peer_group;
use crate::nft::set::{self, Twins, Version, read_address};
use std::collections::BTreeMap;

/// How many addresses each group of peers has.
pub(super) struct Groups(BTreeMap<u32, usize>);

/// What was loaded last, and is tested next.
#[derive(Clone, Copy)]
enum Loaded {
    Nothing,
    Protocol,
    Port,
    Source,
    Destination,
}

impl Groups {
    pub(super) fn of(live: &Live) -> Self {
        let mut sizes = BTreeMap::new();
        for set in Version::BOTH.into_iter().filter_map(|version| live.sets.get(set::PEERS[version])) {
            for element in set.elements.iter() {
                if let Some((number, _)) = element.key.as_bytes().split_first_chunk::<4>() {
                    *sizes.entry(u32::from_ne_bytes(*number)).or_default() += 1;
                }
            }
        }
        Self(sizes)
    }

    pub(super) fn words(&self, expressions: &[Expression]) -> String {
        let mut words: Vec<String> = Vec::new();
        let mut loaded = Loaded::Nothing;
        for expression in expressions {
            match expression {
                Expression::Meta { key: meta::PROTOCOL, .. } => loaded = Loaded::Protocol,
                Expression::Meta { .. } => loaded = Loaded::Nothing,
                Expression::Payload { base, offset, length, .. } => loaded = loaded_by(*base, *offset, *length),
                Expression::Compare { equal, to, .. } => words.extend(compared(loaded, *equal, to)),
                Expression::Range { low, high, .. } => words.extend(between(loaded, low, high)),
                Expression::Lookup { set, .. } => words.push(self.looked_up(set, expressions)),
                _ => {}
            }
        }
        if words.is_empty() { "anything".to_owned() } else { words.join(" ") }
    }

    fn looked_up(&self, set: &str, expressions: &[Expression]) -> String {
        let is = |twins: Twins| set == twins.0 || set == twins.1;
        if is(set::PEERS) {
            let addresses = peer_group(expressions).and_then(|group| self.0.get(&group)).copied().unwrap_or_default();
            return format!("{addresses} addresses of pods");
        }
        match set {
            _ if is(set::LEASE) => "names".to_owned(),
            _ if is(set::NAMED) => "ports by name".to_owned(),
            _ => format!("@{set}"),
        }
    }
}

fn loaded_by(base: Base, offset: u32, length: u32) -> Loaded {
    match (base, offset, length) {
        (Base::Transport, 2, 2) => Loaded::Port,
        (Base::Network, 12, 4) | (Base::Network, 8, 16) => Loaded::Source,
        (Base::Network, 16, 4) | (Base::Network, 24, 16) => Loaded::Destination,
        _ => Loaded::Nothing,
    }
}

fn compared(loaded: Loaded, equal: bool, to: &[u8]) -> Option<String> {
    let not = if equal { "" } else { "not " };
    let value = match loaded {
        Loaded::Nothing => return None,
        Loaded::Protocol => protocol_of(*to.first()?).to_string(),
        Loaded::Port | Loaded::Source | Loaded::Destination => text(loaded, to)?,
    };
    Some(format!("{not}{value}"))
}

fn between(loaded: Loaded, low: &[u8], high: &[u8]) -> Option<String> {
    let last = match loaded {
        Loaded::Port => u16::from_be_bytes(high.try_into().ok()?).to_string(),
        _ => read_address(high)?.to_string(),
    };
    Some(format!("{}-{last}", text(loaded, low)?))
}

fn text(loaded: Loaded, value: &[u8]) -> Option<String> {
    Some(match loaded {
        Loaded::Port => format!("port {}", u16::from_be_bytes(value.try_into().ok()?)),
        Loaded::Source => format!("from {}", read_address(value)?),
        Loaded::Destination => format!("to {}", read_address(value)?),
        Loaded::Nothing | Loaded::Protocol => return None,
    })
}
