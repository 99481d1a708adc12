//! What there is to say about a policy as a whole: kinds that are outdated, or
//! have no effect here.

use super::report::{FindingTarget, Report};
use super::scene::Scene;
use crate::model::{Enforcement, Policy, PolicyKind};

pub(super) fn lint(scene: &Scene<'_>, report: &mut Report<'_>) {
    for (id, policy) in scene.policies() {
        let place = FindingTarget::Policy(id);
        match policy.id.kind {
            PolicyKind::NetworkPolicyV1Beta1 => {
                report.hint(
                    place,
                    "migrate-v1beta1",
                    "extensions/v1beta1 is gone from Kubernetes; move to networking.k8s.io/v1. Mind that an empty `from` or `ports` matches nothing here and everything there, and that there the policy itself isolates what it selects, not the namespace's annotation",
                );
                if let Some(namespace) = unannotated(scene, policy) {
                    let message = format!(
                        "it has no effect: the namespace {namespace} is not isolated. Annotate it with net.beta.kubernetes.io/network-policy: '{{\"ingress\": {{\"isolation\": \"DefaultDeny\"}}}}', or move the policy to networking.k8s.io/v1"
                    );
                    report.warn(place, "no-effect-without-annotation", message);
                }
            }
            PolicyKind::AdminNetworkPolicy | PolicyKind::BaselineAdminNetworkPolicy => {
                let tier = if policy.id.kind == PolicyKind::AdminNetworkPolicy { "Admin" } else { "Baseline" };
                let message = format!(
                    "{} v1alpha1 is superseded; move to ClusterNetworkPolicy v1alpha2 with tier: {tier} (Allow is called Accept there, and ports are under protocols)",
                    policy.id.kind.name()
                );
                report.hint(place, "migrate-admin", message);
            }
            _ => {}
        }
        if policy.enforcement == Enforcement::Audit {
            let message = "it is only audited: what it would deny is reported and let through. Remove the annotation namewall.dev/enforcement to enforce it";
            report.hint(place, "audited", message);
        }
    }
}

/// The namespace of a v1beta1 policy, if nothing isolates it (S3.1).
pub(super) fn unannotated<'p>(scene: &Scene<'_>, policy: &'p Policy) -> Option<&'p str> {
    if policy.id.kind != PolicyKind::NetworkPolicyV1Beta1 {
        return None;
    }
    let name = policy.id.namespace.as_deref()?;
    let namespace = scene.snapshot.namespace_named(name).map(|id| scene.snapshot.namespace(id));
    namespace.is_none_or(|namespace| !namespace.default_deny_ingress).then_some(name)
}
