//! The chains of a Class: its gates, its tiers, in the order of S1.
//!
//! ```text
//! egress map ─► egress/… ─┬─ jump gate/…             Allow returns, Deny drops
//!                         ├─ jump EgressFirewall/…   the same; not for the pod network
//!                         ├─ jump admin/…            Allow accepts, Pass returns
//!                         └─ jump network/…          Allow accepts, the end drops
//!                            or baseline/…           Allow accepts, the end returns
//! ```
//! `accept` ends only the base chain of this direction: the packet goes on to
//! the base chain of the other. What returns to the end is accepted. Accepting
//! is done in the chain `allowed`, which all of them go to.

use super::joined::{JoinableTier, JoinableTiers};
use super::names::{COMMENT, LABEL, by_content, chain_name, digest, shorten};
use super::rules::{RuleWriter, Run, runs};
use super::{ALLOWED, LOG_BURST, LOG_RATE, Render};
use crate::nflog::{DENY, WOULD_DENY};
use crate::nft::rule::{Action as Do, End, Rule, Test, Walk};
use crate::nft::set::{POD_NETWORK, PODS, Version};
use crate::nft::table::{Chain, Fallback, Table};
use namewall_policy::model::{Action, Direction, PolicyId};
use namewall_policy::program::{Plan, Tiers};
use rustc_hash::FxHashSet;

/// Whether denials are made, or only told of (S11).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    Enforce,
    Audit,
}

impl Mode {
    /// What the name of a chain begins with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Enforce => "",
            Self::Audit => "audit/",
        }
    }

    /// Just before other tables' filter chains: after DNAT, before SNAT. Ingress
    /// comes one after egress, and what is audited after what is enforced.
    pub(crate) fn priority(self) -> i32 {
        match self {
            Self::Enforce => -4,
            Self::Audit => -2,
        }
    }

    pub(crate) fn walks(self) -> (Walk, Walk) {
        match self {
            Self::Enforce => (Walk::Egress, Walk::Ingress),
            Self::Audit => (Walk::AuditEgress, Walk::AuditIngress),
        }
    }

    /// What a comment begins with.
    pub(crate) fn comment(self) -> &'static str {
        match self {
            Self::Enforce => "",
            Self::Audit => AUDIT,
        }
    }

    /// What a log line begins with.
    fn log(self) -> &'static str {
        match self {
            Self::Enforce => DENY,
            Self::Audit => WOULD_DENY,
        }
    }

    /// How an allowance ends.
    pub(crate) fn allowance(self) -> Do {
        match self {
            Self::Enforce => Do::Goto(ALLOWED.to_owned()),
            Self::Audit => Do::Accept,
        }
    }

    /// What is at the end of a base chain.
    pub(crate) fn fallback(self) -> Fallback {
        match self {
            Self::Enforce => Fallback::Drop,
            Self::Audit => Fallback::Accept,
        }
    }

    /// How a denial ends.
    fn denial(self) -> Do {
        match self {
            Self::Enforce => Do::Drop,
            Self::Audit => Do::Accept,
        }
    }
}

/// How the rules of a stage end.
struct Ends {
    /// None where allowing does not count.
    allow: Option<Do>,
    pass: Do,
}

pub(crate) struct Stages<'a> {
    pub(crate) render: &'a Render<'a>,
    pub(crate) writer: &'a RuleWriter<'a>,
    pub(crate) table: &'a mut Table,
    /// The NetworkPolicy tiers that were made.
    pub(crate) joinable: &'a mut JoinableTiers,
    pub(crate) mode: Mode,
    /// The chain that judges what is allowed here, where several pods share an address (S1.9).
    pub(crate) then: Option<String>,
}

impl Stages<'_> {
    /// The chain of a plan, if it has anything to say in this direction. Of plans that must all allow, each goes on to
    /// the next where it would accept; the last accepts.
    pub(crate) fn plan(&mut self, plan: &Plan, direction: Direction) -> Option<String> {
        let mut first = None;
        for plan in plan.each().rev() {
            let (render, writer, mode) = (self.render, self.writer, self.mode);
            let (table, joinable) = (&mut *self.table, &mut *self.joinable);
            let mut stages = Stages { joinable, render, writer, table, mode, then: first.clone() };
            first = stages.one_plan(plan, direction).or(first);
        }
        first
    }

    /// How an allowance of a plan ends.
    pub(super) fn allowance(&self) -> Do {
        self.then.as_ref().map_or_else(|| self.mode.allowance(), |chain| Do::Goto(chain.clone()))
    }

    /// What the names of chains begin with that allow.
    fn prefix(&self) -> String {
        let then = self.then.as_ref().map(|chain| format!("{:08x}-then/", digest([chain]) as u32));
        format!("{}{}", self.mode.prefix(), then.unwrap_or_default())
    }

    fn one_plan(&mut self, plan: &Plan, direction: Direction) -> Option<String> {
        let mut stages = Vec::new();
        if direction == Direction::Egress {
            stages.extend(self.cluster_gate(&plan.cluster_gate, &plan.in_doubt));
            stages.extend(self.node_port_gate(plan));
            stages.extend(self.namespace_gate(&plan.namespace_gate));
        }
        let tiers = plan.tiers(direction);
        stages.extend(self.admin(&tiers.admin, direction));
        stages.extend(self.last(tiers, direction));
        match stages.as_slice() {
            [] => None,
            // It decides whatever comes there.
            [only] if tiers.isolated => Some(only.clone()),
            _ => Some(self.then_allow(&format!("{direction}"), &stages)),
        }
    }

    /// One stage after another; what passes all of them is allowed.
    pub(super) fn then_allow(&mut self, kind: &str, stages: &[String]) -> String {
        let name = by_content(&format!("{}{kind}", self.prefix()), stages);
        let allow = self.allowance();
        self.chain(&name, |this| {
            let jump = |stage: &String| Rule::new([], Do::Jump(stage.clone()));
            let policies = stages.iter().filter_map(|stage| this.table.chains.get(stage)?.comment.as_deref());
            let about = policies.collect::<Vec<_>>().join(", ");
            described(stages.iter().map(jump).chain([Rule::new([], allow)]).collect(), &about)
        });
        name
    }

    /// Makes a chain unless it is there.
    pub(super) fn chain(&mut self, name: &str, chain: impl FnOnce(&mut Self) -> Chain) {
        if self.table.chains.contains_key(name) {
            return;
        }
        let chain = chain(self);
        self.table.chains.insert(name.to_owned(), chain);
    }

    /// The names of policies, for a comment.
    pub(super) fn listed<'p>(&self, policies: impl IntoIterator<Item = &'p PolicyId>) -> String {
        let names: Vec<&str> = policies.into_iter().map(|policy| self.render.policy_name(*policy)).collect();
        names.join(", ")
    }

    pub(crate) fn cluster_gate(&mut self, policies: &[PolicyId], in_doubt: &[PolicyId]) -> Option<String> {
        if policies.is_empty() {
            return None;
        }
        let is_sure = |policy: &PolicyId| !in_doubt.contains(policy);
        let name = self.list_name("gate", policies.iter().map(|policy| (*policy, is_sure(policy))));
        self.chain(&name, |stages| {
            let mut rules = Vec::new();
            for policy in policies {
                match is_sure(policy) {
                    true => rules.extend(stages.gate_rules(*policy, true)),
                    false => rules.push(Rule::new([], Do::Jump(stages.doubtful_chain(*policy)))),
                }
            }
            described(repeated_last(rules), &stages.listed(policies))
        });
        Some(name)
    }

    /// A firewall that may be for other nodes. It counts only if its first match denies: in a chain of its own, an
    /// Allow returns to the next policy of the gate.
    fn doubtful_chain(&mut self, policy: PolicyId) -> String {
        let chain = self.render.chain_of(policy, Direction::Egress);
        let name = chain_name(&format!("{}doubtful-{chain}", self.mode.prefix()));
        self.chain(&name, |stages| {
            let about = format!("{}, which may be for other nodes", stages.render.policy_name(policy));
            described(stages.gate_rules(policy, true), &about)
        });
        name
    }

    /// A chain that asks all of these; the chain itself if there is one.
    pub(super) fn one_after_another(&mut self, chains: &[String]) -> Option<String> {
        if let [] | [_] = chains {
            return chains.first().cloned();
        }
        let name = by_content(&format!("{}gates", self.mode.prefix()), chains);
        let jump = |chain: &String| Rule::new([], Do::Jump(chain.clone()));
        self.chain(&name, |_| described(chains.iter().map(jump).collect(), "pods that share an address"));
        Some(name)
    }

    pub(super) fn gate_rules(&mut self, policy: PolicyId, allows: bool) -> Vec<Rule> {
        let ends = Ends { allow: allows.then_some(Do::Return), pass: Do::Return };
        self.rules(policy, Direction::Egress, &ends)
    }

    fn namespace_gate(&mut self, policies: &[PolicyId]) -> Option<String> {
        let policies: Vec<(PolicyId, bool)> = policies.iter().map(|policy| (*policy, true)).collect();
        self.outward_gate(&policies)
    }

    /// Only for destinations outside the pod network. With each policy, whether its Allow rules count.
    pub(super) fn outward_gate(&mut self, policies: &[(PolicyId, bool)]) -> Option<String> {
        if policies.is_empty() {
            return None;
        }
        let name = self.list_name("namespace-gate", policies.iter().copied());
        self.chain(&name, |stages| {
            let end = End::Destination;
            let mut rules: Vec<Rule> = Vec::new();
            for version in Version::BOTH {
                for set in [POD_NETWORK[version], PODS[version]] {
                    let within = Test::Within { end, version, set: set.to_owned() };
                    rules.push(Rule::new([within], Do::Return).about("EgressFirewalls are not for pods"));
                }
            }
            for &(policy, allows) in policies {
                rules.extend(stages.gate_rules(policy, allows));
            }
            described(repeated_last(rules), &stages.listed(policies.iter().map(|(policy, _)| policy)))
        });
        Some(name)
    }

    /// Rules stand in the list's own chain, since Pass must leave all of it.
    fn admin(&mut self, policies: &[PolicyId], direction: Direction) -> Option<String> {
        if policies.is_empty() {
            return None;
        }
        let text = |policy: &PolicyId| format!("true {}", self.render.policy_name(*policy));
        let name = by_content(&format!("{}admin-{direction}", self.prefix()), policies.iter().map(text));
        self.chain(&name, |stages| {
            let ends = Ends { allow: Some(stages.allowance()), pass: Do::Return };
            let rules = policies.iter().flat_map(|policy| stages.rules(*policy, direction, &ends)).collect();
            described(repeated_last(rules), &stages.listed(policies))
        });
        Some(name)
    }

    /// The NetworkPolicy tier where it is decisive, else the baseline.
    fn last(&mut self, tiers: &Tiers, direction: Direction) -> Option<String> {
        let (kind, policies) = match tiers.isolated {
            true => ("network", &tiers.network),
            false => ("baseline", &tiers.baseline),
        };
        if policies.is_empty() && !tiers.isolated {
            return None;
        }
        let chains: Vec<String> = policies.iter().map(|policy| self.policy_chain(*policy, direction)).collect();
        let kind = format!("{}{kind}-{direction}", self.prefix());
        let name = by_content(&kind, &chains);
        self.chain(&name, |stages| {
            let mut rules: Vec<Rule> = chains.iter().map(|chain| Rule::new([], Do::Jump(chain.clone()))).collect();
            if tiers.isolated {
                let (mode, allowance) = (stages.mode, stages.allowance());
                let tier = JoinableTier { policies: policies.clone(), direction, mode, allowance };
                stages.joinable.insert(name.clone(), tier);
                rules.extend(stages.denial(&stages.isolation(policies, direction)));
            }
            described(rules, &stages.listed(policies))
        });
        Some(name)
    }

    /// Who isolates, for the log: one policy by name stands for all.
    fn isolation(&self, policies: &[PolicyId], direction: Direction) -> String {
        let program = self.render.program;
        let mut isolating = policies.iter().filter(|policy| program.isolates(**policy, direction));
        match isolating.next() {
            Some(first) => format!("{ISOLATED}{direction} by {}", program.policy(*first).id),
            None => format!("{ISOLATED}{direction}"),
        }
    }

    /// The rules of one policy; here it does not matter what list it is in.
    fn policy_chain(&mut self, policy: PolicyId, direction: Direction) -> String {
        let name = chain_name(&format!("{}{}", self.prefix(), self.render.chain_of(policy, direction)));
        // In a last stage, to leave the tier is to come to the default.
        let ends = Ends { allow: Some(self.allowance()), pass: self.allowance() };
        self.chain(&name, |stages| {
            let about = format!("{} {direction}", stages.render.policy_name(policy));
            described(stages.rules(policy, direction, &ends), &about)
        });
        name
    }

    fn rules(&mut self, policy: PolicyId, direction: Direction, ends: &Ends) -> Vec<Rule> {
        let mut rules = Vec::new();
        for run in &runs(self.render.program, policy, direction) {
            let end = match run.action {
                Action::Allow => ends.allow.clone(),
                Action::Pass => Some(ends.pass.clone()),
                Action::Deny => Some(Do::Goto(self.deny_chain(run))),
            };
            if let Some(end) = end {
                rules.extend(self.write(run, &end));
            }
        }
        rules
    }

    /// Every rule that denies has a chain of its own, which counts and tells of it.
    pub(super) fn deny_chain(&mut self, run: &Run) -> String {
        let label = run.label(self.render.program);
        let name = chain_name(&format!(
            "{}deny/{}/{}",
            self.mode.prefix(),
            self.render.chain_of(run.policy, run.direction),
            run.indices.start()
        ));
        self.chain(&name, |stages| {
            let (policy, first) = (stages.render.policy_name(run.policy), run.indices.start());
            let about = format!("denied by {policy} {} rule {first}", run.direction);
            described(stages.denial(&label), &about)
        });
        name
    }

    fn denial(&self, label: &str) -> Vec<Rule> {
        let begins = self.mode.log();
        let prefix = format!("{begins}{}", shorten(label, LOG_PREFIX - begins.len()));
        let limit = Test::AtMost { a_second: LOG_RATE, burst: LOG_BURST };
        let log = Rule::new([limit], Do::Log { group: self.render.scope.log_group, prefix });
        let deny = Rule {
            tests: Vec::new(),
            actions: vec![Do::Count, self.mode.denial()],
            comment: Some(format!("{}{}", self.mode.comment(), shorten(label, LABEL))),
        };
        vec![log, deny]
    }

    pub(super) fn list_name(&self, kind: &str, policies: impl Iterator<Item = (PolicyId, bool)>) -> String {
        let kind = format!("{}{kind}", self.mode.prefix());
        let text = |(policy, allows): (PolicyId, bool)| format!("{allows} {}", self.render.policy_name(policy));
        by_content(&kind, policies.map(text))
    }
}

/// A chain with a comment on what it is there for.
pub(super) fn described(rules: Vec<Rule>, about: &str) -> Chain {
    let comment = (!about.is_empty()).then(|| shorten(about, COMMENT));
    Chain { hook: None, rules, comment }
}

/// A rule that tests the same as one before it, which ends the list, never matches. Such rules stand after the end of
/// the list, where no packet meets them: operators still see them, and that they have counted nothing.
fn repeated_last(rules: Vec<Rule>) -> Vec<Rule> {
    let mut seen: FxHashSet<String> = FxHashSet::default();
    let is_repeated = |rule: &Rule| {
        let tests: Vec<String> = rule.tests.iter().map(Test::to_string).collect();
        let ends = matches!(rule.actions.last(), Some(Do::Goto(_) | Do::Return | Do::Accept | Do::Drop));
        ends && !seen.insert(tests.join(" "))
    };
    let (repeated, mut list): (Vec<Rule>, Vec<Rule>) = rules.into_iter().partition(is_repeated);
    if !repeated.is_empty() {
        list.push(Rule::new([], Do::Return));
        list.extend(repeated);
    }
    list
}

/// What a denial is called that no rule makes, but that there is none which allows.
pub(crate) const ISOLATED: &str = "isolated for ";

/// What the rules of policies that are only audited are called after.
pub(crate) const AUDIT: &str = "audit: ";

/// The kernel cuts a prefix at 127 bytes.
const LOG_PREFIX: usize = 127;
