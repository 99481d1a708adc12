//! What a name opens, on both nodes, until when.

use crate::report::{Observation, eventually, now, step, within};
use crate::setup::TTL;
use crate::stage::{ProbePod, Stage};
use anyhow::{Context, Result};
use std::time::{Duration, Instant};

pub(crate) const FIREWALL: &str = include_str!("../manifests/firewall.yaml");
const BANK: &str = include_str!("../manifests/bank.yaml");
/// What outlives a TTL, by the documentation.
const GRACE: u32 = 5;
/// How long after that a busy machine may take to have noticed.
const SLACK: u32 = 30;

/// Where the provider is at first, and later; and what is under a wildcard.
pub(crate) const FIRST: &str = "198.51.100.7:443";
const LATER: &str = "198.51.100.8:443";
const CDN: &str = "198.51.100.9:443";
pub(crate) const NOBODY: &str = "198.51.100.10:443";
/// On node 1, and on node 2, where nobody asks for a name.
pub(crate) const ASKS: &str = "shop/web";
pub(crate) const SILENT: &str = "shop/report";

const ZONE: [&str; 2] = ["198.51.100.7 api.payments.example", "198.51.100.9 one.cdn.example"];
const ZONE_LATER: [&str; 2] = ["198.51.100.8 api.payments.example", "198.51.100.9 one.cdn.example"];

/// The firewall by name, and the names as they are at first.
pub(crate) fn put_firewall(stage: &Stage) -> Result<()> {
    stage.set_names(&ZONE)?;
    stage.plane.apply(FIREWALL)?;
    for pod in [ASKS, SILENT] {
        eventually("it does not connect", || stage.goes(pod, NOBODY, false))?;
    }
    Ok(())
}

pub(crate) fn of_an_egress_firewall(stage: &Stage) -> Result<()> {
    step("an EgressFirewall closes the world on both nodes", || put_firewall(stage))?;
    step("a DNSNameResolver for each of its names appears, and is resolved", || {
        eventually("two, one of them with 198.51.100.7", || {
            let all = stage.resolvers()?;
            let text = serde_json::to_string(&all)?;
            Ok(Observation::new(all.len() == 2 && text.contains("198.51.100.7"), text))
        })
    })?;
    step("a pod on node 1 looks the name up, and its first connection works", || {
        now("it connects", stage.goes(ASKS, "api.payments.example:443", true))
    })?;
    step("a pod on node 2 reaches the same address, and has not asked", || {
        eventually("it connects", || stage.goes(SILENT, FIRST, true))
    })?;
    if stage.is_short {
        return Ok(());
    }
    step("so with a name under a wildcard, which only a pod's question can find", || {
        now("closed before anybody asks", stage.goes(SILENT, CDN, false))?;
        now("it connects", stage.goes(ASKS, "one.cdn.example:443", true))?;
        eventually("it connects", || stage.goes(SILENT, CDN, true))
    })?;
    step("both agents say what is open by which rule", || {
        for node in 0..2 {
            let said = stage.ask_agent(node, &["leases"])?;
            let is_good = said.contains("api.payments.example") && said.contains("EgressFirewall");
            now("the name, and its rule", Ok(Observation::new(is_good, said)))?;
        }
        let output = stage.kubectl_namewall(&["leases"])?;
        let said = String::from_utf8(output.stdout).context("it is text")?;
        now("the name", Ok(Observation::new(said.contains("api.payments.example"), said)))
    })?;
    step("the name moves: the new address opens at once for who asks, and soon on the other node", || {
        stage.set_names(&ZONE_LATER)?;
        now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
        eventually("it connects", || stage.goes(SILENT, LATER, true))
    })?;
    step("the old address closes on both nodes after TTL and grace; the new one stays, though nobody asks", || {
        old_closes_and_new_stays(stage)
    })?;
    step("the EgressFirewall goes, and with it DNSNameResolvers, leases and what was closed", || remove_firewall(stage))
}

/// For as long as a lease lasts twice, so that it is seen to be renewed.
fn old_closes_and_new_stays(stage: &Stage) -> Result<()> {
    let (began, lease) = (Instant::now(), Duration::from_secs(u64::from(TTL + GRACE)));
    let mut open = vec![ASKS, SILENT];
    let late = lease * 2 + Duration::from_secs(u64::from(SLACK));
    while began.elapsed() < lease * 2 || (!open.is_empty() && began.elapsed() < late) {
        now("it connects", stage.goes(SILENT, LATER, true))?;
        if let Some(pod) = open.last()
            && stage.goes(pod, FIRST, false)?.is_good
        {
            open.pop();
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    now("the old one is closed", Ok(Observation::new(open.is_empty(), format!("it is open for {open:?}"))))
}

pub(crate) fn remove_firewall(stage: &Stage) -> Result<()> {
    stage.plane.kubectl(&["delete", "egressfirewall", "default", "-n", "shop"])?;
    for pod in [ASKS, SILENT] {
        eventually("it connects", || stage.goes(pod, NOBODY, true))?;
    }
    eventually("no DNSNameResolver", || {
        let all = stage.resolvers()?;
        Ok(Observation::new(all.is_empty(), serde_json::to_string(&all)?))
    })?;
    for node in 0..2 {
        eventually("no lease", || {
            let said = stage.ask_agent(node, &["leases"])?;
            Ok(Observation::new(said.contains("nothing is open by name"), said))
        })?;
    }
    Ok(())
}

pub(crate) fn of_a_cluster_network_policy(stage: &Stage) -> Result<()> {
    step("a ClusterNetworkPolicy by name closes the world, and DNS is open", || {
        stage.set_names(&["198.51.100.7 api.partners.example", "198.51.100.8 else.example"])?;
        stage.plane.apply(BANK)?;
        eventually("the namespace has its account", || {
            let got = stage.plane.get(&["serviceaccount", "default", "-n", "bank"]);
            Ok(Observation::new(got.is_ok(), "none yet"))
        })?;
        stage.run_pod(ProbePod { namespace: "bank", name: "teller", node: "node-1", labels: "" })?;
        stage.run_pod(ProbePod { namespace: "bank", name: "vault", node: "node-2", labels: "" })?;
        stage.pods_are_ready("bank")?;
        for pod in ["bank/teller", "bank/vault"] {
            eventually("it is asked and answers", || {
                let heard = stage.tell(pod, "resolve else.example")?;
                Ok(Observation::new(heard == Ok("198.51.100.8".to_owned()), format!("{heard:?}")))
            })?;
            now("it does not connect", stage.goes(pod, "198.51.100.8:443", false))?;
            now("it does not connect", stage.goes(pod, FIRST, false))?;
        }
        Ok(())
    })?;
    step("its first connection by name works, on the node that asks", || {
        now("it connects", stage.goes("bank/teller", "api.partners.example:443", true))?;
        now("it connects", stage.goes("bank/vault", "api.partners.example:443", true))
    })?;
    step("and ends with TTL and grace", || {
        let patience = Duration::from_secs(u64::from(TTL + GRACE + SLACK));
        within(patience, "it does not connect", || stage.goes("bank/teller", FIRST, false))?;
        stage.plane.kubectl(&["delete", "clusternetworkpolicy", "bank"])?;
        eventually("it connects", || stage.goes("bank/teller", FIRST, true))
    })
}
