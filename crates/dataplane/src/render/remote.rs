//! S7.4 for pods of other nodes. One that asks a node port of this node comes
//! here as its own node let it go: as a connection to this node. Where it is
//! translated to, nobody has judged yet, so its cluster gates are asked here.
//!
//! ```text
//! pod on n1 ─► n1: may it reach n2:30080? ─► n2: DNAT ─► may *that pod* reach 198.51.100.7?
//! ```
//! As with the pods of this node an address leads to a chain, so that a pod more
//! is an element more.

use super::rules::RuleWriter;
use super::stages::{Mode, Stages};
use super::{Lead, Render, declare_maps};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::Version;
use crate::nft::table::Table;
use namewall_policy::model::{Direction, PolicyId};
use namewall_policy::program::{Class, ClassId, Plan};
use rustc_hash::FxHashMap;

/// The cluster gate of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gate {
    policies: Vec<PolicyId>,
    in_doubt: Vec<PolicyId>,
}

impl Gate {
    fn of(plan: &Plan) -> Self {
        let policies = plan.cluster_gate.clone();
        let in_doubt = plan.in_doubt.iter().filter(|policy| policies.contains(policy)).copied().collect();
        Self { policies, in_doubt }
    }
}

/// The cluster gates of a class.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Gates {
    enforced: Gate,
    /// Where audited policies make it another.
    audited: Option<Gate>,
}

impl Gates {
    /// None if there is nothing to ask.
    fn of(class: &Class) -> Option<Self> {
        let enforced = Gate::of(&class.enforced);
        let audited = class.audited.as_ref().map(Gate::of).filter(|audited| *audited != enforced);
        (!enforced.policies.is_empty() || audited.is_some()).then_some(Self { enforced, audited })
    }

    fn in_mode(&self, mode: Mode) -> Option<&Gate> {
        match mode {
            Mode::Enforce => Some(&self.enforced).filter(|gate| !gate.policies.is_empty()),
            Mode::Audit => self.audited.as_ref(),
        }
    }
}

/// The cluster gates that pods of other nodes may have.
#[derive(Clone, Debug, Default)]
pub(crate) struct RemoteGates {
    /// Which of the gates each class has.
    by_class: FxHashMap<ClassId, Option<usize>>,
    gates: Vec<Known>,
}

/// Gates, and where the addresses of pods that have them lead.
#[derive(Clone, Debug)]
struct Known {
    gates: Gates,
    leads: Vec<Lead>,
}

impl RemoteGates {
    /// Where a pod's address leads. None at all where its class is new, and has a gate that is.
    pub(crate) fn leads(&self, id: ClassId, class: &Class) -> Option<&[Lead]> {
        let known = match self.by_class.get(&id) {
            Some(known) => known.and_then(|at| self.gates.get(at)),
            None => match Gates::of(class) {
                Some(gates) => Some(self.gates.iter().find(|known| known.gates == gates)?),
                None => None,
            },
        };
        Some(known.map_or(&[], |known| &known.leads))
    }

    pub(super) fn are_audited(&self) -> bool {
        self.gates.iter().any(|known| known.gates.audited.is_some())
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = (PolicyId, Direction)> {
        let gates = self.gates.iter().flat_map(|known| known.gates.audited.iter().chain([&known.gates.enforced]));
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
            let place = Gates::of(class).map(|gates| {
                let known = remote.gates.iter().position(|known| known.gates == gates);
                known.unwrap_or_else(|| {
                    remote.gates.push(Known { gates, leads: Vec::new() });
                    remote.gates.len() - 1
                })
            });
            remote.by_class.insert(ClassId(at as u32), place);
        }
        remote
    }

    /// The gates' chains, and the rule that leads there; for translated connections only.
    pub(super) fn remote_chains(
        &self,
        table: &mut Table,
        remote: &mut RemoteGates,
        (writer, mode): (&RuleWriter<'_>, Mode),
    ) {
        let (walk, _) = mode.walks();
        let walk = walk.of_others();
        let mut any = false;
        for Known { gates, leads } in &mut remote.gates {
            let Some(gate) = gates.in_mode(mode) else { continue };
            let mut stages = Stages { render: self, writer, table, mode };
            let Some(chain) = stages.cluster_gate(&gate.policies, &gate.in_doubt) else { continue };
            leads.push(Lead { maps: walk.maps(), chain });
            any = true;
        }
        if !any {
            return;
        }
        declare_maps(table, walk);
        let about = "the cluster gates of a pod of another node";
        let (end, name) = (End::Source, format!("{}translated", mode.prefix()));
        let own = Version::BOTH.map(|version| Rule::new([Test::OwnAddress(version)], Do::Accept));
        let dispatch = Version::BOTH.map(|version| Rule::new([], Do::Dispatch { end, version, walk }).about(about));
        table.chains.entry(name.clone()).or_default().rules = own.into_iter().chain(dispatch).collect();
        for base in ["egress-forward", "egress-input"] {
            let Some(chain) = table.chains.get_mut(&format!("{}{base}", mode.prefix())) else { continue };
            for rule in chain.rules.iter_mut().filter(|rule| rule.tests == [Test::Translated]) {
                rule.actions = vec![Do::Jump(name.clone())];
            }
        }
    }
}
