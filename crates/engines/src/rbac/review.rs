//! A SubjectAccessReview: who, what, and what Kubernetes says to it.

use crate::{EngineError, Judgement};
use namewall_expression::Outcome;
use serde_json::{Value, json};

/// That a pod resolves a name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Access {
    pub(super) namespace: String,
    pub(super) service_account: String,
    /// With the dot at its end.
    pub(super) name: String,
}

impl Access {
    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account)
    }

    /// As a role names it. The root keeps its dot: no name at all would be all of them.
    fn domain(&self) -> &str {
        match &*self.name {
            "." => ".",
            name => name.strip_suffix('.').unwrap_or(name),
        }
    }

    /// The question. With the groups that Kubernetes puts service accounts into, and in the namespace of
    /// the pod, so that its own roles count beside those of the cluster.
    pub(super) fn review(&self) -> Result<String, EngineError> {
        // A user's name is put together with colons, so that one within would make another user.
        if self.namespace.contains(':') || self.service_account.contains(':') || self.name.is_empty() {
            return Err(EngineError(format!("{} cannot be asked about {:?}", self.user(), self.name)));
        }
        let namespace = &self.namespace;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self.user(),
                "groups": [
                    "system:serviceaccounts",
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated",
                ],
                "resourceAttributes": {
                    "namespace": namespace,
                    "verb": "resolve",
                    "group": "namewall.dev",
                    "resource": "domains",
                    "name": self.domain(),
                },
            },
        });
        Ok(review.to_string())
    }
}

/// What the API server says. Denied counts before allowed; nobody says both who means well.
pub(super) fn judgement(access: &Access, answer: &[u8]) -> Result<Judgement, EngineError> {
    let review: Value = serde_json::from_slice(answer)
        .map_err(|error| EngineError(format!("it answers with what is not JSON: {error}")))?;
    let status = &review["status"];
    let denied = status["denied"].as_bool().unwrap_or(false);
    let (outcome, word) = match (status["allowed"].as_bool(), denied) {
        (Some(_), true) => (Outcome::Block, "is denied"),
        (Some(true), false) => (Outcome::Allow, "is allowed"),
        // An error on the way is not one of ours: a role that is gone is one, and grants nothing.
        (Some(false), false) => (Outcome::Undefined, "is granted nothing"),
        (None, _) => return Err(EngineError("it answers with a review that has no status".into())),
    };
    let mut trace = vec![format!("{} {word}: resolve {}", access.user(), access.domain())];
    for key in ["reason", "evaluationError"] {
        trace.extend(status[key].as_str().filter(|text| !text.is_empty()).map(|text| format!("{key}: {text}")));
    }
    Ok(Judgement { outcome, trace, labels: Vec::new() })
}
