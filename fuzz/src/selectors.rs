//! Bytes as a label selector and a pod's labels: whether a NetworkPolicy of
//! that selector, written as YAML, isolates the pod is decided a second time
//! here, by the book (S2.8).

use namewall_cluster::{Document, Settings, lower};
use namewall_policy::reach::Reach;
use namewall_policy::{Instant, LeaseTable, Severity, compile};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;

const KEYS: [&str; 5] = ["app", "tier", "example.com/zone", "on", "1"];
/// The last two no label can have. Most look like something else than text.
const VALUES: [&str; 10] = ["web", "db", "", "true", "null", "1", "1e3", "a.b-c_d", "-web", "a b"];
const LEGAL: usize = 8;
const OPERATORS: [&str; 5] = ["In", "NotIn", "Exists", "DoesNotExist", "in"];

struct Expression {
    key: &'static str,
    operator: &'static str,
    values: Vec<&'static str>,
}

pub fn selectors(bytes: &[u8]) {
    let mut input = Input(bytes);
    let labels: BTreeMap<_, _> = input.list(4, |input| (input.pick(&KEYS), input.pick(&VALUES[..LEGAL])));
    let match_labels: BTreeMap<_, _> = input.list(3, |input| (input.pick(&KEYS), input.pick(&VALUES)));
    let expressions: Vec<Expression> = input.list(4, |input| Expression {
        key: input.pick(&KEYS),
        operator: input.pick(&OPERATORS),
        values: input.list(3, |input| input.pick(&VALUES)),
    });

    let text = manifest(&labels, &match_labels, &expressions);
    let (documents, findings) = Document::read_all(&"fuzz.yaml".into(), &text);
    assert!(findings.is_empty(), "{findings:?}\n{text}");
    let lowered = lower(&documents, &Settings::default());
    let refused = lowered.findings.iter().any(|finding| finding.severity == Severity::Error);
    let legal = match_labels.values().all(|value| VALUES[..LEGAL].contains(value)) && expressions.iter().all(is_legal);
    assert_eq!(refused, !legal, "{:?}\n{text}", lowered.findings);
    if !legal {
        return;
    }

    let (program, _) = compile(&lowered.snapshot);
    let leases = LeaseTable::default();
    let reach = Reach { program: &program, leases: &leases, now: Instant::default() };
    let from = program.endpoint_at(Ipv4Addr::new(198, 51, 100, 7).into());
    let to = program.endpoint_at(Ipv4Addr::new(10, 0, 0, 1).into());
    assert!(to.workload.is_some(), "the pod is there\n{text}");
    let selected = match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.iter().all(|expression| holds(expression, &labels));
    let traffic = reach.between(&from, &to);
    assert_eq!(traffic.is_none(), selected, "selected pods are isolated, others are not\n{text}");
    assert_eq!(traffic.open.is_all(), !selected, "selected pods are isolated, others are not\n{text}");
}

fn is_legal(expression: &Expression) -> bool {
    let values_fit = match expression.operator {
        "In" | "NotIn" => !expression.values.is_empty(),
        "Exists" | "DoesNotExist" => expression.values.is_empty(),
        _ => false,
    };
    values_fit && expression.values.iter().all(|value| VALUES[..LEGAL].contains(value))
}

fn holds(expression: &Expression, labels: &BTreeMap<&str, &str>) -> bool {
    let value = labels.get(expression.key);
    let listed = value.is_some_and(|value| expression.values.contains(value));
    match expression.operator {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        _ => value.is_none(),
    }
}

fn manifest(labels: &BTreeMap<&str, &str>, match_labels: &BTreeMap<&str, &str>, expressions: &[Expression]) -> String {
    let pairs = |map: &BTreeMap<&str, &str>| {
        let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key:?}: {value:?}")).collect();
        format!("{{{}}}", pairs.join(", "))
    };
    let mut text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: demo, labels: {}}}\nstatus: {{podIP: 10.0.0.1}}\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: x, namespace: demo}}\n\
         spec:\n  policyTypes: [Ingress]\n  podSelector:\n    matchLabels: {}\n",
        pairs(labels),
        pairs(match_labels)
    );
    if !expressions.is_empty() {
        text += "    matchExpressions:\n";
    }
    for Expression { key, operator, values } in expressions {
        writeln!(text, "    - {{key: {key:?}, operator: {operator}, values: {values:?}}}").expect("a String takes all");
    }
    text
}

/// Bytes taken as choices; when they run out, the first choice.
struct Input<'b>(&'b [u8]);

impl Input<'_> {
    fn below(&mut self, end: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % end
    }

    fn pick(&mut self, choices: &[&'static str]) -> &'static str {
        choices[self.below(choices.len())]
    }

    fn list<T, L: FromIterator<T>>(&mut self, most: usize, mut item: impl FnMut(&mut Self) -> T) -> L {
        let count = self.below(most + 1);
        (0..count).map(|_| item(self)).collect()
    }
}
