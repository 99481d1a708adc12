//! What is left of a cluster when everything is removed that a difference does not need.

use crate::engines::{Peer, Question, namewall};
use crate::generate::Cluster;
use crate::{Ask, Failure, spelled};
use serde_json::Value;

/// Reports a difference with the smallest policies that show it.
pub(crate) fn report(peer: &Peer, cluster: &Cluster, question: Question, entries: &[usize]) -> Failure {
    let mut small = Cluster {
        seed: cluster.seed,
        objects: cluster.objects.clone(),
        ends: Vec::new(),
        pairs: vec![[0, 1]],
        ports: vec![cluster.ports[question.port]],
    };
    small.ends = cluster.pairs[question.pair].map(|at| cluster.ends[at].clone()).into();
    while let Some(smaller) = candidates(&small.objects).into_iter().find(|objects| {
        let cluster = Cluster { objects: objects.clone(), ends: small.ends.clone(), ..small_of(&small) };
        verdicts(peer, &cluster, entries).is_ok_and(|[ours, theirs]| ours != theirs)
    }) {
        small.objects = smaller;
    }
    let word = |allowed| if allowed { "allow" } else { "deny" };
    let [ours, theirs] = match verdicts(peer, &small, entries) {
        Ok(verdicts) => verdicts.map(word),
        Err(failure) => return failure,
    };
    let (from, to, port) = (&small.ends[0], &small.ends[1], small.ports[0]);
    let name = |pod: &Option<String>| pod.clone().map(|name| format!(" ({name})")).unwrap_or_default();
    let objects: String = small.objects.iter().map(|object| format!("{object}\n")).collect();
    Failure(format!(
        "seed {}: {}{} -> {}{} {}/{}: namewall says {ours}, kube-network-policies says {theirs}\n{objects}",
        small.seed,
        from.address,
        name(&from.pod),
        to.address,
        name(&to.pod),
        port.port,
        port.protocol
    ))
}

fn small_of(cluster: &Cluster) -> Cluster {
    let (pairs, ports) = (cluster.pairs.clone(), cluster.ports.clone());
    Cluster { seed: cluster.seed, objects: Vec::new(), ends: Vec::new(), pairs, ports }
}

fn verdicts(peer: &Peer, cluster: &Cluster, entries: &[usize]) -> Result<[bool; 2], Failure> {
    let asked = vec![Question { pair: 0, port: 0 }];
    let ours = namewall(cluster, &cluster.objects, &asked)?;
    let theirs = spelled(peer, &[Ask { cluster, asked }], entries)?;
    Ok([ours[0], theirs[0][0]])
}

/// The cluster without one of its objects, and without one item of one list or one label of one selector.
fn candidates(objects: &[Value]) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for at in 0..objects.len() {
        let mut fewer = objects.to_vec();
        fewer.remove(at);
        all.push(fewer);
    }
    for (at, object) in objects.iter().enumerate().filter(|(_, object)| is_policy(object)) {
        for spec in without_one(&object["spec"]) {
            let mut fewer = objects.to_vec();
            fewer[at]["spec"] = spec;
            all.push(fewer);
        }
    }
    all
}

fn is_policy(object: &Value) -> bool {
    object["kind"].as_str().is_some_and(|kind| kind.ends_with("Policy"))
}

fn without_one(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Array(items) => {
            // A list that is emptied can mean something else.
            for at in (0..items.len()).filter(|_| items.len() > 1) {
                let mut fewer = items.clone();
                fewer.remove(at);
                all.push(Value::Array(fewer));
            }
            for (at, item) in items.iter().enumerate() {
                for smaller in without_one(item) {
                    let mut changed = items.clone();
                    changed[at] = smaller;
                    all.push(Value::Array(changed));
                }
            }
        }
        Value::Object(fields) => {
            for key in ["ingress", "egress", "ports", "protocols", "matchLabels", "matchExpressions", "except"] {
                let mut fewer = fields.clone();
                if fewer.remove(key).is_some() {
                    all.push(Value::Object(fewer));
                }
            }
            for (key, field) in fields {
                for smaller in without_one(field) {
                    let mut changed = fields.clone();
                    changed.insert(key.clone(), smaller);
                    all.push(Value::Object(changed));
                }
            }
        }
        _ => {}
    }
    all
}
