//! `namewall policies`.

use crate::cli::{Format, Policies};
use crate::input::{Loaded, Origin};
use crate::output::{self, GOOD, SOFT, STRONG, WARN};
use anyhow::Result;
use namewall_policy::model::{Direction, Enforcement, Placement, PolicyId};
use namewall_policy::program::Plan;
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run<I: Origin>(args: &Policies<I>) -> Result<ExitCode> {
    let loaded = args.input.load()?;
    loaded.report_errors();
    let id = loaded.world().workload(&args.workload)?;
    let class = loaded.program.class(loaded.program.member(id).class);
    // Audited policies are shown where they would stand.
    let plan = class.audited.as_ref().unwrap_or(&class.enforced);
    let workload = loaded.snapshot.workload(id);
    let labels = &loaded.snapshot.role(workload.role).labels;
    let name = loaded.snapshot.workload_name(id);
    let mut out = output::stdout();
    match args.output {
        Format::Text => {
            writeln!(out, "{STRONG}{name}{STRONG:#} {SOFT}{} · {labels}{SOFT:#}", workload.kind)?;
            if workload.host_network {
                writeln!(out, "  is on its node's network: no policy applies to it")?;
            }
            for (title, policies, direction) in stages(plan) {
                if policies.is_empty() && !is_isolation_by_namespace(&loaded, plan, title) {
                    continue;
                }
                writeln!(out, "{title}")?;
                for &id in policies {
                    print_policy(&mut out, &loaded, id, direction)?;
                    if plan.in_doubt.contains(&id) {
                        writeln!(out, "    {WARN}depends{WARN:#}: {}", on_node(&name))?;
                    }
                }
                if is_isolation_by_namespace(&loaded, plan, title) {
                    writeln!(out, "  the Namespace isolates its pods (annotation)")?;
                }
            }
            for direction in [Direction::Egress, Direction::Ingress] {
                let isolated = class.enforced.tiers(direction).isolated;
                let (style, text) = if isolated {
                    (WARN, "isolated: only what a rule allows")
                } else {
                    (GOOD, "not isolated by a NetworkPolicy")
                };
                writeln!(out, "{direction}: {style}{text}{style:#}")?;
            }
        }
        Format::Json => {
            let stages: Vec<Value> = stages(plan)
                .into_iter()
                .filter(|(_, policies, _)| !policies.is_empty())
                .map(|(title, policies, direction)| {
                    let of_policy = |id: &PolicyId| {
                        let mut value = policy_json(&loaded, *id, direction);
                        if plan.in_doubt.contains(id) {
                            value["dependsOn"] = json!([{ "text": on_node(&name), "on": "node", "of": name }]);
                        }
                        value
                    };
                    json!({
                        "stage": title,
                        "direction": direction.to_string(),
                        "policies": policies.iter().map(of_policy).collect::<Vec<_>>(),
                    })
                })
                .collect();
            let value = json!({
                "workload": name,
                "kind": workload.kind.name(),
                "labels": labels.iter().collect::<std::collections::BTreeMap<_, _>>(),
                "hostNetwork": workload.host_network,
                "isolated": { "egress": class.enforced.egress.isolated, "ingress": class.enforced.ingress.isolated },
                "stages": stages,
                "unread": loaded.unread.json(),
            });
            output::print_json(&mut out, &value)?;
        }
    }
    out.flush()?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

/// What a policy for certain nodes depends on, for a workload whose node is not known (S10.5).
fn on_node(workload: &str) -> String {
    format!("it applies only if {workload} runs on a node that it is for")
}

const INGRESS_NETWORK: &str = "ingress, NetworkPolicy tier";

fn stages(plan: &Plan) -> [(&'static str, &[PolicyId], Direction); 8] {
    [
        ("cluster gate", &plan.cluster_gate, Direction::Egress),
        ("namespace gate", &plan.namespace_gate, Direction::Egress),
        ("egress, admin tier", &plan.egress.admin, Direction::Egress),
        ("egress, NetworkPolicy tier", &plan.egress.network, Direction::Egress),
        ("egress, baseline tier", &plan.egress.baseline, Direction::Egress),
        ("ingress, admin tier", &plan.ingress.admin, Direction::Ingress),
        (INGRESS_NETWORK, &plan.ingress.network, Direction::Ingress),
        ("ingress, baseline tier", &plan.ingress.baseline, Direction::Ingress),
    ]
}

/// The annotation of `extensions/v1beta1`: isolated, and by no policy that isolates.
fn is_isolation_by_namespace(loaded: &Loaded, plan: &Plan, title: &str) -> bool {
    let isolates = |id: &PolicyId| loaded.program.isolates(*id, Direction::Ingress);
    title == INGRESS_NETWORK && plan.ingress.isolated && !plan.ingress.network.iter().any(isolates)
}

fn print_policy(out: &mut impl Write, loaded: &Loaded, id: PolicyId, direction: Direction) -> Result<()> {
    let policy = loaded.snapshot.policy(id);
    let rules = policy.rules(direction).len();
    let priority = priority(policy.placement).map(|priority| format!(" priority {priority},")).unwrap_or_default();
    let audit = if policy.enforcement == Enforcement::Audit { " (audit)" } else { "" };
    let place = policy.source.as_ref().map(|source| format!("  {source}")).unwrap_or_default();
    let plural = if rules == 1 { "" } else { "s" };
    writeln!(
        out,
        "  {}{audit}{SOFT}{priority} {rules} {direction} rule{plural}, for {}{place}{SOFT:#}",
        policy.id, policy.subject
    )?;
    Ok(())
}

fn policy_json(loaded: &Loaded, id: PolicyId, direction: Direction) -> Value {
    let policy = loaded.snapshot.policy(id);
    json!({
        "policy": policy.id.to_string(),
        "kind": policy.id.kind.name(),
        "namespace": policy.id.namespace.as_deref(),
        "name": &*policy.id.name,
        "priority": priority(policy.placement),
        "audit": policy.enforcement == Enforcement::Audit,
        "rules": policy.rules(direction).len(),
        "source": policy.source.as_ref().map(output::source_json),
    })
}

fn priority(placement: Placement) -> Option<i32> {
    match placement {
        Placement::ClusterGate { priority } | Placement::Admin { priority } => Some(priority),
        Placement::Baseline { priority } => priority,
        Placement::NamespaceGate | Placement::Network { .. } => None,
    }
}
