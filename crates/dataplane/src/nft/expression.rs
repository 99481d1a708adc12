//! The expressions of a kernel rule: small instructions over registers. Each
//! can be written for the kernel and read back from it, so that what the
//! kernel has can be compared with what was meant.

// What is read back may be of another program, or of another version: it must not make this code panic.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::wire::{self, LIST_ELEMENT, data};
use crate::netlink::{Attributes, Messages};

/// Registers as they are numbered in four-byte steps. A value longer than that takes the next ones too.
pub(crate) const FIRST: u32 = 8;
const VERDICT: u32 = 0;
/// The kinds of `reject` are numbered.
const TCP_RESET: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expression {
    Payload {
        into: u32,
        base: Base,
        offset: u32,
        length: u32,
    },
    Meta {
        into: u32,
        key: u32,
    },
    Conntrack {
        into: u32,
        key: u32,
        original: bool,
    },
    /// Loads 1 if the packet has this option or extension header, else 0.
    Present {
        into: u32,
        what: Extension,
    },
    /// Keeps the bits of `mask`, then turns those of `flip` over.
    Bitwise {
        register: u32,
        mask: Vec<u8>,
        flip: Vec<u8>,
    },
    Compare {
        register: u32,
        equal: bool,
        to: Vec<u8>,
    },
    Range {
        register: u32,
        low: Vec<u8>,
        high: Vec<u8>,
    },
    /// Goes on only if the key is there.
    Lookup {
        set: String,
        register: u32,
    },
    /// Looks a counter up, which counts the packet; goes on only if there is one.
    CountIn {
        map: String,
        register: u32,
    },
    /// Looks the verdict up.
    Dispatch {
        map: String,
        register: u32,
    },
    Load {
        into: u32,
        value: Vec<u8>,
    },
    Verdict {
        code: i32,
        chain: Option<String>,
    },
    Counter,
    Log {
        group: u16,
        prefix: String,
    },
    Limit {
        a_second: u64,
        burst: u32,
    },
    /// Changes the destination; registers of the address and of the port.
    TranslateDestination {
        family: u8,
        address: u32,
        port: u32,
    },
    /// Answers a TCP packet with a reset, and drops it.
    Reset,
    /// Takes the outgoing interface's address as the source.
    Masquerade,
    /// Counts from 0 up to `below`, over and over.
    Turn {
        into: u32,
        below: u32,
    },
    /// Something that is not ours.
    Unknown(String),
}

/// Parts of IP headers that not every packet has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extension {
    /// The IPv4 option by which routers look at a packet that is not for them.
    RouterAlert,
    /// The IPv6 header that names further hops.
    Routing,
}

impl Extension {
    /// The kernel's numbers: of the option or header, and of what it is a part of.
    fn numbers(self) -> (u8, u32) {
        match self {
            Self::RouterAlert => (148, 2),
            Self::Routing => (43, 0),
        }
    }
}

/// The flag of `exthdr` that asks only whether there is one.
const IS_PRESENT: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    Link = 0,
    Network = 1,
    Transport = 2,
}

pub(crate) mod meta {
    pub(crate) const MARK: u32 = 3;
    pub(crate) const INPUT_INTERFACE: u32 = 4;
    pub(crate) const OUTPUT_INTERFACE: u32 = 5;
    pub(crate) const INPUT_LINK_TYPE: u32 = 8;
    pub(crate) const OUTPUT_LINK_TYPE: u32 = 9;
    pub(crate) const ROUTE_CLASS: u32 = 13;
    pub(crate) const FAMILY: u32 = 15;
    pub(crate) const PROTOCOL: u32 = 16;
}

pub(crate) mod conntrack {
    pub(crate) const STATE: u32 = 0;
    pub(crate) const STATUS: u32 = 2;
    pub(crate) const PORT: u32 = 12;
    pub(crate) const DESTINATION_V4: u32 = 20;
    pub(crate) const DESTINATION_V6: u32 = 22;
    pub(crate) const ESTABLISHED: u32 = 2;
    pub(crate) const RELATED: u32 = 4;
    pub(crate) const NEW: u32 = 8;
    pub(crate) const TRANSLATED: u32 = 1 << 5;
}

pub(crate) mod verdict {
    pub(crate) const DROP: i32 = 0;
    pub(crate) const ACCEPT: i32 = 1;
    pub(crate) const JUMP: i32 = -3;
    pub(crate) const GOTO: i32 = -4;
    pub(crate) const RETURN: i32 = -5;
}

impl Expression {
    pub(crate) fn write(&self, out: &mut Messages) {
        out.nested(LIST_ELEMENT, |out| {
            out.text(1, self.name());
            out.nested(2, |out| self.write_attributes(out));
        });
    }

    fn name(&self) -> &str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta { .. } => "meta",
            Self::Conntrack { .. } => "ct",
            Self::Present { .. } => "exthdr",
            Self::Bitwise { .. } => "bitwise",
            Self::Compare { .. } => "cmp",
            Self::Range { .. } => "range",
            Self::Lookup { .. } | Self::Dispatch { .. } => "lookup",
            Self::CountIn { .. } => "objref",
            Self::Load { .. } | Self::Verdict { .. } => "immediate",
            Self::Counter => "counter",
            Self::Log { .. } => "log",
            Self::Limit { .. } => "limit",
            Self::TranslateDestination { .. } => "nat",
            Self::Reset => "reject",
            Self::Masquerade => "masq",
            Self::Turn { .. } => "numgen",
            Self::Unknown(name) => name,
        }
    }

    fn write_attributes(&self, out: &mut Messages) {
        match self {
            Self::Payload { into, base, offset, length } => {
                out.u32(1, *into);
                out.u32(2, *base as u32);
                out.u32(3, *offset);
                out.u32(4, *length);
            }
            Self::Meta { into, key } => {
                out.u32(1, *into);
                out.u32(2, *key);
            }
            Self::Conntrack { into, key, original } => {
                out.u32(1, *into);
                out.u32(2, *key);
                if *original {
                    out.bytes(3, &[0]);
                }
            }
            Self::Present { into, what } => {
                let (number, part_of) = what.numbers();
                out.u32(1, *into);
                out.bytes(2, &[number]);
                out.u32(3, 0);
                out.u32(4, 1);
                out.u32(5, IS_PRESENT);
                out.u32(6, part_of);
            }
            Self::Bitwise { register, mask, flip } => {
                out.u32(1, *register);
                out.u32(2, *register);
                out.u32(3, mask.len() as u32);
                write_value(out, 4, mask);
                write_value(out, 5, flip);
            }
            Self::Compare { register, equal, to } => {
                out.u32(1, *register);
                out.u32(2, u32::from(!equal));
                write_value(out, 3, to);
            }
            Self::Range { register, low, high } => {
                out.u32(1, *register);
                out.u32(2, 0);
                write_value(out, 3, low);
                write_value(out, 4, high);
            }
            Self::Lookup { set, register } => {
                out.text(1, set);
                out.u32(2, *register);
            }
            Self::CountIn { map, register } => {
                out.u32(3, *register);
                out.text(4, map);
            }
            Self::Dispatch { map, register } => {
                out.text(1, map);
                out.u32(2, *register);
                out.u32(3, VERDICT);
            }
            Self::Load { into, value } => {
                out.u32(1, *into);
                write_value(out, 2, value);
            }
            Self::Verdict { code, chain } => {
                out.u32(1, VERDICT);
                out.nested(2, |out| write_verdict(out, *code, chain.as_deref()));
            }
            Self::Counter => {}
            Self::Log { group, prefix } => {
                out.u16(1, *group);
                out.text(2, prefix);
            }
            Self::Limit { a_second, burst } => {
                out.u64(1, *a_second);
                out.u64(2, 1);
                out.u32(3, *burst);
            }
            Self::TranslateDestination { family, address, port } => {
                out.u32(1, 1);
                out.u32(2, u32::from(*family));
                out.u32(3, *address);
                out.u32(5, *port);
            }
            Self::Reset => out.u32(1, TCP_RESET),
            Self::Masquerade => {}
            Self::Turn { into, below } => {
                out.u32(1, *into);
                out.u32(2, *below);
                out.u32(3, 0);
            }
            Self::Unknown(_) => {}
        }
    }

    /// What the kernel says an expression is.
    pub(crate) fn read(attributes: Attributes<'_>) -> Expression {
        let name = attributes.text(1).unwrap_or_default();
        Self::read_as(name, attributes.nested(2)).unwrap_or_else(|| Self::Unknown(name.to_owned()))
    }

    fn read_as(name: &str, of: Attributes<'_>) -> Option<Expression> {
        let value = |kind| of.nested(kind).get(data::VALUE).map(<[u8]>::to_vec);
        let register = |kind| of.u32(kind).map(normal);
        Some(match name {
            "payload" => Self::Payload {
                into: register(1)?,
                base: match of.u32(2)? {
                    0 => Base::Link,
                    1 => Base::Network,
                    2 => Base::Transport,
                    _ => return None,
                },
                offset: of.u32(3)?,
                length: of.u32(4)?,
            },
            "meta" => Self::Meta { into: register(1)?, key: of.u32(2)? },
            "ct" => Self::Conntrack {
                into: register(1)?,
                key: of.u32(2)?,
                original: match of.get(3) {
                    None => false,
                    Some([0]) => true,
                    Some(_) => return None,
                },
            },
            "exthdr" if of.u32(5) == Some(IS_PRESENT) => {
                let numbers = (*of.get(2)?.first()?, of.u32(6).unwrap_or(0));
                let all = [Extension::RouterAlert, Extension::Routing];
                Self::Present { into: register(1)?, what: all.into_iter().find(|one| one.numbers() == numbers)? }
            }
            "bitwise" => {
                let (mask, flip) = (value(4)?, value(5)?);
                let in_place = register(1) == register(2);
                in_place.then_some(Self::Bitwise { register: register(1)?, mask, flip })?
            }
            "cmp" => Self::Compare {
                register: register(1)?,
                equal: match of.u32(2)? {
                    0 => true,
                    1 => false,
                    _ => return None,
                },
                to: value(3)?,
            },
            "range" if of.u32(2) == Some(0) => Self::Range { register: register(1)?, low: value(3)?, high: value(4)? },
            "lookup" => {
                let (set, register, inverted) = (of.text(1)?.to_owned(), register(2)?, of.u32(5) == Some(1));
                match of.u32(3).map(normal) {
                    _ if inverted => return None,
                    Some(VERDICT) => Self::Dispatch { map: set, register },
                    None => Self::Lookup { set, register },
                    Some(_) => return None,
                }
            }
            "immediate" if register(1)? == VERDICT => {
                let verdict = of.nested(2).nested(data::VERDICT);
                Self::Verdict {
                    code: verdict.u32(data::VERDICT_CODE)? as i32,
                    chain: verdict.text(data::VERDICT_CHAIN).map(str::to_owned),
                }
            }
            "immediate" => Self::Load { into: register(1)?, value: value(2)? },
            "objref" => Self::CountIn { map: of.text(4)?.to_owned(), register: register(3)? },
            "counter" => Self::Counter,
            "reject" if of.u32(1) == Some(TCP_RESET) => Self::Reset,
            "log" => Self::Log {
                group: u16::from_be_bytes(of.get(1)?.try_into().ok()?),
                prefix: of.text(2).unwrap_or_default().to_owned(),
            },
            // To one address and port; the kernel repeats each as the other end of its range.
            "nat" if of.u32(1) == Some(1) && register(4).is_none_or(|end| Some(end) == register(3)) => {
                let port = register(5)?;
                let is_one = register(6).is_none_or(|end| end == port);
                let family = u8::try_from(of.u32(2)?).ok()?;
                is_one.then_some(Self::TranslateDestination { family, address: register(3)?, port })?
            }
            "limit" if of.u64(2) == Some(1) => Self::Limit { a_second: of.u64(1)?, burst: of.u32(3)? },
            _ => return None,
        })
    }
}

/// The kernel may call a register by the older name of its sixteen bytes.
fn normal(register: u32) -> u32 {
    match register {
        1..=4 => register.saturating_sub(1).saturating_mul(4).saturating_add(FIRST),
        other => other,
    }
}

fn write_value(out: &mut Messages, kind: u16, value: &[u8]) {
    out.nested(kind, |out| out.bytes(data::VALUE, value));
}

pub(crate) fn write_verdict(out: &mut Messages, code: i32, chain: Option<&str>) {
    out.nested(data::VERDICT, |out| {
        out.u32(data::VERDICT_CODE, code as u32);
        if let Some(chain) = chain {
            out.text(data::VERDICT_CHAIN, chain);
        }
    });
}

/// The family's number in the kernel.
pub(crate) fn family_number(v4: bool) -> u8 {
    if v4 { wire::IPV4 } else { wire::IPV6 }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::netlink::Received;

    #[test]
    fn what_is_written_for_the_kernel_is_read_back() {
        let (mask, flip) = (vec![0; 4], vec![1, 2, 3, 4]);
        let all = [
            Expression::Payload { into: FIRST, base: Base::Network, offset: 12, length: 4 },
            Expression::Payload { into: FIRST + 1, base: Base::Transport, offset: 2, length: 2 },
            Expression::Meta { into: FIRST, key: meta::MARK },
            Expression::Conntrack { into: FIRST, key: conntrack::STATE, original: false },
            Expression::Conntrack { into: FIRST + 2, key: conntrack::PORT, original: true },
            Expression::Present { into: FIRST, what: Extension::RouterAlert },
            Expression::Present { into: FIRST, what: Extension::Routing },
            Expression::Bitwise { register: FIRST, mask, flip },
            Expression::Compare { register: FIRST, equal: true, to: vec![6] },
            Expression::Compare { register: FIRST, equal: false, to: vec![0; 4] },
            Expression::Range { register: FIRST, low: vec![0, 80], high: vec![0, 90] },
            Expression::Lookup { set: "peer4".to_owned(), register: FIRST },
            Expression::Dispatch { map: "egress4".to_owned(), register: FIRST },
            Expression::CountIn { map: "joined4".to_owned(), register: FIRST },
            Expression::Load { into: FIRST, value: vec![10, 0, 0, 1] },
            Expression::Verdict { code: verdict::ACCEPT, chain: None },
            Expression::Verdict { code: verdict::GOTO, chain: Some("allowed".to_owned()) },
            Expression::Counter,
            Expression::Reset,
            Expression::Log { group: 5, prefix: "namewall deny: a rule".to_owned() },
            Expression::Limit { a_second: 10, burst: 20 },
            Expression::TranslateDestination { family: wire::IPV4, address: FIRST, port: FIRST + 1 },
        ];
        let mut messages = Messages::new();
        messages.begin(0, 0, &[]);
        all.iter().for_each(|expression| expression.write(&mut messages));
        let received = Received::all(messages.as_bytes()).next().expect("it is one message");
        let read: Vec<Expression> =
            received.attributes(0).map(|(_, expression)| Expression::read(Attributes(expression))).collect();
        assert_eq!(read, all);
    }

    #[test]
    fn what_is_not_ours_is_read_as_unknown() {
        let mut messages = Messages::new();
        messages.begin(0, 0, &[]);
        // A look-up that must fail, and one that takes a value: we write neither.
        for attribute in [(5, 1), (3, FIRST)] {
            messages.nested(LIST_ELEMENT, |out| {
                out.text(1, "lookup");
                out.nested(2, |out| {
                    out.text(1, "who4");
                    out.u32(2, FIRST);
                    out.u32(attribute.0, attribute.1);
                });
            });
        }
        let received = Received::all(messages.as_bytes()).next().expect("it is one message");
        let read: Vec<Expression> =
            received.attributes(0).map(|(_, expression)| Expression::read(Attributes(expression))).collect();
        assert_eq!(read, [Expression::Unknown("lookup".to_owned()), Expression::Unknown("lookup".to_owned())]);
    }
}
