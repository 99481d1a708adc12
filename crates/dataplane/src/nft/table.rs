//! A whole table as it should be: chains of rules, sets and their elements. It
//! is a plain value; `Nft` makes the kernel's table equal to it.

use super::elements::Elements;
use super::rule::Rule;
use super::set::{Element, Holds, SetSpec};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Table {
    pub chains: BTreeMap<String, Chain>,
    pub sets: BTreeMap<String, Set>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Chain {
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
    /// What it is there for. The kernel keeps the comment that a chain was made with.
    pub comment: Option<String>,
}

/// Where packets come into the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hook {
    pub point: Point,
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
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
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
    fn name(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
            Self::Output => "output",
            Self::Postrouting => "postrouting",
        }
    }
}

/// The table's rules in nft's words: what `nft list table` shows, without the elements of sets.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, set) in &self.sets {
            let (word, value) = match set.spec.holds {
                Holds::Keys => ("set", ""),
                Holds::Verdicts => ("map", " : verdict"),
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
            if let Some(Hook { point, priority, kind, fallback }) = chain.hook {
                let (kind, point, fallback) = (kind.name(), point.name(), fallback.name());
                writeln!(f, "\t\ttype {kind} hook {point} priority {priority}; policy {fallback};")?;
            }
            for rule in &chain.rules {
                writeln!(f, "\t\t{rule}")?;
            }
            writeln!(f, "\t}}")?;
        }
        Ok(())
    }
}
