//! A cluster of many small applications, each with policies of its own, to
//! measure what a packet pays for its verdict.
//!
//! Every application has two pods and three NetworkPolicies. Each has three
//! rules in each direction, and its two pods may talk to each other by the
//! very last of them: the measured packets read their lists to the end, and
//! pass a gate and two administrators' policies first. The first application
//! speaks TCP, the second UDP.

use crate::File;
use crate::policies::{NO_KUBELETS, NO_METADATA};
use namewall_cluster::{Document, Lowered, Settings, lower};
use std::net::Ipv4Addr;
use std::sync::Arc;

pub const PORT: u16 = 8080;
pub const NODE: &str = "node-0";

const NAMESPACE: usize = 20;
const POLICIES_AN_APP: usize = 3;
/// So that there are always three namespaces to speak of.
const FEWEST_APPS: usize = 3 * NAMESPACE;
/// Two administrators' and a gate.
const ABOVE: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crowd {
    /// Of all kinds.
    pub policies: usize,
}

/// The pods whose packets are measured: who connects, and to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    pub client: Ipv4Addr,
    pub server: Ipv4Addr,
}

pub const TCP: Pair = Pair { client: address(0, 0), server: address(0, 1) };
pub const UDP: Pair = Pair { client: address(1, 0), server: address(1, 1) };

/// Of one of an application's two pods.
pub const fn address(app: usize, pod: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 2).to_bits() + 2 * app as u32 + pod as u32)
}

impl Crowd {
    fn apps(&self) -> usize {
        self.network_policies().div_ceil(POLICIES_AN_APP).next_multiple_of(NAMESPACE).max(FEWEST_APPS)
    }

    fn network_policies(&self) -> usize {
        self.policies.saturating_sub(ABOVE)
    }

    pub fn lowered(&self) -> Lowered {
        let files = [self.objects(), self.network(), above()];
        let mut documents = Vec::new();
        for file in files {
            let (read, findings) = Document::read_all(&Arc::from(file.name), &file.text);
            assert!(findings.is_empty(), "{}", findings[0]);
            documents.extend(read);
        }
        lower(&documents, &Settings::default())
    }

    fn objects(&self) -> File {
        let mut text = format!(
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {NODE}\nstatus:\n  addresses:\n  - address: 172.20.0.10\n    type: InternalIP\n"
        );
        let apps = self.apps();
        for namespace in 0..apps / NAMESPACE {
            text += &namespace_text(&format!("team-{namespace}"), &format!("t{namespace}"));
        }
        for (at, name) in ["monitoring", "quarantine"].into_iter().enumerate() {
            text += &namespace_text(name, "platform");
            text += &pod_text(name, "one", 0, address(apps + at, 0));
        }
        for app in 0..apps {
            for pod in 0..2 {
                text += &pod_text(&namespace_of(app), &format!("app-{app}"), pod, address(app, pod));
            }
        }
        File { name: "objects.yaml".into(), text }
    }

    fn network(&self) -> File {
        let apps = self.apps();
        let texts = (0..self.network_policies()).map(|number| {
            // The first applications, which are measured, have all of theirs at every size.
            let (app, policy) = (number / POLICIES_AN_APP, number % POLICIES_AN_APP);
            network_policy(app, policy, apps)
        });
        File { name: "network-policies.yaml".into(), text: texts.collect() }
    }
}

fn namespace_of(app: usize) -> String {
    format!("team-{}", app / NAMESPACE)
}

fn namespace_text(name: &str, team: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels:\n    team: {team}\n")
}

fn pod_text(namespace: &str, app: &str, pod: usize, address: Ipv4Addr) -> String {
    format!(
        "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: {app}-{pod}\n  namespace: {namespace}\n  labels:\n    app: {app}\nspec:\n  nodeName: {NODE}\nstatus:\n  phase: Running\n  podIP: {address}\n"
    )
}

/// Three rules a direction: a neighbour at the port that is asked for, a pod
/// elsewhere at another port, and a whole team; in the last policy the
/// application itself, in the team's place.
fn network_policy(app: usize, policy: usize, apps: usize) -> String {
    let first = app - app % NAMESPACE;
    let neighbour = first + (app - first + 1 + policy) % NAMESPACE;
    let elsewhere = (app + NAMESPACE * (1 + policy)) % apps;
    let elsewhere = if namespace_of(elsewhere) == namespace_of(app) { (app + NAMESPACE) % apps } else { elsewhere };
    let team = elsewhere / NAMESPACE;
    let protocol = if app.is_multiple_of(2) { "TCP" } else { "UDP" };
    let last = match policy == POLICIES_AN_APP - 1 {
        true => format!("    - podSelector:\n        matchLabels:\n          app: app-{app}\n"),
        false => format!("    - namespaceSelector:\n        matchLabels:\n          team: t{team}\n"),
    };
    let rules = |key: &str| {
        let rule = |peer: &str, port: u16| {
            format!("  - {key}:\n{peer}    ports:\n    - port: {port}\n      protocol: {protocol}\n")
        };
        [
            rule(&format!("    - podSelector:\n        matchLabels:\n          app: app-{neighbour}\n"), PORT),
            rule(
                &format!(
                    "    - namespaceSelector:\n        matchLabels:\n          team: t{team}\n      podSelector:\n        matchLabels:\n          app: app-{elsewhere}\n"
                ),
                9090,
            ),
            rule(&last, PORT),
        ]
        .concat()
    };
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: app-{app}-{policy}\n  namespace: {namespace}\nspec:\n  podSelector:\n    matchLabels:\n      app: app-{app}\n  policyTypes:\n  - Ingress\n  - Egress\n  ingress:\n{ingress}  egress:\n{egress}",
        namespace = namespace_of(app),
        ingress = rules("from"),
        egress = rules("to"),
    )
}

/// None of it has a word for the measured packets.
fn above() -> File {
    let admin = |number: usize| {
        format!(
            "---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata:
  name: admin-{number}
spec:
  priority: {number}
  subject:
    namespaces: {{}}
  ingress:
  - name: scrape
    action: Allow
    from:
    - namespaces:
        matchLabels:
          kubernetes.io/metadata.name: monitoring
    ports:
    - portNumber:
        port: 909{number}
        protocol: TCP
  - name: quarantine
    action: Deny
    from:
    - namespaces:
        matchLabels:
          kubernetes.io/metadata.name: quarantine
  egress:
  - name: quarantine
    action: Deny
    to:
    - namespaces:
        matchLabels:
          kubernetes.io/metadata.name: quarantine
  - name: elsewhere
    action: Deny
    to:
    - networks:
      - 192.0.{number}.0/24
  - name: provider
    action: Allow
    to:
    - domainNames:
      - api{number}.provider.example
    ports:
    - portNumber:
        port: 443
        protocol: TCP
"
        )
    };
    let gate = format!(
        "---
apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata:
  name: gate
spec:
  priority: 10
  rules:
{NO_METADATA}{NO_KUBELETS}"
    );
    File { name: "above.yaml".into(), text: [admin(1), admin(2), gate].concat() }
}
