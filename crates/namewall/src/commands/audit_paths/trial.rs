//! Whether a way is tried with packets: each way that is listed is tried, or it is said why not.

use super::attack::Tried;
use super::path::Way;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What `--attack` does about a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trial {
    /// It makes this attempt, by its place in the list.
    By(usize),
    Never(Untried),
}

/// Why nothing is tried.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Untried {
    SecondNetwork,
    OwnToEachMachine,
    Group,
    Name,
    Alias,
    NoPolicy,
    NotListed,
    NoAddress,
    NoHost,
    NoWay,
}

impl Untried {
    fn text(self) -> &'static str {
        match self {
            Self::SecondNetwork => "the sandbox does not build second networks",
            Self::OwnToEachMachine => "no route leads to an address that every machine has for itself",
            Self::Group => "a packet for a group is not answered like a connection",
            Self::Name => "it needs an answer of DNS that points there",
            Self::Alias => "a connection through an alias is a direct one, which is tried",
            Self::NoPolicy => "no policy applies to it, so that there is nothing to compare",
            Self::NotListed => "these chains are not listed one by one",
            Self::NoAddress => "the workload has no address",
            Self::NoHost => "no host can have such an address",
            Self::NoWay => "the ends have no addresses of one family in the sandbox",
        }
    }
}

/// Where a way leads, and whether that is tried.
pub(super) struct End {
    pub(super) to: String,
    pub(super) trial: Trial,
}

impl Trial {
    pub(super) fn at(self, to: impl ToString) -> End {
        End { to: to.to_string(), trial: self }
    }
}

/// A way of one source to one address.
pub(super) struct Unit {
    pub(super) way: Way,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) trial: Trial,
}

/// How many of the ways that are listed were tried, and which were not.
pub(super) struct Coverage {
    listed: usize,
    not_tried: Vec<NotTried>,
}

/// Ways of one kind and one source that are not tried for the same reason.
struct NotTried {
    way: Way,
    from: String,
    to: Vec<String>,
    why: Untried,
}

impl Coverage {
    pub(super) fn new(units: Vec<Unit>, tried: &[Tried]) -> Self {
        let listed = units.len();
        let mut without: BTreeMap<(Way, Untried, String), BTreeSet<String>> = BTreeMap::new();
        let mut not_tried: Vec<NotTried> = Vec::new();
        for Unit { way, from, to, trial } in units {
            let why = match trial {
                Trial::Never(why) => why,
                Trial::By(at) if tried.get(at).is_some_and(Tried::was_tried) => continue,
                Trial::By(_) => Untried::NoWay,
            };
            // Two outcomes of one way to one address are two ways.
            if !without.entry((way.clone(), why, from.clone())).or_default().insert(to.clone()) {
                not_tried.push(NotTried { way, from, to: vec![to], why });
            }
        }
        let grouped = without.into_iter().map(|((way, why, from), to)| {
            let to = to.into_iter().collect();
            NotTried { way, from, to, why }
        });
        not_tried.splice(0..0, grouped);
        Self { listed, not_tried }
    }

    fn untried(&self) -> usize {
        self.not_tried.iter().map(|one| one.to.len()).sum()
    }

    pub(super) fn counts(&self) -> Value {
        let untried = self.untried();
        json!({ "listed": self.listed, "tried": self.listed - untried, "notTried": untried })
    }

    pub(super) fn json(&self) -> Value {
        let one =
            |one: &NotTried| json!({ "way": one.way.word(), "from": one.from, "to": one.to, "why": one.why.text() });
        self.not_tried.iter().map(one).collect()
    }

    /// A line for each reason that a way is not tried, and one with the numbers.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut alike: BTreeMap<(&Way, Untried, &[String]), Vec<String>> = BTreeMap::new();
        for NotTried { way, from, to, why } in &self.not_tried {
            alike.entry((way, *why, to)).or_default().push(from.clone());
        }
        let line = |((way, why, to), from): ((&Way, Untried, &[String]), Vec<String>)| {
            let (from, to) = (super::listed(&from), super::listed(to));
            format!("not tried: {}, from {from} to {to}: {}", way.text(), why.text())
        };
        let mut lines: Vec<String> = alike.into_iter().map(line).collect();
        let untried = self.untried();
        lines.push(format!("{} ways listed, {} tried and {untried} not", self.listed, self.listed - untried));
        lines
    }
}
