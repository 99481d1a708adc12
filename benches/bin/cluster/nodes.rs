//! Two nodes with an agent each. A pod of the first looks names up; how long after
//! its answer the second has each of them open.

use crate::rig::{Rig, SERVER, ask, wait_until};
use anyhow::{Result, ensure};
use namewall_bench::figures::{figure, quantile};
use namewall_sandbox::Ask;
use namewall_scenario::zones::RecordType;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Instant;

const POD: &str = "10.244.1.10";

pub(crate) fn measure(lookups: usize) -> Result<()> {
    let rig = Rig::build("nodes", lookups)?;
    let Rig { sandbox, sockets, .. } = &rig;
    let (server, pod) = (SocketAddr::new(SERVER.parse()?, 53), sandbox.place(POD.parse()?)?);
    let (mut answers, mut leases) = (Vec::new(), Vec::new());
    for number in 0..lookups {
        let text = format!("n{number}.load.example");
        let name = text.parse()?;
        let question = Ask { server, name, kind: RecordType::A, via: None, edns: None, mixed_case: false };
        let began = Instant::now();
        let heard = sandbox.ask(&pod, &[question], 1)?;
        ensure!(heard.iter().flatten().count() == 1, "{text} is not answered");
        let answered = Instant::now();
        let open = || ask(&sockets[1], &json!({"leases": {"name": &text}}));
        wait_until(|| open().is_ok_and(|told| told["leases"].as_array().is_some_and(|all| !all.is_empty())))?;
        answers.push((answered - began).as_secs_f64() * 1e3);
        leases.push(answered.elapsed().as_secs_f64() * 1e3);
    }
    for (what, times) in [("answer", &answers), ("lease", &leases)] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            figure(&format!("cluster_nodes_{what}_{name}_ms"), quantile(times, share));
        }
    }
    Ok(())
}
