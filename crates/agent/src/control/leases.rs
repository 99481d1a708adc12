//! `namewall leases`: what is open or denied by name.

use crate::state::State;
use namewall_dataplane::Dataplane;
use namewall_policy::domain::{DomainName, RulePattern};
use namewall_policy::explain::describe_rule;
use namewall_policy::model::Direction;
use namewall_policy::program::{Matcher, RuleId};
use namewall_policy::{Instant, Lease, Program, Snapshot};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Leases that count now, sorted by name and address.
pub(super) fn leases<D: Dataplane>(state: &State<D>, question: &Value) -> Result<Value, String> {
    let wanted: Option<DomainName> =
        question["name"].as_str().map(str::parse).transpose().map_err(|error| format!("{error}"))?;
    let (program, now) = (state.node.program(), state.node.now());
    // A lease whose rule is gone opens nothing.
    let patterns: HashSet<&RulePattern> = program.patterns.iter().map(|(_, pattern)| pattern).collect();
    let is_wanted = |lease: &Lease| {
        lease.expiry > now
            && patterns.contains(&lease.pattern)
            && wanted.as_ref().is_none_or(|name| lease.name == *name || lease.name.is_under(name))
    };
    let mut open: Vec<Lease> = state.node.with_leases(|leases| leases.all().filter(is_wanted).collect());
    open.sort_by(|a, b| (&a.name, a.address, &a.pattern).cmp(&(&b.name, b.address, &b.pattern)));
    let listed: Vec<Value> = open.iter().map(|lease| describe(state, lease, now)).collect();
    Ok(json!({ "leases": listed }))
}

fn describe<D: Dataplane>(state: &State<D>, lease: &Lease, now: Instant) -> Value {
    let program = state.node.program();
    let asked_by = lease.asked_by.map(|address| match program.endpoint_at(address).workload {
        Some(id) => state.snapshot.workload_name(id),
        None => address.to_string(),
    });
    json!({
        "name": lease.name.as_str(),
        "address": lease.address.to_string(),
        "pattern": lease.pattern.to_string(),
        "effect": lease.pattern.effect.to_string(),
        "rules": rules_of(&state.snapshot, program, &lease.pattern),
        "askedBy": asked_by,
        "answer": state.node.learner().origin(lease).map(|origin| json!({
            "upstream": origin.upstream.map(|server| server.to_string()),
            "ttl": origin.ttl,
            "owners": origin.owners.iter().map(|owner| owner.as_str()).collect::<Vec<_>>(),
        })),
        "secondsLeft": lease.expiry.0.saturating_sub(now.0).as_secs(),
    })
}

/// The egress rules that have this pattern.
pub fn rules_of(snapshot: &Snapshot, program: &Program, pattern: &RulePattern) -> Vec<String> {
    let has_pattern = |matcher: &Matcher| match matcher {
        Matcher::Clauses { peers, .. } => {
            program.peer_set(*peers).domains.iter().any(|id| program.patterns.get(*id) == pattern)
        }
        _ => false,
    };
    let rules = program.rules.iter().enumerate();
    let found = rules.filter(|(_, rule)| rule.direction == Direction::Egress && has_pattern(&rule.matcher));
    found.map(|(at, _)| describe_rule(snapshot, program, RuleId(at as u32))).collect()
}
