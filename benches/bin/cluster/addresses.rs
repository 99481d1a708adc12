//! Two nodes with an agent each, and a firewall that denies nodes. The first gets
//! a new address; how long until that node denies it, and until the other does.

use crate::rig::{NODES, Rig, ask, wait_until};
use anyhow::{Context, Result, ensure};
use namewall_bench::figures::{figure, quantile};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Each is a change by itself: agents do not publish more often than this.
const EVERY: Duration = Duration::from_millis(700);

const POLICY: &str = "apiVersion: namewall.dev/v1alpha1
kind: ClusterEgressFirewall
metadata: {name: nodes}
spec: {priority: 0, rules: [{action: Deny, to: [{nodes: {}}]}]}
";

pub(crate) fn measure(addresses: usize) -> Result<()> {
    let rig = Rig::build("addresses", 1)?;
    rig.plane.apply(POLICY)?;
    for (pod, socket) in ["shop/pod-1", "shop/pod-2"].iter().zip(&rig.sockets) {
        wait_until(|| denies(socket, pod, Ipv4Addr::new(192, 0, 2, 11)))?;
    }
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0..addresses {
        std::thread::sleep(EVERY);
        let address = Ipv4Addr::new(198, 18, u8::try_from(number / 250)?, u8::try_from(1 + number % 250)?);
        ensure!(!denies(&rig.sockets[1], "shop/pod-2", address), "{address} is denied before it is there");
        add(&rig, address)?;
        let began = Instant::now();
        wait_until(|| denies(&rig.sockets[0], "shop/pod-1", address))?;
        here.push(began.elapsed().as_secs_f64() * 1e3);
        wait_until(|| denies(&rig.sockets[1], "shop/pod-2", address))?;
        there.push(began.elapsed().as_secs_f64() * 1e3);
    }
    for (what, times) in [("own", &here), ("all", &there)] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            figure(&format!("cluster_address_{what}_{name}_ms"), quantile(times, share));
        }
    }
    Ok(())
}

/// Gives the first node another address.
fn add(rig: &Rig, address: Ipv4Addr) -> Result<()> {
    let node = rig.sandbox.node(NODES[0]).context("there is the node")?;
    let mut command = Command::new("ip");
    command.args(["address", "add", &format!("{address}/32"), "dev", "lo"]);
    ensure!(node.enter(|| command.status())??.success(), "the node does not get {address}");
    Ok(())
}

/// Whether what the agent enforces denies the address as a node's.
fn denies(socket: &Path, pod: &str, address: Ipv4Addr) -> bool {
    let question = json!({"explain": {"from": pod, "to": format!("{address}:22"), "json": true}});
    let told = ask(socket, &question).unwrap_or_default();
    let answer: Value = serde_json::from_str(told["text"].as_str().unwrap_or_default()).unwrap_or_default();
    answer["reason"].as_str().is_some_and(|reason| reason.contains("ClusterEgressFirewall/nodes"))
}
