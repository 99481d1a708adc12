//! The workload that a pod is a replica of, from its owner references.
//!
//! A Deployment's pods name its ReplicaSet as their owner, and a CronJob's pods
//! name a Job. Those are often not in the input (`kubectl get deployments,pods`),
//! so the pod's own labels and the names that the controllers give are enough.

use super::workloads::Described;
use namewall_policy::labels::Labels;
use namewall_policy::model::Owner;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The label by which a Deployment tells the pods of its ReplicaSets apart.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// The same of an Argo Rollout, which makes ReplicaSets too.
const ROLLOUT_HASH: &str = "rollouts-pod-template-hash";
/// A CronJob ends the name of a Job in the minutes since 1970. These bounds are
/// the years 2017 to 2084; a date such as 20261231 is below them.
const MINUTES: std::ops::RangeInclusive<u64> = 25_000_000..=60_000_000;

/// The workload above the owner, as far as a pod alone can say.
pub(crate) fn workload_of_owner(owner: &Owner, labels: &Labels) -> Option<Owner> {
    match &*owner.kind {
        // A static pod belongs to its node. That is a place, not a workload.
        "Node" => None,
        "ReplicaSet" => Some(deployment_of(owner, labels).unwrap_or_else(|| owner.clone())),
        "Job" => Some(cron_job_of(owner).unwrap_or_else(|| owner.clone())),
        _ => Some(owner.clone()),
    }
}

fn deployment_of(set: &Owner, labels: &Labels) -> Option<Owner> {
    let (kind, hash) = [("Deployment", TEMPLATE_HASH), ("Rollout", ROLLOUT_HASH)]
        .into_iter()
        .find_map(|(kind, label)| Some((kind, labels.get(label)?)))?;
    let name = set.name.strip_suffix(hash)?.strip_suffix('-').filter(|name| !name.is_empty())?;
    Some(Owner { kind: kind.into(), name: name.into() })
}

fn cron_job_of(job: &Owner) -> Option<Owner> {
    let (name, minutes) = job.name.rsplit_once('-').filter(|(name, _)| !name.is_empty())?;
    let is_time = minutes.len() == 8 && minutes.parse().is_ok_and(|minutes| MINUTES.contains(&minutes));
    is_time.then(|| Owner { kind: "CronJob".into(), name: name.into() })
}

/// Owners of pods that the input's own ReplicaSets and Jobs say more about than names do.
pub(super) fn follow(pods: &mut [Described], templates: &[Described]) {
    let mut above: FxHashMap<_, Arc<Owner>> = FxHashMap::default();
    for template in templates {
        if let Some(owner) = &template.owner {
            above.insert(template.key(), owner.clone());
        }
    }
    for pod in pods {
        if let Some(found) = pod.owner().and_then(|owner| above.get(&owner)) {
            pod.workload = Some(found.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &str) -> Owner {
        let (kind, name) = text.split_once('/').expect("KIND/NAME");
        Owner { kind: kind.into(), name: name.into() }
    }

    fn check(of: &str, label: &str, value: &str, expected: &str) {
        let labels: Labels = [("app", "web"), (label, value)].into_iter().collect();
        let found = workload_of_owner(&owner(of), &labels);
        let text = found.map_or(String::new(), |owner| format!("{}/{}", owner.kind, owner.name));
        assert_eq!(text, expected, "{of} {label}={value}");
    }

    #[test]
    fn the_owner_of_a_pod_is_followed_to_its_workload() {
        check("ReplicaSet/web-6b9", "pod-template-hash", "6b9", "Deployment/web");
        check("ReplicaSet/web-6b9", "rollouts-pod-template-hash", "6b9", "Rollout/web");
        check("ReplicaSet/web-6b9", "pod-template-hash", "other", "ReplicaSet/web-6b9");
        check("ReplicaSet/web", "tier", "x", "ReplicaSet/web");
        check("StatefulSet/db", "apps.kubernetes.io/pod-index", "0", "StatefulSet/db");
        check("Job/backup-28391820", "job-name", "backup-28391820", "CronJob/backup");
        check("Job/import-20261231", "job-name", "import-20261231", "Job/import-20261231");
        check("Job/import", "job-name", "import", "Job/import");
        check("Node/worker-1", "component", "etcd", "");
        check("CloneSet/web", "a", "b", "CloneSet/web");
    }
}
