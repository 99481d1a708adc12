//! A second opinion: 500 random clusters are given to namewall and to the policy
//! engine of kube-network-policies, SIG Network's own implementation of the
//! APIs, and both are asked about every connection between pods, nodes and
//! addresses outside.
//!
//! `generate` and `policies` make the clusters, from their seeds only;
//! `engines` asks both; `known` is the table of known differences. A difference
//! that is not in the table fails, and so does an entry that no cluster needs.
//! Out of scope, because the engine has no opinion on it: DNS names, gates,
//! Services, protocols other than TCP, UDP and SCTP.
//!
//! `scripts/peers/kubenetworkpolicies` builds the engine once; it needs Go.

mod engines;
mod generate;
mod known;
mod policies;
mod shrink;

use engines::{Batch, Peer, Question, namewall, questions};
use generate::Cluster;
use known::{Difference, KNOWN, KnownDifference};
use serde_json::Value;
use std::fmt;

const CLUSTERS: u64 = 500;

/// Why the test fails, in its own words.
pub(crate) struct Failure(pub(crate) String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[test]
fn kube_network_policies_agrees_but_for_known_differences() -> Result<(), Failure> {
    let peer = Peer::new();
    let clusters: Vec<Cluster> = (0..CLUSTERS).map(generate::cluster).collect();
    let ours: Vec<Vec<bool>> = clusters
        .iter()
        .map(|cluster| namewall(cluster, &cluster.objects, &questions(cluster)))
        .collect::<Result<_, _>>()?;
    let mut explained = [0; KNOWN.len()];

    // In the spelling that the engine reads as documented, there is no difference at all.
    let whole: Vec<Ask<'_>> = clusters.iter().map(|cluster| Ask { cluster, asked: questions(cluster) }).collect();
    for (ask, (theirs, ours)) in whole.iter().zip(spelled(&peer, &whole, &spellings())?.into_iter().zip(&ours)) {
        for (&question, (theirs, &ours)) in ask.asked.iter().zip(theirs.into_iter().zip(ours)) {
            match exempt(ask.cluster, question) {
                Some(entry) if ours => explained[entry] += usize::from(!theirs),
                _ if ours == theirs => {}
                _ => return Err(shrink::report(&peer, ask.cluster, question, &spellings())),
            }
        }
    }

    // As the manifests are written, every difference goes away with the entries that explain it.
    let mut open: Vec<Ask<'_>> = Vec::new();
    for (ask, (theirs, ours)) in whole.iter().zip(spelled(&peer, &whole, &[])?.into_iter().zip(&ours)) {
        let differs = |at: &usize| theirs[*at] != ours[*at] && exempt(ask.cluster, ask.asked[*at]).is_none();
        let asked: Vec<Question> = (0..theirs.len()).filter(differs).map(|at| ask.asked[at]).collect();
        if !asked.is_empty() {
            open.push(Ask { cluster: ask.cluster, asked });
        }
    }
    for entries in subsets() {
        let mut left = Vec::new();
        let answers = spelled(&peer, &open, &entries)?;
        for (ask, theirs) in open.into_iter().zip(answers) {
            let ours = namewall(ask.cluster, &ask.cluster.objects, &ask.asked)?;
            let differs = |at: &usize| theirs[*at] != ours[*at];
            let asked: Vec<Question> = (0..theirs.len()).filter(differs).map(|at| ask.asked[at]).collect();
            entries.iter().for_each(|&entry| explained[entry] += theirs.len() - asked.len());
            if !asked.is_empty() {
                left.push(Ask { cluster: ask.cluster, asked });
            }
        }
        open = left;
    }
    if let Some(ask) = open.first() {
        return Err(shrink::report(&peer, ask.cluster, ask.asked[0], &[]));
    }

    let connections: usize = whole.iter().map(|ask| ask.asked.len()).sum();
    let allowed = ours.iter().flatten().filter(|&&allowed| allowed).count();
    println!("{CLUSTERS} clusters, {connections} connections, {allowed} of them allowed; known differences:");
    for (known, explained) in KNOWN.iter().zip(explained) {
        println!("  {explained:6}  {}", known.name);
        if explained == 0 {
            let KnownDifference { name, why, .. } = known;
            return Err(Failure(format!("no cluster shows the known difference `{name}`; remove it: {why}")));
        }
    }
    Ok(())
}

struct Ask<'c> {
    cluster: &'c Cluster,
    asked: Vec<Question>,
}

/// The verdicts of the other engine on clusters that are spelled by these entries of the table.
fn spelled(peer: &Peer, asks: &[Ask<'_>], entries: &[usize]) -> Result<Vec<Vec<bool>>, Failure> {
    let mut batches = Vec::new();
    let mut parts = Vec::new();
    for ask in asks {
        let clusters = spell(&ask.cluster.objects, entries);
        parts.push(clusters.len());
        let batch = |objects| Batch { cluster: ask.cluster, objects, asked: ask.asked.clone() };
        batches.extend(clusters.into_iter().map(batch));
    }
    let mut answers = peer.ask(&batches)?.into_iter();
    let all = |part: Vec<bool>, next: Vec<bool>| part.into_iter().zip(next).map(|(one, other)| one && other).collect();
    Ok(parts.into_iter().map(|parts| answers.by_ref().take(parts).reduce(all).unwrap_or_default()).collect())
}

fn spell(objects: &[Value], entries: &[usize]) -> Vec<Vec<Value>> {
    let mut clusters = vec![objects.to_vec()];
    for &entry in entries {
        if let Difference::Spelling(spell) = KNOWN[entry].difference {
            clusters = clusters.into_iter().flat_map(spell).collect();
        }
    }
    clusters
}

/// The entry that exempts a connection from all policies.
fn exempt(cluster: &Cluster, question: Question) -> Option<usize> {
    let [from, to] = cluster.pairs[question.pair].map(|at| &cluster.ends[at]);
    KNOWN.iter().position(|known| matches!(known.difference, Difference::Exempt(is) if is(from, to)))
}

fn spellings() -> Vec<usize> {
    (0..KNOWN.len()).filter(|&at| matches!(KNOWN[at].difference, Difference::Spelling(_))).collect()
}

/// Every choice of spellings, the smallest first.
fn subsets() -> Vec<Vec<usize>> {
    let all = spellings();
    let chosen = |bits: u32| all.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1).map(|(_, &entry)| entry);
    let mut subsets: Vec<Vec<usize>> = (1..1 << all.len()).map(|bits| chosen(bits).collect()).collect();
    subsets.sort_by_key(Vec::len);
    subsets
}
