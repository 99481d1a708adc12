//! A whole table as it should be: chains of rules, sets and their elements. It
//! is a plain value; `Nft` makes the kernel's table equal to it.

use super::elements::Elements;
use super::rule::Rule;
use super::set::{Element, Holds, SetSpec};
use std::collections::BTreeMap;
use std::fmt;

/// Which packets a table sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TableFamily {
    /// IPv4 and IPv6.
    Inet = 1,
    /// Every frame of one network interface.
    Netdev = 5,
    /// Frames that a bridge forwards.
    Bridge = 7,
}

impl TableFamily {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inet => "inet",
            Self::Netdev => "netdev",
            Self::Bridge => "bridge",
        }
    }
}

/// The kernel's name for a table: tables of two families may have the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRef<'a> {
    pub family: TableFamily,
    pub name: &'a str,
}

impl fmt::Display for TableRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family.name(), self.name)
    }
}

/// A name alone is that of an `inet` table.
impl<'a> From<&'a str> for TableRef<'a> {
    fn from(name: &'a str) -> Self {
        Self { family: TableFamily::Inet, name }
    }
}

impl<'a> From<&'a String> for TableRef<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Table {
    pub chains: BTreeMap<String, Chain>,
    pub sets: BTreeMap<String, Set>,
    /// Counters that elements lead to, by name, each with its comment. The kernel keeps the comment that a counter was
    /// made with.
    pub counters: BTreeMap<String, String>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Chain {
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
    /// What it is there for. The kernel keeps the comment that a chain was made with.
    pub comment: Option<String>,
}

/// Where packets come into the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    pub point: Point,
    /// The interface whose frames come in. Only `netdev` tables have it.
    pub device: Option<String>,
    pub priority: i32,
    pub kind: HookKind,
    /// What happens to a packet at the end of the chain.
    pub fallback: Fallback,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    Drop = 0,
    Accept = 1,
}

impl Fallback {
    fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Accept => "accept",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
    /// Of a `netdev` table: before anything else looks at a frame that the interface receives.
    Ingress,
    /// Of a `netdev` table: the last before the interface sends a frame, also one of a packet socket.
    Egress,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookKind {
    Filter,
    Nat,
}

impl HookKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }
}

/// A set and what is in it, by key. Leases come and go by themselves and are not listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    pub spec: SetSpec,
    pub elements: Elements,
}

impl Set {
    pub fn new(spec: SetSpec) -> Self {
        Self { spec, elements: Elements::default() }
    }

    pub fn insert(&mut self, element: Element) {
        self.elements.insert(element);
    }
}

impl Table {
    pub fn set(&mut self, spec: SetSpec) -> &mut Set {
        self.sets.entry(spec.name.clone()).or_insert_with(|| Set::new(spec))
    }

    pub fn add_rule(&mut self, chain: &str, rule: Rule) {
        self.chains.entry(chain.to_owned()).or_default().rules.push(rule);
    }
}

impl Point {
    const OF_HOSTS: [Self; 5] = [Self::Prerouting, Self::Input, Self::Forward, Self::Output, Self::Postrouting];

    /// The kernel's number. Each family of tables numbers its own.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Prerouting | Self::Ingress => 0,
            Self::Input | Self::Egress => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }

    pub(crate) fn numbered(family: TableFamily, number: u32) -> Option<Self> {
        match family {
            TableFamily::Netdev => [Self::Ingress, Self::Egress].into_iter().find(|point| point.number() == number),
            TableFamily::Inet | TableFamily::Bridge => {
                Self::OF_HOSTS.into_iter().find(|point| point.number() == number)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The table's rules in nft's words: what `nft list table` shows, without the elements of sets.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, comment) in &self.counters {
            writeln!(f, "\tcounter {name} {{\n\t\tcomment \"{comment}\"\n\t}}\n")?;
        }
        for (name, set) in &self.sets {
            let (word, value) = match set.spec.holds {
                Holds::Keys => ("set", ""),
                Holds::Verdicts => ("map", " : verdict"),
                Holds::Counters => ("map", " : counter"),
            };
            writeln!(f, "\t{word} {name} {{")?;
            writeln!(f, "\t\ttype {}{value}", set.spec.type_text())?;
            match (set.spec.interval, set.spec.timeout) {
                (true, _) => writeln!(f, "\t\tflags interval")?,
                (_, true) => writeln!(f, "\t\tflags timeout\n\t\tgc-interval 1h")?,
                _ => {}
            }
            if let Some(purpose) = set.spec.purpose() {
                writeln!(f, "\t\tcomment \"{purpose}\"")?;
            }
            writeln!(f, "\t}}\n")?;
        }
        for (at, (name, chain)) in self.chains.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            writeln!(f, "\tchain {name} {{")?;
            if let Some(comment) = &chain.comment {
                writeln!(f, "\t\tcomment \"{comment}\"")?;
            }
            if let Some(Hook { point, device, priority, kind, fallback }) = &chain.hook {
                let (kind, point, fallback) = (kind.name(), point.name(), fallback.name());
                let device = device.as_ref().map(|device| format!("device \"{device}\" ")).unwrap_or_default();
                writeln!(f, "\t\ttype {kind} hook {point} {device}priority {priority}; policy {fallback};")?;
            }
            for rule in &chain.rules {
                writeln!(f, "\t\t{rule}")?;
            }
            writeln!(f, "\t}}")?;
        }
        Ok(())
    }
}
