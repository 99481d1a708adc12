//! Lints: what is legal, and probably not what was meant. Nothing here changes
//! a verdict; what could not be read at all was reported when it was read.
//!
//! One file a family. Every lint asks once a policy, a rule or a Class, never
//! once a pod, and claims only what is certain: where the cluster is not known
//! well enough (no workloads, no nodes), it stays silent.

mod api_server;
mod claims;
mod closed;
mod cover;
mod dns;
mod families;
mod kinds;
mod names;
mod networks;
mod pieces;
mod ports;
mod priority;
mod report;
mod scene;
mod selects;
mod shadow;

use crate::finding::Finding;
use crate::program::Program;
use crate::snapshot::Snapshot;
use report::Report;
use scene::Scene;

/// Everything there is to say about the policies of a snapshot, policy by
/// policy and rule by rule, and then about its pods. The program is the snapshot's own, compiled.
pub fn lint(snapshot: &Snapshot, program: &Program) -> Vec<Finding> {
    let scene = Scene::new(snapshot, program);
    let mut report = Report::new(snapshot, program);
    kinds::lint(&scene, &mut report);
    selects::lint(&scene, &mut report);
    api_server::lint(&scene, &mut report);
    priority::lint(&scene, &mut report);
    shadow::lint(&scene, &mut report);
    closed::lint(&scene, &mut report);
    networks::lint(&scene, &mut report);
    families::lint(&scene, &mut report);
    ports::lint(&scene, &mut report);
    dns::lint(&scene, &mut report);
    names::lint(&scene, &mut report);
    let mut findings = report.finish();
    findings.extend(claims::lint(snapshot, program));
    findings
}
