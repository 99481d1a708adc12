//! Namespaces.

use super::network_policy_v1beta1::isolates;
use crate::document::Document;
use crate::lower::Scope;
use namewall_policy::Finding;
use namewall_policy::model::Namespace;

pub(crate) fn read_namespace(document: &Document, findings: &mut Vec<Finding>) -> Namespace {
    let mut scope = Scope::of_fact(document, findings);
    let labels = scope.selected_labels(&scope.meta.clone(), "metadata.labels");
    Namespace {
        default_deny_ingress: isolates(&mut scope),
        name: scope.meta.name.as_str().into(),
        labels: labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        source: scope.place(""),
    }
}
