//! `forgets-dns` and `name-without-dns`: pods that can ask no DNS server.
//!
//! One port is followed through the walk of S1 for all destinations at once:
//! pods by their Roles, all else by address. Where that is not exact it errs
//! towards "reachable", so that what is reported is certain.

use super::pieces::Region;
use super::report::{FindingTarget, Report};
use super::scene::{Scene, egress_policies};
use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::interval::IntervalSet;
use crate::model::{Action, Direction, PolicyId};
use crate::port::Protocol;
use crate::program::{Matcher, Plan, RuleId};
use rustc_hash::FxHashSet;
use std::sync::Arc;

const DNS_PORT: u16 = 53;
const ADVICE: &str = "Allow UDP and TCP 53 to the cluster's DNS";

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    let mut told: FxHashSet<PolicyId> = FxHashSet::default();
    let closed: Vec<Option<Closed>> = scene.exits.iter().map(|exit| closed(scene, exit.plan)).collect();
    for (exit, closed) in scene.exits.iter().zip(&closed) {
        let who = || scene.snapshot.workload_name(exit.example);
        match closed {
            None => {}
            Some(Closed::By(rule)) if told.insert(scene.program.rule(*rule).policy) => {
                let what = format!("this rule leaves {} no way to port 53 anywhere", who());
                report.warn(FindingTarget::Rule(*rule), "forgets-dns", forgets(&what));
            }
            Some(Closed::By(_)) => {}
            Some(Closed::Isolated) => {
                for &policy in exit.plan.egress.network.iter().filter(|policy| told.insert(**policy)) {
                    let what = format!("{} is isolated for egress and may open port 53 nowhere", who());
                    report.warn(FindingTarget::Policy(policy), "forgets-dns", forgets(&what));
                }
            }
        }
    }
    for rule in scene.rules().filter(|rule| rule.written.action == Action::Allow) {
        if !super::names::domains(rule.written).any(|_| true) {
            continue;
        }
        let mut exits = scene.exits_of(rule.compiled.policy);
        if let Some((_, exit)) = exits.find(|(at, _)| closed[*at].is_some()) {
            let message = format!(
                "{} can reach no DNS server, so the name is never resolved and the rule opens nothing. {ADVICE}",
                scene.snapshot.workload_name(exit.example)
            );
            report.warn(FindingTarget::Rule(rule.id), "name-without-dns", message);
        }
    }
}

fn forgets(what: &str) -> String {
    format!("{what}, so it can resolve no name. {ADVICE}")
}

/// What keeps pods from every DNS server.
#[derive(Clone, Copy, Debug)]
enum Closed {
    By(RuleId),
    Isolated,
}

/// `None` if a DNS server may be reached, over UDP or TCP.
fn closed(scene: &Scene<'_>, plan: &Plan) -> Option<Closed> {
    egress_policies(plan).next()?;
    let udp = DnsWalk::new(scene, Protocol::Udp).closed(plan)?;
    DnsWalk::new(scene, Protocol::Tcp).closed(plan).map(|_| udp)
}

/// Destinations.
#[derive(Clone, Default)]
struct Places {
    roles: BitSet,
    addresses: AddrSet,
}

impl Places {
    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.addresses.is_empty()
    }

    fn intersect(&self, other: &Self) -> Self {
        let mut roles = self.roles.clone();
        roles.intersect_with(&other.roles);
        Self { roles, addresses: self.addresses.intersect(&other.addresses) }
    }

    fn join(&mut self, other: &Self) {
        self.roles.union_with(&other.roles);
        self.addresses = self.addresses.union(&other.addresses);
    }

    fn remove(&mut self, other: &Self) {
        self.roles.subtract(&other.roles);
        self.addresses = self.addresses.subtract(&other.addresses);
    }
}

struct DnsWalk<'a> {
    scene: &'a Scene<'a>,
    protocol: Protocol,
    /// The rule that took the last destinations away.
    last_deny: Option<RuleId>,
}

/// How an ordered list shared destinations out.
#[derive(Default)]
struct Shares {
    allowed: Places,
    passed: Places,
    left: Places,
}

impl<'a> DnsWalk<'a> {
    fn new(scene: &'a Scene<'a>, protocol: Protocol) -> Self {
        Self { scene, protocol, last_deny: None }
    }

    fn closed(mut self, plan: &Plan) -> Option<Closed> {
        let mut open = everywhere(self.scene);
        open = self.gate(&plan.cluster_gate, open);
        if !plan.namespace_gate.is_empty() {
            // This gate is only for destinations outside the pod network.
            let pods = &self.scene.program.pod_networks;
            let inside = Places { roles: open.roles.clone(), addresses: open.addresses.intersect(pods) };
            open.remove(&inside);
            open = self.gate(&plan.namespace_gate, open);
            open.join(&inside);
        }
        let admin = self.share(&plan.egress.admin, open);
        let mut left = admin.left;
        left.join(&admin.passed);
        if !admin.allowed.is_empty() {
            return None;
        }
        if left.is_empty() {
            return self.last_deny.map(Closed::By);
        }
        if plan.egress.isolated {
            let network = self.share(&plan.egress.network, left);
            return network.allowed.is_empty().then_some(Closed::Isolated);
        }
        let baseline = self.share(&plan.egress.baseline, left);
        let open = !baseline.allowed.is_empty() || !baseline.passed.is_empty() || !baseline.left.is_empty();
        self.last_deny.filter(|_| !open).map(Closed::By)
    }

    fn gate(&mut self, policies: &[PolicyId], open: Places) -> Places {
        let Shares { mut allowed, passed, left } = self.share(policies, open);
        allowed.join(&passed);
        allowed.join(&left);
        allowed
    }

    fn share(&mut self, policies: &[PolicyId], open: Places) -> Shares {
        let mut shares = Shares { left: open, ..Shares::default() };
        for &policy in policies {
            for id in self.scene.program.policy(policy).rules(Direction::Egress) {
                if shares.left.is_empty() {
                    return shares;
                }
                self.take(id, &mut shares);
            }
        }
        shares
    }

    fn take(&mut self, id: RuleId, shares: &mut Shares) {
        let rule = self.scene.program.rule(id);
        let (sure, mut matched) = match rule.matcher {
            Matcher::Nothing => return,
            Matcher::Everything => (true, everywhere(self.scene)),
            Matcher::Clauses { peers, ports } => {
                let ports = self.scene.program.port_spec(ports);
                let sure = ports.numbered.contains(self.protocol, DNS_PORT);
                if !sure && !ports.named.iter().any(|(protocol, name)| self.may_be_dns(*protocol, name)) {
                    return;
                }
                let set = self.scene.program.peer_set(peers);
                if set.anyone {
                    (sure, everywhere(self.scene))
                } else {
                    (sure, Places { roles: set.roles.clone(), addresses: set.addresses.clone() })
                }
            }
        };
        let mut possible = matched.clone();
        if self.may_be_pods(&matched.addresses) {
            possible.roles = self.scene.roles.clone();
        }
        match rule.action {
            Action::Allow => shares.allowed.join(&shares.left.intersect(&possible)),
            Action::Pass => shares.passed.join(&shares.left.intersect(&possible)),
            Action::Deny => {}
        }
        // Whether a named port is 53 depends on the pod: it may open, and surely closes nothing.
        if sure {
            if rule.action == Action::Deny && self.scene.covers_pods(&matched.addresses) {
                matched.roles = self.scene.roles.clone();
            }
            shares.left.remove(&matched);
            if rule.action == Action::Deny {
                self.last_deny = Some(id);
            }
        }
    }

    /// A pod goes by its Role and by its address: what lets one through may let the other.
    fn may_be_pods(&self, addresses: &AddrSet) -> bool {
        let pods = &self.scene.pod_space;
        if pods.is_empty() { !addresses.is_empty() } else { addresses.within(pods).is_some() }
    }

    fn may_be_dns(&self, protocol: Option<Protocol>, name: &Arc<str>) -> bool {
        protocol.is_none_or(|protocol| protocol == self.protocol) && self.scene.dns_port_names.contains(name)
    }
}

fn everywhere(scene: &Scene<'_>) -> Places {
    let mut addresses = AddrSet::full();
    // A pod opens nothing over a family it has no address of; where none is known, it may have any.
    if !scene.pod_space.is_empty() {
        if scene.pod_space.v4.is_empty() {
            addresses.v4 = IntervalSet::empty();
        }
        if scene.pod_space.v6.is_empty() {
            addresses.v6 = IntervalSet::empty();
        }
    }
    Places { roles: scene.roles.clone(), addresses }
}
