//! `namewall policies`.

use crate::cli::{Format, Policies};
use crate::input::{Loaded, Origin};
use crate::output::{self, GOOD, SOFT, STRONG, WARN};
use anyhow::Result;
use namewall_policy::labels::Labels;
use namewall_policy::model::{Direction, Enforcement, Placement, PolicyId, Workload, WorkloadId};
use namewall_policy::program::{Class, Plan};
use serde_json::{Value, json};
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

pub(crate) fn run<I: Origin>(args: &Policies<I>) -> Result<ExitCode> {
    let loaded = args.input.load()?;
    loaded.report_errors();
    let id = loaded.world().workload(&args.workload)?;
    let class = loaded.program.class(loaded.program.member(id).class);
    let shown = Shown { loaded: &loaded, id, class, name: loaded.snapshot.workload_name(id) };
    let mut out = output::stdout();
    let printed = match args.output {
        Format::Text => shown.print(&mut out).and_then(|()| Ok(out.flush()?)),
        Format::Json => output::print_json(&mut out, &shown.json()),
    };
    output::unless_closed(printed)?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

/// A workload and the policies that apply to it.
struct Shown<'a> {
    loaded: &'a Loaded,
    id: WorkloadId,
    class: &'a Class,
    name: String,
}

impl Shown<'_> {
    /// Audited policies are shown where they would stand.
    fn plan(&self) -> &Plan {
        self.class.audited.as_ref().unwrap_or(&self.class.enforced)
    }

    fn workload(&self) -> &Workload {
        self.loaded.snapshot.workload(self.id)
    }

    fn labels(&self) -> &Labels {
        &self.loaded.snapshot.role(self.workload().role).labels
    }

    fn print(&self, out: &mut impl Write) -> Result<()> {
        let name = &self.name;
        writeln!(out, "{STRONG}{name}{STRONG:#} {SOFT}{} · {}{SOFT:#}", self.workload().kind, self.labels())?;
        if self.workload().host_network {
            writeln!(out, "  is on its node's network: no policy applies to it")?;
        }
        for (address, others) in self.sharing() {
            let others = others.join(", ");
            writeln!(out, "  {WARN}shares {address} with {others}{WARN:#}: the policies of all must allow")?;
        }
        for plan in self.plan().each() {
            self.print_plan(out, plan)?;
        }
        for direction in [Direction::Egress, Direction::Ingress] {
            let isolated = self.is_isolated(direction);
            let (style, text) = if isolated {
                (WARN, "isolated: only what a rule allows")
            } else {
                (GOOD, "not isolated by a NetworkPolicy")
            };
            writeln!(out, "{direction}: {style}{text}{style:#}")?;
        }
        Ok(())
    }

    fn print_plan(&self, out: &mut impl Write, plan: &Plan) -> Result<()> {
        let Self { loaded, name, .. } = self;
        for (title, policies, direction) in stages(plan) {
            if policies.is_empty() && !is_isolation_by_namespace(loaded, plan, title) {
                continue;
            }
            writeln!(out, "{title}")?;
            for &id in policies {
                print_policy(out, loaded, id, direction)?;
                if plan.in_doubt.contains(&id) {
                    writeln!(out, "    {WARN}depends{WARN:#}: {}", on_node(name))?;
                }
            }
            if is_isolation_by_namespace(loaded, plan, title) {
                writeln!(out, "  the Namespace isolates its pods (DefaultDeny)")?;
            }
        }
        Ok(())
    }

    fn is_isolated(&self, direction: Direction) -> bool {
        self.class.enforced.each().any(|plan| plan.tiers(direction).isolated)
    }

    /// The addresses that other pods claim too, and those pods (S1.9).
    fn sharing(&self) -> Vec<(IpAddr, Vec<String>)> {
        let Loaded { snapshot, program, .. } = self.loaded;
        let others = |address: &IpAddr| {
            let others = program.sharing(*address).iter().filter(|id| **id != self.id);
            others.map(|&id| snapshot.workload_name(id)).collect::<Vec<_>>()
        };
        let shared = self.workload().addresses.iter().map(|address| (*address, others(address)));
        shared.filter(|(_, others)| !others.is_empty()).collect()
    }

    fn json(&self) -> Value {
        let stages = self.plan().each().flat_map(stages).filter(|(_, policies, _)| !policies.is_empty());
        let stages = stages.map(|(title, policies, direction)| {
            let policies: Vec<Value> = policies.iter().map(|&id| self.policy_json(id, direction)).collect();
            json!({ "stage": title, "direction": direction.to_string(), "policies": policies })
        });
        let sharing = self.sharing().into_iter();
        let sharing = sharing.map(|(address, with)| json!({ "address": address.to_string(), "with": with }));
        json!({
            "workload": self.name,
            "kind": self.workload().kind.name(),
            "labels": self.labels().iter().collect::<std::collections::BTreeMap<_, _>>(),
            "hostNetwork": self.workload().host_network,
            "sharesAddress": sharing.collect::<Vec<_>>(),
            "isolated": {
                "egress": self.is_isolated(Direction::Egress),
                "ingress": self.is_isolated(Direction::Ingress),
            },
            "stages": stages.collect::<Vec<_>>(),
            "unread": self.loaded.unread.json(),
        })
    }

    fn policy_json(&self, id: PolicyId, direction: Direction) -> Value {
        let mut value = policy_json(self.loaded, id, direction);
        if self.plan().all_in_doubt().any(|doubtful| doubtful == id) {
            value["dependsOn"] = json!([{ "text": on_node(&self.name), "on": "node", "of": self.name }]);
        }
        value
    }
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
