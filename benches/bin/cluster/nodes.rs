//! Two nodes with an agent each, and a controller. A pod of the first looks names up
//! under one wildcard, a thousand a minute; how long after its answer the second has
//! each of them open.

use crate::rig::{NODES, Rig, SERVER, ask};
use anyhow::{Result, ensure};
use namewall_bench::figures::{figure, quantile};
use namewall_sandbox::Ask;
use namewall_scenario::zones::RecordType;
use serde_json::json;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

const POD: &str = "10.244.1.10";
/// From one lookup to the next: 1,000 a minute.
const PERIOD: Duration = Duration::from_millis(60);
/// An agent that is asked more often is busy with answering.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long after its answer a name may take to be open on the other node.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn measure(lookups: usize) -> Result<()> {
    let rig = Rig::build("nodes", lookups)?;
    let _controller = rig.start_controller(NODES[1], "one")?;
    rig.wait_for_names()?;
    let Rig { sandbox, sockets, .. } = &rig;
    let (server, pod) = (SocketAddr::new(SERVER.parse()?, 53), sandbox.place(POD.parse()?)?);
    let (mut answers, mut leases) = (Vec::new(), Vec::new());
    let is_open = |name: &str| {
        let told = ask(&sockets[1], &json!({"leases": {"name": name}}));
        told.is_ok_and(|told| told["leases"].as_array().is_some_and(|all| !all.is_empty()))
    };
    // Names that are answered, and not open on the other node yet.
    let mut awaited: Vec<(String, Instant)> = Vec::new();
    let (mut number, begin) = (0, Instant::now());
    while number < lookups || !awaited.is_empty() {
        if number < lookups && begin.elapsed() >= PERIOD * number as u32 {
            let text = format!("n{number}.load.example");
            let question =
                Ask { server, name: text.parse()?, kind: RecordType::A, via: None, edns: None, mixed_case: false };
            let began = Instant::now();
            let heard = sandbox.ask(&pod, &[question], 1)?;
            ensure!(heard.iter().flatten().count() == 1, "{text} is not answered");
            answers.push(began.elapsed().as_secs_f64() * 1e3);
            awaited.push((text, Instant::now()));
            number += 1;
        }
        awaited.retain(|(name, answered)| {
            let is_open = is_open(name);
            if is_open {
                leases.push(answered.elapsed().as_secs_f64() * 1e3);
            }
            !is_open
        });
        let late = awaited.iter().find(|(_, answered)| answered.elapsed() > PATIENCE);
        ensure!(late.is_none(), "{late:?} is not open on the other node");
        sleep(LOOK_EVERY);
    }
    figure("cluster_nodes_names_a_minute", lookups as f64 * 60.0 / begin.elapsed().as_secs_f64());
    figure("cluster_nodes_objects", rig.name_objects()? as f64);
    for (what, times) in [("answer", &answers), ("lease", &leases)] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            figure(&format!("cluster_nodes_{what}_{name}_ms"), quantile(times, share));
        }
    }
    Ok(())
}
