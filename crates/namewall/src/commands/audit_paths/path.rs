//! A way to a destination, what becomes of it, and who can take it.

use super::trial::{End, Trial, Unit};
use crate::commands::explain::allowed_json;
use crate::conditions::conditions_json;
use namewall_policy::port::Traffic;
use namewall_policy::unknown::Described;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How one gets there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Way {
    Direct,
    /// By a second network of the pod.
    SecondInterface,
    /// By a loopback address of the node.
    Loopback,
    /// By a link-local address of the node.
    LinkLocal,
    /// By broadcast or multicast.
    Group,
    /// A Service, and where it is entered.
    Service(String, String),
    NodePort(String, String),
    /// Services that lead to each other, and where the first is entered.
    Chain(Vec<String>, String),
    Headless(String),
    ExternalName(String),
    /// A rule by name, and an answer that points there.
    Name,
    /// From a pod on its node's network.
    HostNetwork,
}

impl Way {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::SecondInterface => "secondInterface",
            Self::Loopback => "loopback",
            Self::LinkLocal => "linkLocal",
            Self::Group => "group",
            Self::Service(..) => "service",
            Self::NodePort(..) => "nodePort",
            Self::Chain(..) => "chain",
            Self::Headless(_) => "headless",
            Self::ExternalName(_) => "externalName",
            Self::Name => "name",
            Self::HostNetwork => "hostNetwork",
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Direct => "directly".to_owned(),
            Self::SecondInterface => "by a second network".to_owned(),
            Self::Loopback => "by a loopback address of the node".to_owned(),
            Self::LinkLocal => "by a link-local address of the node".to_owned(),
            Self::Group => "by broadcast and multicast".to_owned(),
            Self::Service(name, at) => format!("through Service {name} at {at}"),
            Self::NodePort(name, port) => format!("through Service {name} at port {port}"),
            Self::Chain(names, at) => {
                let (first, others) = names.split_first().map_or(("", &[][..]), |(first, others)| (first, others));
                let others = match others {
                    [] => "other Services".to_owned(),
                    others => format!("Service {}", others.join(" and to Service ")),
                };
                format!("through Service {first} at {at}, which leads to {others}")
            }
            Self::Headless(name) => format!("by the name of the headless Service {name}"),
            Self::ExternalName(name) => format!("by the name of the ExternalName Service {name}"),
            Self::Name => "by a name that a rule allows".to_owned(),
            Self::HostNetwork => "from a pod on its node's network".to_owned(),
        }
    }

    fn service(&self) -> Option<(&str, Option<&str>)> {
        match self {
            Self::Service(name, at) | Self::NodePort(name, at) => Some((name, Some(at))),
            Self::Chain(names, at) => Some((names.first()?, Some(at))),
            Self::Headless(name) | Self::ExternalName(name) => Some((name, None)),
            _ => None,
        }
    }

    /// The Services that a chain leads through after the first.
    fn then(&self) -> Option<&[String]> {
        match self {
            Self::Chain(names, _) => names.get(1..),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Outcome {
    Open,
    /// It depends on what the input does not say (S10.5).
    Depends,
    Closed,
    /// An alias: what becomes of it is told of the direct way.
    AsDirect,
    /// No policy can close it.
    OutOfReach,
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Depends => "depends",
            Self::Closed => "closed",
            Self::AsDirect => "asDirect",
            Self::OutOfReach => "outOfReach",
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::AsDirect => "as direct",
            Self::OutOfReach => "out of reach",
            other => other.word(),
        }
    }
}

impl Found {
    /// Of connections to or through something as a whole.
    pub(super) fn new(way: Way, outcome: Outcome, by: String) -> Self {
        Self { way, outcome, connections: None, by, depends_on: Vec::new() }
    }

    /// The same if it also depends on these, unless it is closed anyway.
    pub(super) fn on_condition(mut self, conditions: &[Described]) -> Self {
        if !conditions.is_empty() && matches!(self.outcome, Outcome::Open | Outcome::Depends) {
            self.outcome = Outcome::Depends;
            self.depends_on.extend_from_slice(conditions);
            self.by = Described::join(&self.depends_on);
        }
        self
    }
}

/// What was found of one source and one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) way: Way,
    pub(super) outcome: Outcome,
    /// The connections it is said of, where they are not those of a Service.
    pub(super) connections: Option<Traffic>,
    pub(super) by: String,
    pub(super) depends_on: Vec<Described>,
}

/// A way that several sources have to several addresses, with the same outcome.
pub(super) struct Path {
    pub(super) found: Found,
    pub(super) from: Vec<String>,
    pub(super) to: Vec<String>,
}

impl Path {
    pub(super) fn json(&self) -> Value {
        let Found { way, outcome, connections, by, depends_on } = &self.found;
        let mut value = json!({
            "way": way.word(),
            "outcome": outcome.word(),
            "from": self.from,
            "to": self.to,
            "by": by,
        });
        if let Some((service, at)) = way.service() {
            value["service"] = json!(service);
            value["at"] = json!(at);
        }
        if let Some(then) = way.then() {
            value["then"] = json!(then);
        }
        if let Some(connections) = connections {
            value["connections"] = allowed_json(connections);
        }
        if !depends_on.is_empty() {
            value["dependsOn"] = conditions_json(depends_on);
        }
        value
    }
}

/// What is found, put together: the same of several sources and addresses is told once.
#[derive(Default)]
pub(super) struct Paths {
    /// In the order they were found.
    found: Vec<Found>,
    /// Of a source and what was found, by its place in the list: the addresses, and whether the way there is tried.
    to: BTreeMap<(usize, String), BTreeMap<String, Trial>>,
    names: Vec<String>,
}

impl Paths {
    pub(super) fn add(&mut self, from: &str, found: &Found, end: End) {
        let at = self.found.iter().position(|known| known == found).unwrap_or_else(|| {
            self.found.push(found.clone());
            self.found.len() - 1
        });
        if self.names.last().is_none_or(|last| last != from) && !self.names.iter().any(|known| known == from) {
            self.names.push(from.to_owned());
        }
        let End { to, trial } = end;
        let known = self.to.entry((at, from.to_owned())).or_default().entry(to).or_insert(trial);
        if let Trial::By(_) = trial {
            *known = trial;
        }
    }

    /// Every way of one source to one address.
    pub(super) fn units(&self) -> Vec<Unit> {
        let of = |((at, from), to): (&(usize, String), &BTreeMap<String, Trial>)| {
            let (way, from) = (self.found[*at].way.clone(), from.clone());
            let one = |(to, trial): (&String, &Trial)| Unit {
                way: way.clone(),
                from: from.clone(),
                to: to.clone(),
                trial: *trial,
            };
            to.iter().map(one).collect::<Vec<Unit>>()
        };
        self.to.iter().flat_map(of).collect()
    }

    /// What is open comes first.
    pub(super) fn list(self) -> Vec<Path> {
        let mut by_addresses: BTreeMap<(usize, BTreeSet<String>), Vec<String>> = BTreeMap::new();
        for ((at, from), to) in self.to {
            by_addresses.entry((at, to.into_keys().collect())).or_default().push(from);
        }
        let order = |name: &String| self.names.iter().position(|known| known == name);
        let mut paths: Vec<Path> = by_addresses
            .into_iter()
            .map(|((at, to), mut from)| {
                from.sort_by_key(order);
                Path { found: self.found[at].clone(), from, to: to.into_iter().collect() }
            })
            .collect();
        paths.sort_by(|a, b| (a.found.outcome, &a.found.way).cmp(&(b.found.outcome, &b.found.way)));
        paths
    }
}
