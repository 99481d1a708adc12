//! What every probe of the soak must show. The policies that count are the last
//! good version of each file; leases come from the lookups that were answered.
//!
//! Some leases are **sure**: a pod with a rule for the name looked it up, and pods
//! of its color have had some rule for the name ever since (S6.3). Others are only
//! **possible**: the name was answered, and a rule that allows it came later. A connection must be
//! open if the sure leases open it, and silent if even the possible ones do not.

use crate::action::UpstreamFault;
use crate::policy::{self, NAMES, Policy};
use namewall_cluster as cluster;
use namewall_policy::domain::{DomainPattern, RulePattern};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Instant, Lease, LeaseTable, Program, Verdict, compile, evaluate};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

pub(crate) const PODS: usize = 6;
pub(crate) const SLOTS: usize = 8;
pub(crate) const PORT: u16 = 443;
/// A lease is sure for that many seconds of jumps: names have a TTL of an hour, and a run may take half of it.
const SURE_FOR: u64 = 1_500;

/// What a probe must show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    Open,
    Silent,
    Either,
}

impl Expected {
    /// What holds while the state changes from one to the other.
    pub(crate) fn while_changing_to(self, after: Self) -> Self {
        if self == after { self } else { Self::Either }
    }
}

/// A connection that is probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
}

/// An address that a name was answered with, and the color of the pod that asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Answered {
    name: usize,
    address: IpAddr,
    color: &'static str,
}

pub(crate) struct Model {
    pub(crate) colors: [&'static str; PODS],
    /// The last good policy of each file.
    pub(crate) slots: [Option<Policy>; SLOTS],
    /// The files that cannot be read now.
    pub(crate) broken: BTreeSet<usize>,
    /// Which of its two hosts each name has now.
    pub(crate) zones: [usize; NAMES.len()],
    pub(crate) upstream_fault: Option<UpstreamFault>,
    pub(crate) is_disk_full: bool,
    /// New connections, questions among them, may get no answer; none that is denied opens.
    pub(crate) is_table_full: bool,
    /// By how many seconds the process's clock has jumped since the start.
    jumped: u64,
    /// Each with `jumped` as it was when the name was answered.
    sure: BTreeMap<Answered, u64>,
    possible: BTreeSet<Answered>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let colors = std::array::from_fn(|pod| policy::COLORS[pod % policy::COLORS.len()]);
        Self {
            colors,
            slots: std::array::from_fn(|_| None),
            broken: BTreeSet::new(),
            zones: [0; NAMES.len()],
            upstream_fault: None,
            is_disk_full: false,
            is_table_full: false,
            jumped: 0,
            sure: BTreeMap::new(),
            possible: BTreeSet::new(),
        }
    }

    /// The rules by name: the color of the pods that each is for, and its pattern.
    fn name_rules(&self) -> impl Iterator<Item = (&'static str, DomainPattern)> + '_ {
        self.slots.iter().flatten().filter_map(Policy::name_rule)
    }

    fn allows(&self, answered: &Answered) -> bool {
        let domain = policy::domain(answered.name);
        self.name_rules().any(|(color, pattern)| color == answered.color && pattern.matches(&domain))
    }

    /// A pod has looked a name up, and got an answer.
    pub(crate) fn answered(&mut self, pod: usize, name: usize) {
        let answered = Answered { name, address: self.host_of(name), color: self.colors[pod] };
        self.possible.insert(answered);
        if self.allows(&answered) {
            self.sure.insert(answered, self.jumped);
        }
    }

    /// A pod has asked for a name, and nobody knows whether the question got through.
    pub(crate) fn may_have_asked(&mut self, pod: usize, name: usize) {
        let answered = Answered { name, address: self.host_of(name), color: self.colors[pod] };
        self.possible.insert(answered);
    }

    fn host_of(&self, name: usize) -> IpAddr {
        policy::hosts(name)[self.zones[name]].parse().expect("the host's address is well formed")
    }

    /// The process's clock has gone on by so many seconds: leases that it takes for expired may be open or closed.
    pub(crate) fn jumped(&mut self, seconds: u64) {
        self.jumped += seconds;
        let jumped = self.jumped;
        self.sure.retain(|_, since| jumped - *since <= SURE_FOR);
    }

    /// The policies have changed: a lease lasts as long as some rule allows its name.
    pub(crate) fn policies_changed(&mut self) {
        let sure = std::mem::take(&mut self.sure);
        self.sure = sure.into_iter().filter(|(answered, _)| self.allows(answered)).collect();
    }

    /// Another process goes on: it finds the leases of rules that are for some pod of the node, since these are in the
    /// kernel.
    pub(crate) fn restarted(&mut self) {
        let colors = self.colors;
        self.sure.retain(|answered, _| colors.contains(&answered.color));
    }

    pub(crate) fn pairs() -> Vec<Pair> {
        let address = |text: String| text.parse().expect("the address is well formed");
        let pods: Vec<IpAddr> = (0..PODS).map(|pod| address(policy::address(pod))).collect();
        let hosts: Vec<IpAddr> = (0..NAMES.len()).flat_map(policy::hosts).map(address).collect();
        let destinations: Vec<IpAddr> = pods.iter().chain(&hosts).copied().collect();
        let all = pods.iter().flat_map(|from| destinations.iter().map(|to| Pair { from: *from, to: *to }));
        all.filter(|pair| pair.from != pair.to).collect()
    }

    /// What each of [`Model::pairs`] must show. The policies are read from manifests, as namewall reads them; `folder`
    /// is where they are written.
    pub(crate) fn expected(&self, folder: &Path) -> Vec<Expected> {
        let mut text = policy::cluster(&self.colors);
        for manifest in std::iter::once(policy::ALWAYS.to_owned()).chain(self.manifests()) {
            text += "---\n";
            text += &manifest;
        }
        let file = folder.join("model.yaml");
        std::fs::write(&file, text).expect("the model's manifest is written");
        let manifests = cluster::load(&[file]).expect("the model's manifest is read");
        let lowered = cluster::lower(&manifests.documents, &cluster::Settings::default());
        let (program, _) = compile(&lowered.snapshot);
        assert_eq!(lowered.snapshot.policies.len(), 2 + self.manifests().count(), "a policy of the soak is wrong");
        let sure = self.leases(self.sure.keys(), |rule, asked| rule == asked);
        let possible = self.leases(self.possible.iter(), |_, _| true);
        let judge = |pair: Pair| match (verdict(&program, &sure, pair), verdict(&program, &possible, pair)) {
            (Verdict::Allow, _) => Expected::Open,
            (Verdict::Deny, Verdict::Deny) => Expected::Silent,
            (Verdict::Deny, Verdict::Allow) => Expected::Either,
        };
        Self::pairs().into_iter().map(judge).collect()
    }

    fn manifests(&self) -> impl Iterator<Item = String> + '_ {
        let of_slot = |(slot, policy): (usize, &Option<Policy>)| policy.as_ref().map(|policy| policy.manifest(slot));
        self.slots.iter().enumerate().filter_map(of_slot)
    }

    /// The leases of the answers, for each rule by name whose pods may use them.
    fn leases<'a>(
        &self,
        answers: impl Iterator<Item = &'a Answered> + Clone,
        may_use: impl Fn(&str, &str) -> bool,
    ) -> LeaseTable {
        let mut leases = LeaseTable::default();
        for (color, pattern) in self.name_rules() {
            for answered in answers.clone().filter(|answered| may_use(color, answered.color)) {
                let (name, address) = (policy::domain(answered.name), answered.address);
                if pattern.matches(&name) {
                    let (pattern, expiry) = (RulePattern::allow(pattern.clone()), LATER);
                    drop(leases.grant(Lease { pattern, name, address, expiry, asked_by: None }));
                }
            }
        }
        leases
    }
}

const NOW: Instant = Instant(Duration::ZERO);
const LATER: Instant = Instant(Duration::from_secs(3600));

fn verdict(program: &Program, leases: &LeaseTable, pair: Pair) -> Verdict {
    let (from, to) = (program.endpoint_at(pair.from), program.endpoint_at(pair.to));
    let flow = Flow { from, to, protocol: Protocol::Tcp, port: PORT, via: None, hop: None, masker: None };
    evaluate(program, leases, &flow, NOW).verdict
}
