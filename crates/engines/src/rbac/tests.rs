//! Against an API server that says what it is told to.

use super::{Rbac, RbacSettings};
use crate::http::ServerUrl;
use crate::http::server::{Reply, Server};
use crate::{Engine, Judged};
use namewall_expression::{Fact, Facts, Outcome, Value};
use std::time::{Duration, Instant};

/// A pod of a service account that asks for a name.
#[derive(Clone, Copy)]
struct Pod<'a>(&'a str, &'a str, &'a str);

const WEB: Pod<'_> = Pod("shop", "web", "www.example.com.");

impl Facts for Pod<'_> {
    fn get(&self, fact: &Fact) -> Value<'_> {
        Value::Text(match fact.to_string().as_str() {
            "kubernetes/client-namespace" => self.0.into(),
            "kubernetes/client-service-account" => self.1.into(),
            "name" => self.2.into(),
            _ => "".into(),
        })
    }
}

fn status(status: &str) -> Reply {
    let review = format!(r#"{{"kind":"SubjectAccessReview","status":{status}}}"#);
    let header = "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n";
    Reply::Raw(format!("{header}content-length: {}\r\n\r\n{review}", review.len()).into())
}

fn settings(server: &Server) -> RbacSettings {
    RbacSettings { timeout: Duration::from_millis(400), ..RbacSettings::at(server.url("/")) }
}

fn said(rbac: &Rbac, facts: &dyn Facts) -> String {
    rbac.judge(facts).wait().map_or_else(|error| format!("error: {error}"), |judgement| judgement.outcome.to_string())
}

#[test]
fn a_review_is_an_outcome() {
    for (answer, expected) in [
        (r#"{"allowed":true,"reason":"RBAC: allowed by RoleBinding"}"#, "allow"),
        (r#"{"allowed":false}"#, "undefined"),
        (r#"{"allowed":false,"denied":true}"#, "block"),
        (r#"{"allowed":true,"denied":true}"#, "block"),
        (r#"{"allowed":false,"evaluationError":"role \"x\" not found"}"#, "undefined"),
        (r#"{"denied":true}"#, "error: Kubernetes' API: it answers with a review that has no status"),
        (r#"{"allowed":"true"}"#, "error: Kubernetes' API: it answers with a review that has no status"),
        ("{}", "error: Kubernetes' API: it answers with a review that has no status"),
    ] {
        let server = Server::start(move |_| status(answer));
        assert_eq!(said(&Rbac::start(&settings(&server)).unwrap(), &WEB), expected, "{answer}");
    }
}

#[test]
fn the_service_account_of_the_pod_is_asked_for() {
    let server = Server::start(|_| status(r#"{"allowed":true,"reason":"by x"}"#));
    let token = std::env::temp_dir().join(format!("namewall-rbac-{}", std::process::id()));
    std::fs::write(&token, "secret\n").unwrap();
    let rbac = Rbac::start(&RbacSettings { token: Some(token.clone()), ..settings(&server) }).unwrap();
    let judgement = rbac.judge(&WEB).wait().unwrap();
    assert_eq!(judgement.outcome, Outcome::Allow);
    let user = "system:serviceaccount:shop:web";
    assert_eq!(judgement.trace, [format!("{user} is allowed: resolve www.example.com"), "reason: by x".into()]);
    std::fs::remove_file(&token).unwrap();
    assert!(said(&rbac, &Pod("shop", "web", "x.")).contains("cannot read"));
    let request = &server.requests()[0];
    assert!(request.starts_with("POST /apis/authorization.k8s.io/v1/subjectaccessreviews HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("\r\nauthorization: bearer secret\r\n"), "{request}");
    let body: serde_json::Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let expected = serde_json::json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
            "resourceAttributes": {
                "namespace": "shop", "verb": "resolve", "group": "namewall.dev", "resource": "domains",
                "name": "www.example.com",
            },
        },
    });
    assert_eq!(body, expected);
    assert!(!format!("{rbac:?}").contains("secret"));
}

#[test]
fn a_client_that_is_no_pod_is_the_next_rules() {
    let server = Server::start(|_| status(r#"{"allowed":true}"#));
    let rbac = Rbac::start(&settings(&server)).unwrap();
    for pod in [Pod("", "", "x."), Pod("shop", "", "x."), Pod("", "web", "x.")] {
        let Judged::Now(Ok(judgement)) = rbac.judge(&pod) else { panic!("nobody is asked") };
        assert_eq!(judgement.outcome, Outcome::Undefined);
        assert_eq!(judgement.trace, ["the client is no pod whose service account is known"]);
    }
    assert!(said(&rbac, &Pod("a:b", "c", "x.")).starts_with("error: Kubernetes' API: system:serviceaccount:a:b:c"));
    assert_eq!(said(&rbac, &Pod("shop", "web", ".")), "allow");
    assert!(server.requests()[0].contains(r#""name":".""#), "{:?}", server.requests());
}

#[test]
fn answers_are_kept_and_errors_are_not() {
    let answers = [r#"{"allowed":true}"#, r#"{}"#, r#"{"allowed":false}"#];
    let server = Server::start(move |number| status(answers[number]));
    let rbac = Rbac::start(&settings(&server)).unwrap();
    let other = Pod("shop", "web", "other.example.");
    assert_eq!(said(&rbac, &WEB), "allow");
    assert!(matches!(rbac.judge(&WEB), Judged::Now(Ok(judgement)) if judgement.outcome == Outcome::Allow));
    assert!(said(&rbac, &other).starts_with("error"));
    assert_eq!(said(&rbac, &other), "undefined");
    assert!(matches!(rbac.judge(&other), Judged::Now(Ok(judgement)) if judgement.outcome == Outcome::Undefined));
    assert_eq!((server.requests().len(), server.connections()), (3, 1));
}

#[test]
fn an_api_server_that_does_not_answer_is_an_error_in_time() {
    let forbidden = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 9\r\n\r\nforbidden";
    for (reply, expected) in [
        (None, "no answer in time"),
        (Some(forbidden.to_vec()), "status 403: forbidden"),
        (Some(b"HTTP/1.1 201 Created\r\ncontent-length: 1\r\n\r\n{".to_vec()), "not JSON"),
    ] {
        let server = Server::start(move |_| reply.clone().map_or(Reply::Hang, Reply::Raw));
        let rbac = Rbac::start(&settings(&server)).unwrap();
        let start = Instant::now();
        let failed = said(&rbac, &WEB);
        assert!(failed.starts_with("error: Kubernetes' API: ") && failed.contains(expected), "{failed}");
        assert!(start.elapsed() < Duration::from_millis(2_000), "{:?}", start.elapsed());
    }
}

#[test]
fn a_pod_asks_the_api_server_of_its_cluster() {
    let environment = |variable: &str| match variable {
        "KUBERNETES_SERVICE_HOST" => Some("fd00::1".to_owned()),
        "KUBERNETES_SERVICE_PORT" => Some("443".to_owned()),
        _ => None,
    };
    let inside = RbacSettings::in_cluster(&environment).unwrap();
    assert!(inside.token.is_some() && inside.tls.is_some());
    let reviews = "apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(inside.review_url().to_string(), format!("https://[fd00::1]:443/{reviews}"));
    let error = RbacSettings::in_cluster(&|_| None).unwrap_err().to_string();
    assert!(error.contains("KUBERNETES_SERVICE_HOST is not set"), "{error}");
    let server = ServerUrl { is_tls: true, host_port: "api.example:6443".into(), path: "/k8s/".into() };
    let outside = RbacSettings::at(server).review_url().to_string();
    assert_eq!(outside, format!("https://api.example:6443/k8s/{reviews}"));
}
