//! The cluster changes a little: from the new Snapshot to a table that is
//! enforced.

use crate::{Judged, snapshot};
use anyhow::Result;
use namewall_bench::figures::{figure, median, milliseconds, quantile, timed};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::Nft;
use namewall_policy::labels::Labels;
use namewall_policy::model::{Placement, Policy, Role, Workload};
use namewall_policy::{Instant, Program, Snapshot, compile, compile_next};
use namewall_sandbox::Namespace;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const TIMES: usize = 15;

pub(crate) fn measure() -> Result<()> {
    let snapshot = snapshot();
    for judged in Judged::BOTH {
        let namespace = Namespace::create()?;
        let program = compile(&snapshot).0;
        let mut live = Live { snapshot: snapshot.clone(), program, nft: judged.open(&namespace)? };
        live.nft.replace(&live.program, Instant::default())?;
        for (name, change) in CHANGES {
            live.measure(&format!("{name}_{}", judged.name()), change)?;
        }
    }
    Ok(())
}

type Change = fn(&mut Snapshot, usize);

const CHANGES: [(&str, Change); 4] =
    [("add_pod", add_pod), ("remove_pod", remove_pod), ("relabel_pod", relabel_pod), ("edit_policy", edit_policy)];

/// A cluster that is enforced.
struct Live {
    snapshot: Snapshot,
    program: Program,
    nft: SingleThreaded<Nft>,
}

impl Live {
    fn measure(&mut self, name: &str, change: Change) -> Result<()> {
        let (mut compiled, mut applied, mut whole, mut operations) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..TIMES {
            let mut next = self.snapshot.clone();
            change(&mut next, number);
            let ((program, _), compiling) = timed(|| compile_next(&self.snapshot, &self.program, &next));
            let (done, applying) = timed(|| self.nft.replace(&program, Instant::default()));
            (self.snapshot, self.program) = (next, program);
            operations.push(done?.operations as f64);
            compiled.push(milliseconds(compiling));
            applied.push(milliseconds(applying));
            whole.push(milliseconds(compiling + applying));
        }
        figure(&format!("{name}_ms"), median(&whole));
        figure(&format!("{name}_slow_ms"), quantile(&whole, 0.9));
        figure(&format!("{name}_compile_ms"), median(&compiled));
        figure(&format!("{name}_apply_ms"), median(&applied));
        figure(&format!("{name}_operations"), median(&operations));
        Ok(())
    }
}

/// Pods of one node that a policy of their own is for, in turn.
fn nth_pod(snapshot: &Snapshot, number: usize) -> usize {
    let here =
        |workload: &Workload| workload.node == Some(Judged::NODE) && !workload.host_network && !workload.is_vacant();
    let chosen = |at: &usize| {
        let workload = &snapshot.workloads[*at];
        here(workload) && own_policy(snapshot, snapshot.role(workload.role)).is_some()
    };
    let places: Vec<usize> = (0..snapshot.workloads.len()).filter(chosen).collect();
    places[(number * 7 + 3) % places.len()]
}

/// A NetworkPolicy for these pods, and not for all of their namespace.
fn own_policy(snapshot: &Snapshot, role: &Role) -> Option<usize> {
    let namespace = &snapshot.namespace(role.namespace).name;
    snapshot.policies.iter().position(|policy| {
        let pods = &policy.subject.pods.pods;
        is_network(policy)
            && policy.id.namespace.as_ref() == Some(namespace)
            && !pods.is_everything()
            && pods.matches(&role.labels)
    })
}

fn is_network(policy: &Policy) -> bool {
    matches!(policy.placement, Placement::Network { .. })
}

/// One more replica of an application.
fn add_pod(snapshot: &mut Snapshot, number: usize) {
    let like = snapshot.workloads[nth_pod(snapshot, number)].clone();
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 200, 0, 1).to_bits() + number as u32);
    let name = format!("{}-more-{number}", like.name).into();
    snapshot.add_workload(Workload { name, addresses: [IpAddr::V4(address)].into(), ..like });
}

fn remove_pod(snapshot: &mut Snapshot, number: usize) {
    let at = nth_pod(snapshot, number);
    let vacated = snapshot.workloads[at].vacated();
    snapshot.workloads.set(at, vacated);
}

/// It becomes a pod of another application.
fn relabel_pod(snapshot: &mut Snapshot, number: usize) {
    let at = nth_pod(snapshot, number);
    let role = snapshot.role(snapshot.workloads[at].role).clone();
    let changed = role.labels.iter().map(|(key, value)| (key, if key == "app" { "canary" } else { value }));
    let labels: Labels = changed.collect();
    let role = snapshot.role_of(Role { labels, ..role });
    let changed = Workload { role, ..snapshot.workloads[at].clone() };
    snapshot.workloads.set(at, changed);
}

/// A rule more in a policy of a pod, one that another policy has.
fn edit_policy(snapshot: &mut Snapshot, number: usize) {
    let role = snapshot.role(snapshot.workloads[nth_pod(snapshot, number)].role);
    let edited = own_policy(snapshot, role);
    let mut other =
        snapshot.policies.iter().filter(|policy| is_network(policy)).filter_map(|policy| policy.ingress.first());
    let rule = other.nth(number * 5).cloned();
    if let (Some(at), Some(rule)) = (edited, rule) {
        Arc::make_mut(&mut snapshot.policies)[at].ingress.push(rule);
    }
}
