//! NetworkPolicies between pods of one node and of two, directly and through a
//! Service; and pods that are new.

use crate::report::{Observation, eventually, now, step};
use crate::stage::{ProbePod, Stage, process_of};
use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use std::time::Duration;

const SHOP: &str = include_str!("../manifests/shop.yaml");
const DB_POLICY: &str = include_str!("../manifests/db-policy.yaml");
const CLOSED: &str = include_str!("../manifests/closed.yaml");
/// The Service's address.
const DB: &str = "10.96.0.80:5432";
/// Who asks the database, which is on node 2; where they are, and whether they may.
pub(crate) const ASKERS: [(&str, &str, bool); 4] =
    [("api", "node-1", true), ("web", "node-1", false), ("job", "node-2", true), ("report", "node-2", false)];
/// Somewhere outside.
const WORLD_SIX: &str = "[2001:db8:64::7]:443";
/// How long a pod tries what it may not do, from its first moment.
const HAMMER_SECONDS: &str = "4";
/// New pods whose first packets are looked at.
const NEW_PODS: usize = 10;
/// Longer than a pod takes to start.
const SILENCE: Duration = Duration::from_secs(15);

pub(crate) fn between_pods(stage: &Stage) -> Result<()> {
    step("pods run on both nodes", || {
        stage.plane.apply(SHOP)?;
        eventually("the namespace has its account", || {
            let got = stage.plane.get(&["serviceaccount", "default", "-n", "shop"]);
            Ok(Observation::new(got.is_ok(), "none yet"))
        })?;
        stage.run_pod(ProbePod { namespace: "shop", name: "db", node: "node-2", labels: "" })?;
        for (name, node, may) in ASKERS {
            let labels = if may { ", role: client" } else { "" };
            stage.run_pod(ProbePod { namespace: "shop", name, node, labels })?;
        }
        stage.pods_are_ready("shop")
    })?;
    let db = format!("{}:80", stage.pod_address("shop", "db")?);
    step("without a policy all reach each other, and the world", || {
        for (name, _, _) in ASKERS {
            let from = format!("shop/{name}");
            for place in [&db, DB, "198.51.100.7:443"] {
                eventually("it connects", || stage.goes(&from, place, true))?;
            }
        }
        Ok(())
    })?;
    step("a NetworkPolicy holds on the same node, across nodes and through a Service", || {
        stage.plane.apply(DB_POLICY)?;
        for (name, _, may) in ASKERS {
            let from = format!("shop/{name}");
            let expected = if may { "it connects" } else { "it does not connect" };
            eventually(expected, || stage.goes(&from, &db, may))?;
            now(expected, stage.goes(&from, DB, may))?;
        }
        Ok(())
    })?;
    step("kubectl namewall explain says the same", || {
        for (name, _, may) in ASKERS {
            for to in ["shop/db:80", DB] {
                says(stage, &format!("shop/{name}"), to, may)?;
            }
        }
        Ok(())
    })
}

/// What the plugin says of a connection.
fn says(stage: &Stage, from: &str, to: &str, is_allowed: bool) -> Result<()> {
    let verdict = if is_allowed { "allow" } else { "deny" };
    let output = stage.kubectl_namewall(&["explain", "--from", from, "--to", to, "--expect", verdict])?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    now(&format!("{verdict}, from {from} to {to}"), Ok(Observation::new(output.status.success(), said)))
}

/// A pod that tries one thing from its first moment on.
struct Hammer {
    name: String,
    node: &'static str,
    place: String,
    /// Whether it may; and whether it is found out that it may.
    may: bool,
    opens: bool,
}

impl Hammer {
    fn start(&self, stage: &Stage) -> Result<()> {
        let labels = if self.may { "" } else { ", may: nothing" };
        let arguments = ["hammer", &self.name, &self.place, HAMMER_SECONDS];
        let pod = ProbePod { namespace: "shop", name: &self.name, node: self.node, labels };
        stage.plane.apply(&pod.manifest(&arguments))
    }

    /// What came of it.
    fn end(&self, stage: &Stage) -> Result<String> {
        let file = stage.folder.join("pods").join(&self.name);
        eventually("the pod has tried", || Ok(Observation::new(file.exists(), "nothing yet")))?;
        let said = std::fs::read_to_string(&file)?;
        let what = format!("{} to {}: {}", self.name, self.place, said.trim());
        println!("             {what}");
        stage.plane.kubectl(&["delete", "pod", "-n", "shop", &self.name, "--wait=false"])?;
        let expected = if self.opens { "open" } else { "closed" };
        now(expected, Ok(Observation::new(said.starts_with(expected), what)))?;
        Ok(said)
    }
}

pub(crate) fn new_pods_are_closed(stage: &Stage) -> Result<()> {
    stage.plane.apply(CLOSED)?;
    let places = [
        ("198.51.100.7:443".to_owned(), false),
        (format!("{}:80", stage.pod_address("shop", "web")?), false),
        (format!("{}:80", stage.pod_address("shop", "report")?), false),
        (WORLD_SIX.to_owned(), false),
        ("198.51.100.7:443".to_owned(), true),
        (WORLD_SIX.to_owned(), true),
    ];
    let hammer = |nth: usize| {
        let node = if nth.is_multiple_of(2) { "node-1" } else { "node-2" };
        let (place, may) = places[nth / 2].clone();
        Hammer { name: format!("new-{nth}"), node, place, may, opens: may }
    };
    step("a new pod is closed from its first moment, and open when it is known and may", || {
        let hammers: Vec<Hammer> = (0..2 * places.len()).map(hammer).collect();
        hammers.iter().try_for_each(|hammer| hammer.start(stage))?;
        hammers.iter().try_for_each(|hammer| hammer.end(stage).map(drop))
    })?;
    step("no new pod starts for as long as its agent is silent; then each may what it may", || {
        let agent = process_of("agent", "--node=node-1")?;
        kill(agent, Signal::SIGSTOP)?;
        let hammers = [0, 3, 4, 5].map(|nth| {
            let (place, may) = places[nth].clone();
            Hammer { name: format!("unknown-{nth}"), node: "node-1", place, may, opens: may }
        });
        hammers.iter().try_for_each(|hammer| hammer.start(stage))?;
        std::thread::sleep(SILENCE);
        for hammer in &hammers {
            let pod = stage.plane.get(&["pod", "-n", "shop", &hammer.name])?;
            let phase = pod["status"]["phase"].to_string();
            now("it has not started", Ok(Observation::new(phase.contains("Pending"), phase)))?;
        }
        kill(agent, Signal::SIGCONT)?;
        hammers.iter().try_for_each(|hammer| hammer.end(stage).map(drop))
    })
}

pub(crate) fn no_first_packet_is_lost(stage: &Stage) -> Result<()> {
    step("ten new pods lose no first packet", || first_packets_pass(stage, "first", &["node-1", "node-2"]))
}

/// New pods on these nodes. Each tries what it may from its first moment on, and must not fail once.
pub(crate) fn first_packets_pass(stage: &Stage, name: &str, nodes: &[&'static str]) -> Result<()> {
    let hammers: Vec<Hammer> = (0..NEW_PODS)
        .map(|nth| {
            let place = "198.51.100.7:443".to_owned();
            Hammer { name: format!("{name}-{nth}"), node: nodes[nth % nodes.len()], place, may: true, opens: true }
        })
        .collect();
    hammers.iter().try_for_each(|hammer| hammer.start(stage))?;
    hammers.iter().try_for_each(|hammer| {
        let said = hammer.end(stage)?;
        now("no try fails", Ok(Observation::new(said.trim().ends_with("before {}"), said)))
    })
}
