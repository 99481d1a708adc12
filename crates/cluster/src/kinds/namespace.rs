//! Namespaces.

use super::network_policy_v1beta1::isolates;
use crate::document::Document;
use crate::lower::Scope;
use namewall_policy::Finding;
use namewall_policy::model::Namespace;

/// What OVN-Kubernetes logs of the NetworkPolicies and the EgressFirewall of a namespace, and at which level.
pub(crate) const ACL_LOGGING_ANNOTATION: &str = "k8s.ovn.org/acl-logging";

pub(crate) fn read_namespace(document: &Document, findings: &mut Vec<Finding>) -> Namespace {
    let mut scope = Scope::of_fact(document, findings);
    if scope.meta.annotations.contains_key(ACL_LOGGING_ANNOTATION) {
        let message = format!(
            "{ACL_LOGGING_ANNOTATION} changes nothing: denied connections are logged in every namespace, up to 10 lines \
             per second and rule; allowed ones are not logged, and levels are not used"
        );
        scope.hint("acl-logging", "metadata.annotations", message);
    }
    let labels = scope.selected_labels(&scope.meta.clone(), "metadata.labels");
    Namespace {
        default_deny_ingress: isolates(&mut scope),
        name: scope.meta.name.as_str().into(),
        labels: labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        source: scope.place(""),
    }
}
