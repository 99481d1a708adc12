//! What administrators write. Most speak of one team, some of an environment,
//! few of everyone. Half are AdminNetworkPolicies, half ClusterNetworkPolicies.

use crate::layout::{ENVIRONMENTS, Layout};
use crate::random::Random;

/// How one of the two kinds says it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Admin,
    Cluster,
}

struct Writer {
    dialect: Dialect,
    random: Random,
    teams: Vec<String>,
}

pub(super) fn policies(layout: &Layout, count: usize) -> Vec<String> {
    let mut teams: Vec<String> = layout.tenants().map(|namespace| namespace.team.clone()).collect();
    teams.dedup();
    let mut writer = Writer { dialect: Dialect::Admin, random: Random::new(2), teams };
    (0..count)
        .map(|number| {
            writer.dialect = if number % 4 < 2 { Dialect::Admin } else { Dialect::Cluster };
            writer.policy(number)
        })
        .collect()
}

impl Writer {
    fn policy(&mut self, number: usize) -> String {
        let (version, kind, tier) = match self.dialect {
            Dialect::Admin => ("v1alpha1", "AdminNetworkPolicy", ""),
            Dialect::Cluster => ("v1alpha2", "ClusterNetworkPolicy", "  tier: Admin\n"),
        };
        let (subject, priority) = (self.subject(number), 10 + number % 900);
        let mut text = format!(
            "---
apiVersion: policy.networking.k8s.io/{version}
kind: {kind}
metadata:
  name: admin-{number}
spec:
{tier}  priority: {priority}
  subject:
    namespaces:
{subject}"
        );
        if number.is_multiple_of(2) || self.random.percent(50) {
            text += "  ingress:\n";
            for _ in 0..1 + self.random.below(2) {
                text += &self.ingress_rule();
            }
        }
        if number % 2 == 1 || self.random.percent(50) {
            text += "  egress:\n";
            for _ in 0..1 + self.random.below(3) {
                text += &self.egress_rule();
            }
        }
        text
    }

    fn subject(&mut self, number: usize) -> String {
        let team = &self.teams[number * 31 % self.teams.len()];
        let env = self.random.pick(&ENVIRONMENTS);
        match number % 25 {
            0 => "      matchExpressions:\n      - key: team\n        operator: NotIn\n        values:\n        - platform\n"
                .to_owned(),
            1 | 2 => format!("      matchLabels:\n        env: {env}\n"),
            3..=7 => format!("      matchLabels:\n        env: {env}\n        team: {team}\n"),
            _ => format!("      matchLabels:\n        team: {team}\n"),
        }
    }

    fn action(&self, action: &'static str) -> &'static str {
        match (self.dialect, action) {
            (Dialect::Cluster, "Allow") => "Accept",
            _ => action,
        }
    }

    fn port(&self, number: u16) -> String {
        match self.dialect {
            Dialect::Admin => {
                format!("    ports:\n    - portNumber:\n        port: {number}\n        protocol: TCP\n")
            }
            Dialect::Cluster => {
                format!("    protocols:\n    - tcp:\n        destinationPort:\n          number: {number}\n")
            }
        }
    }

    fn named_port(&self, name: &str) -> String {
        match self.dialect {
            Dialect::Admin => format!("    ports:\n    - namedPort: {name}\n"),
            Dialect::Cluster => format!("    protocols:\n    - destinationNamedPort: {name}\n"),
        }
    }

    fn range(&self, start: u16, end: u16) -> String {
        match self.dialect {
            Dialect::Admin => format!(
                "    ports:\n    - portRange:\n        start: {start}\n        end: {end}\n        protocol: TCP\n"
            ),
            Dialect::Cluster => format!(
                "    protocols:\n    - tcp:\n        destinationPort:\n          range:\n            start: {start}\n            end: {end}\n"
            ),
        }
    }

    fn ingress_rule(&mut self) -> String {
        let (allow, env) = (self.action("Allow"), *self.random.pick(&ENVIRONMENTS));
        let team = self.random.pick(&self.teams).clone();
        match self.random.below(4) {
            0 => {
                "  - name: scrape\n    action: ".to_owned()
                    + allow
                    + "\n    from:\n    - pods:\n        namespaceSelector:\n          matchLabels:\n            kubernetes.io/metadata.name: monitoring\n        podSelector:\n          matchLabels:\n            app: prometheus\n"
                    + &self.named_port("metrics")
            }
            1 => format!(
                "  - name: other-team\n    action: Pass\n    from:\n    - namespaces:\n        matchLabels:\n          team: {team}\n"
            ),
            2 => {
                format!(
                    "  - name: not-from-there\n    action: Deny\n    from:\n    - namespaces:\n        matchExpressions:\n        - key: env\n          operator: In\n          values:\n          - {env}\n"
                ) + &self.range(1, 1023)
            }
            _ => {
                format!(
                    "  - name: partner\n    action: {allow}\n    from:\n    - pods:\n        namespaceSelector:\n          matchLabels:\n            team: {team}\n        podSelector:\n          matchLabels:\n            tier: frontend\n"
                ) + &self.port(8080)
            }
        }
    }

    fn egress_rule(&mut self) -> String {
        let (allow, block) = (self.action("Allow"), self.random.below(256));
        let team = self.random.pick(&self.teams).clone();
        match self.random.below(6) {
            0 | 1 => {
                format!(
                    "  - name: providers\n    action: {allow}\n    to:\n    - domainNames:\n      - api{block}.provider.example\n      - \"*.{team}.cdn.example\"\n"
                ) + &self.port(443)
            }
            2 => {
                format!(
                    "  - name: partner-networks\n    action: {allow}\n    to:\n    - networks:\n      - 203.0.113.0/24\n      - 198.{block}.0.0/16\n"
                ) + &self.port(443)
            }
            3 => format!(
                "  - name: inside\n    action: Pass\n    to:\n    - namespaces:\n        matchLabels:\n          team: {team}\n"
            ),
            4 => "  - name: control-plane\n    action: Deny\n    to:\n    - nodes:\n        matchLabels:\n          role: control-plane\n"
                .to_owned()
                + &self.range(10_250, 10_259),
            _ => format!(
                "  - name: elsewhere\n    action: Deny\n    to:\n    - networks:\n      - 192.0.2.0/24\n      - 100.{}.0.0/16\n",
                64 + block % 64
            ),
        }
    }
}

/// What holds where tenants say nothing.
pub(super) fn baseline() -> String {
    "---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata:
  name: default
spec:
  subject:
    namespaces:
      matchExpressions:
      - key: env
        operator: In
        values:
        - prod
        - staging
  ingress:
  - name: platform
    action: Allow
    from:
    - namespaces:
        matchLabels:
          team: platform
  - name: others
    action: Deny
    from:
    - namespaces: {}
  egress:
  - name: private
    action: Deny
    to:
    - networks:
      - 192.168.0.0/16
"
    .to_owned()
}
