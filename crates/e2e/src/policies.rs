//! NetworkPolicies between pods of one node and of two, directly and through a
//! Service; and pods that are new.

use crate::report::{Seen, eventually, now, step, within};
use crate::stage::{Stage, pod};
use anyhow::Result;
use std::time::Duration;

const SHOP: &str = include_str!("../manifests/shop.yaml");
const DB_POLICY: &str = include_str!("../manifests/db-policy.yaml");
const CLOSED: &str = include_str!("../manifests/closed.yaml");
/// The Service's address.
const DB: &str = "10.96.0.80:5432";
/// Who asks the database, which is on node 2; where they are, and whether they may.
const ASKERS: [(&str, &str, bool); 4] =
    [("api", "node-1", true), ("web", "node-1", false), ("job", "node-2", true), ("report", "node-2", false)];
/// How long a pod tries what it may not do, from its first moment.
const HAMMER_SECONDS: &str = "4";

pub(crate) fn between_pods(stage: &Stage) -> Result<()> {
    step("pods run on both nodes", || {
        stage.plane.apply(SHOP)?;
        eventually("the namespace has its account", || {
            let got = stage.plane.get(&["serviceaccount", "default", "-n", "shop"]);
            Ok(Seen::new(got.is_ok(), "none yet"))
        })?;
        stage.run_pod(("shop", "db"), "node-2", "")?;
        for (name, node, may) in ASKERS {
            stage.run_pod(("shop", name), node, if may { ", role: client" } else { "" })?;
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
    now(&format!("{verdict}, from {from} to {to}"), Ok(Seen::new(output.status.success(), said)))
}

pub(crate) fn new_pods_are_closed(stage: &Stage) -> Result<()> {
    stage.plane.apply(CLOSED)?;
    let places = [
        "198.51.100.7:443".to_owned(),
        format!("{}:80", stage.pod_address("shop", "web")?),
        format!("{}:80", stage.pod_address("shop", "report")?),
    ];
    let pods: Vec<(String, &str, &str, bool)> = (0..8)
        .map(|nth| {
            let is_free = nth >= 6;
            let node = if nth % 2 == 0 { "node-1" } else { "node-2" };
            (format!("hammer-{nth}"), node, places[nth / 2 % 3].as_str(), is_free)
        })
        .collect();
    let told = step("a new pod is closed from its first moment, and open when it is known and may", || {
        for (name, node, place, is_free) in &pods {
            let labels = if *is_free { "" } else { ", may: nothing" };
            let arguments = ["hammer", name, place, HAMMER_SECONDS];
            stage.plane.apply(&pod(("shop", name), node, labels, &arguments))?;
        }
        let mut told = Vec::new();
        for (name, _, place, is_free) in &pods {
            let file = stage.folder.join("pods").join(name);
            within(Duration::from_secs(90), "the pod has tried", || Ok(Seen::new(file.exists(), "nothing yet")))?;
            let said = std::fs::read_to_string(&file)?;
            let what = format!("{name} to {place}: {}", said.trim());
            let expected = if *is_free { "open" } else { "closed" };
            now(expected, Ok(Seen::new(said.starts_with(expected), what.clone())))?;
            told.push(what);
        }
        Ok(told)
    })?;
    for line in told {
        println!("             {line}");
    }
    let names: Vec<&str> = pods.iter().map(|(name, ..)| name.as_str()).collect();
    stage.plane.kubectl(&[&["delete", "pod", "-n", "shop", "--wait=false"], &names[..]].concat())?;
    Ok(())
}
