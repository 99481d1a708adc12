//! S7.4 for pods of other nodes. One that asks a node port of this node comes
//! here as its own node let it go: as a connection to this node. Where it is
//! translated to, nobody has judged yet, so its cluster gates are asked here,
//! before those of the Service's namespace (`services`).
//!
//! ```text
//! pod on n1 ─► n1: may it reach n2:30080? ─► n2: DNAT ─► may *that pod* reach 198.51.100.7?
//! ```
//! A pod more is two elements more: that it has gates, and which. Few packets
//! come this way, so the lists of gates that there are stand one after another.

use super::stages::{Mode, Stages};
use super::{Render, names};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{self, Field, Holds, SetSpec, Version};
use namewall_policy::model::{Direction, PolicyId};
use namewall_policy::program::{Class, ClassId, Plan};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Finds the gates of a pod of another node.
pub(crate) const GATES: &str = "gates";

/// The cluster gate of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gate {
    policies: Vec<PolicyId>,
    in_doubt: Vec<PolicyId>,
}

impl Gate {
    /// The gates of a plan: one, or those of all pods that share an address, which must all let pass (S1.9).
    fn all(plan: &Plan) -> Vec<Self> {
        let mut gates = Vec::new();
        for plan in plan.each().filter(|plan| !plan.cluster_gate.is_empty()) {
            let policies = plan.cluster_gate.clone();
            let in_doubt = plan.in_doubt.iter().filter(|policy| policies.contains(policy)).copied().collect();
            let gate = Self { policies, in_doubt };
            if !gates.contains(&gate) {
                gates.push(gate);
            }
        }
        gates
    }
}

/// The cluster gates of a class.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gates {
    enforced: Vec<Gate>,
    /// Where audited policies make it another.
    audited: Option<Vec<Gate>>,
}

impl Gates {
    /// None if there is nothing to ask.
    fn of(class: &Class) -> Option<Self> {
        let enforced = Gate::all(&class.enforced);
        let audited = class.audited.as_ref().map(Gate::all).filter(|audited| *audited != enforced);
        (!enforced.is_empty() || audited.is_some()).then_some(Self { enforced, audited })
    }

    fn in_mode(&self, mode: Mode) -> &[Gate] {
        match mode {
            Mode::Enforce => &self.enforced,
            Mode::Audit => self.audited.as_deref().unwrap_or_default(),
        }
    }

    fn each(&self) -> impl Iterator<Item = &Gate> {
        self.audited.iter().flatten().chain(&self.enforced)
    }
}

/// A number for every list of cluster gates that pods of other nodes may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteGates {
    by_class: FxHashMap<ClassId, Option<u32>>,
    numbered: BTreeMap<u32, Gates>,
}

impl RemoteGates {
    /// The number of a pod's gates, if it has any. None at all where its class is new, and has gates that are.
    pub(crate) fn number(&self, id: ClassId, class: &Class) -> Option<Option<u32>> {
        if let Some(&known) = self.by_class.get(&id) {
            return Some(known);
        }
        let Some(gates) = Gates::of(class) else { return Some(None) };
        self.numbered.iter().find(|(_, known)| **known == gates).map(|(number, _)| Some(*number))
    }

    pub(super) fn are_audited(&self) -> bool {
        self.numbered.values().any(|gates| gates.audited.is_some())
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = (PolicyId, Direction)> {
        let gates = self.numbered.values().flat_map(Gates::each);
        gates.flat_map(|gate| &gate.policies).map(|policy| (*policy, Direction::Egress))
    }
}

impl Render<'_> {
    /// Those of all classes: pods come and go, and their gates mostly stay. A table for all nodes needs none.
    pub(super) fn remote_gates(&self) -> RemoteGates {
        let mut remote = RemoteGates::default();
        if self.scope.node.is_none() {
            return remote;
        }
        for (at, class) in self.program.classes.iter().enumerate() {
            let number = Gates::of(class).map(|gates| {
                let mut number = self.number_of(&gates);
                while remote.numbered.get(&number).is_some_and(|other| *other != gates) {
                    number = number.wrapping_add(1);
                }
                remote.numbered.entry(number).or_insert(gates);
                number
            });
            remote.by_class.insert(ClassId(at as u32), number);
        }
        remote
    }

    /// Made of the names of policies, so that it stays the same whoever computes it.
    fn number_of(&self, gates: &Gates) -> u32 {
        let mut texts = Vec::new();
        for gate in gates.each() {
            texts.push(String::new());
            let text = |policy: &PolicyId| format!("{} {}", gate.in_doubt.contains(policy), self.policy_name(*policy));
            texts.extend(gate.policies.iter().map(text));
        }
        names::digest(&texts) as u32
    }
}

impl Stages<'_> {
    /// The gates' chains, and the rules that lead there; for translated connections only.
    pub(super) fn remote_chains(&mut self, remote: &RemoteGates) {
        let mode = self.mode;
        let mut rules = Vec::new();
        for (&number, gates) in &remote.numbered {
            let chains =
                gates.in_mode(mode).iter().filter_map(|gate| self.cluster_gate(&gate.policies, &gate.in_doubt));
            let chains: Vec<String> = chains.collect();
            let Some(chain) = self.one_after_another(&chains) else { continue };
            rules.extend(
                Version::BOTH.map(|version| Rule::new([Test::Gate { version, number }], Do::Goto(chain.clone()))),
            );
        }
        if rules.is_empty() {
            return;
        }
        let table = &mut *self.table;
        for version in Version::BOTH {
            let address = Field::Address(version);
            table.set(SetSpec::new(set::GATED[version], &[address], Holds::Keys));
            table.set(SetSpec::new(set::GATES[version], &[Field::Number, address], Holds::Keys));
        }
        let (gates, translated) = (format!("{}{GATES}", mode.prefix()), format!("{}translated", mode.prefix()));
        table.chains.entry(gates.clone()).or_default().rules = rules;
        let own = Version::BOTH.map(|version| Rule::new([Test::OwnAddress(version)], Do::Accept));
        let gated = Version::BOTH.map(|version| {
            let set = set::GATED[version].to_owned();
            Rule::new([Test::Within { end: End::Source, version, set }], Do::Jump(gates.clone()))
        });
        table.chains.entry(translated.clone()).or_default().rules = own.into_iter().chain(gated).collect();
        for base in ["egress-forward", "egress-input"] {
            let Some(chain) = table.chains.get_mut(&format!("{}{base}", mode.prefix())) else { continue };
            for rule in chain.rules.iter_mut().filter(|rule| rule.tests == [Test::Translated]) {
                rule.actions = vec![Do::Jump(translated.clone())];
            }
        }
    }
}
