//! Answers that open something, while a policy that speaks of 10,000 pods is
//! replaced ten times per second: how long the data plane keeps each waiting. An
//! answer that waits for longer than the hold limit becomes SERVFAIL.

use anyhow::{Context, Result};
use namewall_agent::{Learner, Learning, Node, NodeSettings, Settle};
use namewall_bench::figures::{figure, milliseconds, quantile};
use namewall_cluster::{Document, Settings as ClusterSettings, lower};
use namewall_dataplane::CutEstablished;
use namewall_dataplane::nft::Settings;
use namewall_dataplane::render::Scope;
use namewall_dns::{Answer, Learn};
use namewall_policy::lease::{Bounds, NeverLeased};
use namewall_policy::{Program, Snapshot, compile};
use namewall_sandbox::Namespace;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PODS: u32 = 10_000;
/// Leases that are there from the beginning, for rules that are replaced too.
const LEASES: u32 = 90_000;
const CHANGE_EVERY: Duration = Duration::from_millis(100);
const ANSWER_EVERY: Duration = Duration::from_millis(2);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

pub(crate) fn measure(seconds: u64) -> Result<()> {
    let (snapshots, programs): (Vec<_>, Vec<_>) = [cluster(0)?, cluster(1)?, cluster(2)?].into_iter().unzip();
    let node_id = snapshots[0].node_named("n1").context("the node is known")?;
    let namespace = Namespace::create()?;
    let never_leased = NeverLeased::new("cluster.local".parse()?);
    let settings = NodeSettings {
        never_leased,
        scope: Scope { node: Some(node_id), ..Scope::default() },
        cut: CutEstablished::default(),
        settle: Settle::default(),
        bounds: Bounds::default(),
        learning: Learning::default(),
    };
    let mut node = namespace.enter(|| Node::open(Settings::default(), settings))??;
    node.enforce(&programs[0])?;
    let learner = node.learner().clone();
    for first in (0..LEASES).step_by(1_000) {
        let mut batch = Default::default();
        for number in first..first + 1_000 {
            learner.learn(&Answer { client: CLIENT, upstream: None, bytes: &answer(number) }, &mut batch);
        }
        learner.commit(&mut batch)?;
    }
    let (changes, waits) = answering(&learner, LEASES, || {
        let (began, mut changes) = (Instant::now(), Vec::new());
        while began.elapsed() < Duration::from_secs(seconds) {
            let at = Instant::now();
            node.enforce(&programs[(changes.len() + 1) % 2])?;
            changes.push(milliseconds(at.elapsed()));
            std::thread::sleep(CHANGE_EVERY.saturating_sub(at.elapsed()));
        }
        Ok(changes)
    })?;
    figure("held_answers", waits.len() as f64);
    figure("held_changes_a_second", changes.len() as f64 / seconds as f64);
    figure("held_change_p50_ms", quantile(&changes, 0.5));
    figure("held_p50_ms", quantile(&waits, 0.5));
    figure("held_p99_ms", quantile(&waits, 0.99));
    figure("held_p999_ms", quantile(&waits, 0.999));
    figure("held_worst_ms", quantile(&waits, 1.0));
    // A rule with the same names comes: all leases are open for it too. Then it goes.
    for (name, program) in [("held_rule_comes_worst_ms", &programs[2]), ("held_rule_goes_worst_ms", &programs[0])] {
        let (_, waits) = answering(&learner, LEASES + 5_000, || Ok(node.enforce(program)?))?;
        figure(name, quantile(&waits, 1.0));
    }
    Ok(())
}

/// Does something while answers open addresses. How long each of these waited, in milliseconds.
fn answering<T>(learner: &Learner, first: u32, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<f64>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let (mut waits, mut number) = (Vec::new(), first);
            while !is_over.load(Ordering::SeqCst) {
                let mut batch = Default::default();
                learner.learn(&Answer { client: CLIENT, upstream: None, bytes: &answer(number) }, &mut batch);
                let began = Instant::now();
                learner.commit(&mut batch)?;
                waits.push(milliseconds(began.elapsed()));
                number += 1;
                std::thread::sleep(ANSWER_EVERY);
            }
            anyhow::Ok(waits)
        });
        let done = work();
        is_over.store(true, Ordering::SeqCst);
        let waits = waiting.join().ok().context("the thread with the answers panicked")??;
        Ok((done?, waits))
    })
}

/// A pod with a rule by name, and a policy that lets one half of 20,000 pods reach it. The third has another rule with
/// that name, and the policy of the first.
fn cluster(half: u32) -> Result<(Snapshot, Program)> {
    let mut text = String::from(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
         apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: names}\n\
         spec:\n  tier: Admin\n  priority: 1\n  subject: {namespaces: {}}\n  egress:\n  \
         - {action: Accept, to: [{domainNames: ['*.example.com']}]}\n",
    );
    let pod = |text: &mut String, name: &str, half: u32, address: Ipv4Addr| {
        let node = if half == 2 { 1 } else { 2 };
        write!(
            text,
            "---\napiVersion: v1\nkind: Pod\n\
             metadata: {{name: {name}, namespace: shop, labels: {{app: {name}, half: h{half}}}}}\n\
             spec: {{nodeName: n{node}, containers: [{{name: c, image: i}}]}}\n\
             status: {{phase: Running, podIP: {address}, podIPs: [{{ip: {address}}}]}}\n"
        )
    };
    pod(&mut text, "web", 2, Ipv4Addr::new(10, 0, 0, 1))?;
    for number in 0..2 * PODS {
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 0).to_bits() + number);
        pod(&mut text, &format!("p{number}"), number % 2, address)?;
    }
    write!(
        text,
        "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: many, namespace: shop}}\n\
         spec:\n  podSelector: {{matchLabels: {{app: web}}}}\n  policyTypes: [Ingress]\n  ingress:\n  \
         - from: [{{podSelector: {{matchLabels: {{half: h{}}}}}}}]\n",
        half % 2
    )?;
    if half == 2 {
        text += "---\napiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: more}\n\
                 spec:\n  tier: Admin\n  priority: 2\n  subject: {namespaces: {}}\n  egress:\n  \
                 - {action: Accept, to: [{domainNames: ['*.example.com', other.example.org]}]}\n";
    }
    let (documents, findings) = Document::read_all(&"held.yaml".into(), &text);
    anyhow::ensure!(findings.is_empty(), "{findings:?}");
    let snapshot = lower(&documents, &ClusterSettings::default()).snapshot;
    let program = compile(&snapshot).0;
    Ok((snapshot, program))
}

/// An answer that opens an address of its own.
fn answer(number: u32) -> Vec<u8> {
    let name = format!("n{number}");
    let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, name.len() as u8];
    bytes.extend(name.as_bytes());
    bytes.extend(b"\x07example\x03com\0\0\x01\0\x01");
    // The owner is a pointer to the question.
    bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 14, 16, 0, 4]);
    bytes.extend((Ipv4Addr::new(11, 0, 0, 0).to_bits() + number).to_be_bytes());
    bytes
}
