//! Questions as users ask them, of manifests as users have them.

use namewall_cluster::{Document, Settings, lower};
use namewall_policy::ask::{Host, Names, Target, World};
use namewall_policy::lease::{Learned, NeverLeased};
use namewall_policy::unknown::Described;
use namewall_policy::{Instant, LeaseTable, Prediction, compile};
use std::time::Duration;

/// The answer to `FROM -> TO [with NAME=ADDRESS]`: a verdict, what it depends on, or why there is none.
pub(crate) fn ask(yaml: &str, question: &str) -> String {
    ask_with(yaml, question, &Settings::default())
}

pub(crate) fn ask_with(yaml: &str, question: &str, settings: &Settings) -> String {
    let (documents, broken) = Document::read_all(&"cluster.yaml".into(), yaml);
    assert!(broken.is_empty(), "{broken:?}");
    let lowered = lower(&documents, settings);
    let (program, _) = compile(&lowered.snapshot);
    let (question, answers) = question.split_once(" with ").unwrap_or((question, ""));
    let mut names = Names::new();
    let mut leases = LeaseTable::default();
    for answer in answers.split_whitespace() {
        let (name, address) = answer.split_once('=').unwrap();
        let (name, address): (_, std::net::IpAddr) = (name.parse().unwrap(), address.parse().unwrap());
        names.insert(name, vec![address]);
    }
    let cluster_domain = "cluster.local".parse().unwrap();
    for (name, addresses) in &names {
        let expiry = Instant(Duration::MAX);
        let learned = Learned { name: name.clone(), addresses: addresses.clone(), expiry, asked_by: None };
        NeverLeased::new("cluster.local".parse().unwrap()).learn(&program, &learned, &mut leases);
    }
    let world = World {
        snapshot: &lowered.snapshot,
        program: &program,
        leases: &leases,
        names: &names,
        cluster_domain: &cluster_domain,
        now: Instant::default(),
    };
    let (from, to) = question.split_once(" -> ").unwrap();
    let (from, to): (Host, Target) = (from.parse().unwrap(), to.parse().unwrap());
    let routes = match world.routes(&from, &to) {
        Ok(routes) => routes,
        Err(error) => return error.to_string(),
    };
    match world.predict(&routes) {
        Prediction::Depends => format!("depends: {}", Described::join(&world.describe(world.depends_on(&routes)))),
        settled => settled.to_string(),
    }
}
