//! What tenants write: a default-deny a namespace, and rules an application.

use crate::layout::{App, ENVIRONMENTS, Layout, Namespace, TEAMS, TRADES, Trade};
use crate::random::Random;

pub(super) fn policies(layout: &Layout, count: usize) -> Vec<String> {
    let closed = layout.tenants().count().min(count.div_ceil(3));
    let mut texts: Vec<String> =
        layout.tenants().take(closed).enumerate().map(|(at, it)| default_deny(it, at % 2 == 0)).collect();
    // The platform's own applications come first; their policies are the administrators'.
    let apps: Vec<&App> = layout.apps.iter().filter(|app| app.namespace > 1).collect();
    if apps.is_empty() {
        return texts;
    }
    let mut writer = Writer { layout, random: Random::new(1) };
    for number in 0..count - closed {
        // Steps that visit every application once before any twice.
        let app = apps[number * 7919 % apps.len()];
        texts.push(writer.policy(app, number));
    }
    texts
}

/// Everyone may ask for names. In open namespaces neighbours may also talk to
/// each other, and to the web.
fn default_deny(namespace: &Namespace, open: bool) -> String {
    const OPEN: &str = "  - to:
    - podSelector: {}
  - to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except:
        - 10.0.0.0/8
    ports:
    - port: 443
      protocol: TCP
  ingress:
  - from:
    - podSelector: {}
";
    let name = &namespace.name;
    let closed = format!(
        "---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: default-deny
  namespace: {name}
spec:
  podSelector: {{}}
  policyTypes:
  - Ingress
  - Egress
  egress:
  - to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: kube-system
      podSelector:
        matchLabels:
          k8s-app: kube-dns
    ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
"
    );
    if open { closed + OPEN } else { closed }
}

struct Writer<'l> {
    layout: &'l Layout,
    random: Random,
}

impl Writer<'_> {
    fn policy(&mut self, app: &App, number: usize) -> String {
        let egress = self.random.percent(55);
        let mut text = format!(
            "---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {name}-{number}
  namespace: {namespace}
spec:
  podSelector:
    matchLabels:
      app: {name}
  policyTypes:
  - Ingress
{also}  ingress:
",
            name = app.name,
            namespace = self.layout.namespace(app).name,
            also = if egress { "  - Egress\n" } else { "" },
        );
        for _ in 0..1 + self.random.below(3) {
            let ports = self.ports(app.trade);
            text += &self.rule("from", &ports);
        }
        if egress {
            text += "  egress:\n";
            for _ in 0..1 + self.random.below(2) {
                let ports = self.random.pick(&TRADES);
                let ports = self.ports(ports);
                text += &self.rule("to", &ports);
            }
        }
        text
    }

    fn rule(&mut self, key: &str, ports: &str) -> String {
        let mut text = format!("  - {key}:\n");
        for _ in 0..1 + self.random.below(3) {
            text += &self.peer();
        }
        text + ports
    }

    fn peer(&mut self) -> String {
        let app = self.random.pick(&TRADES).name;
        let team = *self.random.pick(&TEAMS);
        let env = *self.random.pick(&ENVIRONMENTS);
        match self.random.below(10) {
            0..=3 => format!("    - podSelector:\n        matchLabels:\n          app: {app}\n"),
            4 => {
                let tier = *self.random.pick(&["frontend", "backend", "data"]);
                format!(
                    "    - podSelector:\n        matchExpressions:\n        - key: tier\n          operator: NotIn\n          values:\n          - {tier}\n"
                )
            }
            5 => format!("    - namespaceSelector:\n        matchLabels:\n          team: {team}\n"),
            6 | 7 => format!(
                "    - namespaceSelector:\n        matchLabels:\n          team: {team}\n          env: {env}\n      podSelector:\n        matchLabels:\n          app: {app}\n"
            ),
            8 => {
                let (block, hole) = (self.random.below(256), self.random.below(256));
                format!(
                    "    - ipBlock:\n        cidr: 198.{}.0.0/16\n        except:\n        - 198.{}.{hole}.0/24\n",
                    block, block
                )
            }
            _ => "    - ipBlock:\n        cidr: 0.0.0.0/0\n        except:\n        - 10.0.0.0/8\n        - 172.16.0.0/12\n        - 192.168.0.0/16\n".to_owned(),
        }
    }

    /// By number, by name, as a range.
    fn ports(&mut self, trade: &Trade) -> String {
        let (name, number) = *self.random.pick(trade.ports);
        match self.random.below(10) {
            0..=4 => format!("    ports:\n    - port: {number}\n      protocol: TCP\n"),
            5..=7 => format!("    ports:\n    - port: {name}\n      protocol: TCP\n"),
            8 => format!("    ports:\n    - endPort: {}\n      port: {number}\n      protocol: TCP\n", number + 100),
            _ => "    ports:\n    - port: 8000\n      endPort: 8999\n      protocol: TCP\n    - port: 9090\n      protocol: TCP\n".to_owned(),
        }
    }
}
