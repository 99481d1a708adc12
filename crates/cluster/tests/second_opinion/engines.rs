//! The two that are compared: namewall, and the engine of kube-network-policies
//! in a process of its own.

use crate::Failure;
use crate::generate::Cluster;
use namewall_cluster::{Document, Settings, lower};
use namewall_policy::port::Protocol;
use namewall_policy::{Flow, Instant, LeaseTable, Verdict, compile, evaluate};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A connection: an index into the pairs of a cluster, and one into its ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Question {
    pub(crate) pair: usize,
    pub(crate) port: usize,
}

pub(crate) fn questions(cluster: &Cluster) -> Vec<Question> {
    let ports = cluster.ports.len();
    (0..cluster.pairs.len()).flat_map(|pair| (0..ports).map(move |port| Question { pair, port })).collect()
}

/// Namewall's verdicts about manifests, true for allowed.
pub(crate) fn namewall(cluster: &Cluster, objects: &[Value], asked: &[Question]) -> Result<Vec<bool>, Failure> {
    let text = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let (documents, mut findings) = Document::read_all(&Arc::from("cluster.json"), &text);
    let lowered = lower(&documents, &Settings::default());
    findings.extend(lowered.findings);
    let (program, more) = compile(&lowered.snapshot);
    findings.extend(more);
    // Every manifest is valid, and a part that is not read would be closed. Host bits are read by masking (S2.4).
    if let Some(finding) = findings.iter().find(|finding| finding.code != "host-bits") {
        return Err(Failure(format!("seed {}: namewall cannot read a manifest: {finding}", cluster.seed)));
    }
    let ends: Vec<_> =
        cluster.ends.iter().map(|end| program.endpoint_at(end.address.parse().expect("ends are addresses"))).collect();
    let (leases, now) = (LeaseTable::default(), Instant(Duration::ZERO));
    let verdict = |question: &Question| {
        let [from, to] = cluster.pairs[question.pair];
        let port = cluster.ports[question.port];
        let protocol: Protocol = port.protocol.parse().expect("ports have protocols");
        let (from, to) = (ends[from].clone(), ends[to].clone());
        let flow = Flow { from, to, protocol, port: port.port, via: None, hop: None, masker: None };
        evaluate(&program, &leases, &flow, now).verdict == Verdict::Allow
    };
    Ok(asked.iter().map(verdict).collect())
}

/// Questions about one spelling of a cluster.
pub(crate) struct Batch<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) objects: Vec<Value>,
    pub(crate) asked: Vec<Question>,
}

/// The program that answers for kube-network-policies.
pub(crate) struct Peer(PathBuf);

impl Peer {
    pub(crate) fn new() -> Self {
        Self(namewall_testbed::peer("kubenetworkpolicies"))
    }

    /// Its verdicts, batch by batch, true for allowed.
    pub(crate) fn ask(&self, batches: &[Batch<'_>]) -> Result<Vec<Vec<bool>>, Failure> {
        let failed = |error: std::io::Error| Failure(format!("{} cannot be asked: {error}", self.0.display()));
        let mut command = Command::new(&self.0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut input = child.stdin.take().expect("the input is a pipe");
        let lines: Vec<String> = batches.iter().map(|batch| format!("{}\n", request(batch))).collect();
        // The program reads everything before it writes.
        lines.iter().try_for_each(|line| input.write_all(line.as_bytes())).map_err(failed)?;
        drop(input);
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            return Err(Failure(format!("{} fails; its reason is above", self.0.display())));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let answers: Vec<&str> = text.lines().collect();
        if answers.len() != batches.len() {
            return Err(Failure(format!(
                "{} answers {} of {} batches",
                self.0.display(),
                answers.len(),
                batches.len()
            )));
        }
        Ok(batches.iter().zip(answers).map(|(batch, answer)| choose(batch, answer)).collect())
    }
}

/// The program is asked about whole pairs.
fn asked_pairs(batch: &Batch<'_>) -> Vec<usize> {
    let mut pairs: Vec<usize> = batch.asked.iter().map(|question| question.pair).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

fn request(batch: &Batch<'_>) -> Value {
    let cluster = batch.cluster;
    let ports = cluster.ports.iter().map(|port| json!({"protocol": port.protocol, "port": port.port}));
    json!({
        "objects": batch.objects,
        "ends": cluster.ends.iter().map(|end| &end.address).collect::<Vec<_>>(),
        "pairs": asked_pairs(batch).into_iter().map(|pair| cluster.pairs[pair]).collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
    })
}

fn choose(batch: &Batch<'_>, answer: &str) -> Vec<bool> {
    let pairs = asked_pairs(batch);
    let ports = batch.cluster.ports.len();
    assert_eq!(answer.len(), pairs.len() * ports, "one sign for each connection");
    let sign = |question: &Question| {
        let row = pairs.binary_search(&question.pair).expect("the pair was asked");
        answer.as_bytes()[row * ports + question.port] == b'+'
    };
    batch.asked.iter().map(sign).collect()
}
