//! Workloads whose templates stand for pods that do not exist yet.

use super::kind::Template;
use super::pod::{PodTemplate, describe, pod_spec};
use crate::document::Document;
use crate::lower::{Described, Pool, Scope};
use crate::yaml::{Node, Value};
use namewall_policy::Finding;

/// None if the workload has no replicas, or no template.
pub(crate) fn read_template(
    template: &Template,
    document: &Document,
    findings: &mut Vec<Finding>,
    pool: &mut Pool,
) -> Option<Described> {
    let Template { workload, path } = *template;
    let mut scope = Scope::new(document, findings);
    if scope.node(&["spec", "replicas"]).map(Node::plain) == Some(&Value::Int(0)) {
        return None;
    }
    let Some(template) = scope.node(path) else {
        scope.error("missing-template", "spec", format!("`{}` is missing; it describes the pods", path.join(".")));
        return None;
    };
    let path = path.join(".");
    let meta = scope.metadata(template.get("metadata"), &format!("{path}.metadata"));
    let labels = scope.selected_labels(&meta, &format!("{path}.metadata.labels"));
    let spec = pod_spec(&mut scope, template.get("spec"), &format!("{path}.spec"));
    let labels = pool.labels(&labels);
    Some(describe(&mut scope, PodTemplate { kind: workload, spec, labels }, pool))
}
