//! Two replicas of the controller. The leader is killed: how long until the other
//! leads, and how many names close meanwhile on nodes that share them.

use crate::rig::{NODES, Rig, SERVER, Zone, ask, wait_until};
use anyhow::{Result, ensure};
use namewall_bench::figures::{figure, quantile};
use namewall_sandbox::Ask;
use namewall_scenario::zones::RecordType;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const POD: &str = "10.244.1.10";
const REPLICAS: [&str; 2] = ["one", "two"];
/// Shorter than a change of the leader takes.
const ZONE: Zone = Zone { names: 50, ttl: 5 };
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long names are watched after each kill.
const WATCH: Duration = Duration::from_secs(25);

pub(crate) fn measure(kills: usize) -> Result<()> {
    let rig = Rig::build_with("failover", ZONE)?;
    let leader = || -> Option<String> {
        let told = rig.plane.get(&["lease", "namewall-controller", "-n", "namewall"]).ok()?;
        told["spec"]["holderIdentity"].as_str().map(str::to_owned)
    };
    let start = |at: usize| rig.start_controller(NODES[at], REPLICAS[at]);
    let mut replicas = vec![start(0)?, start(1)?];
    wait_until(|| leader().is_some())?;
    rig.wait_for_names()?;
    let (server, pod) = (SocketAddr::new(SERVER.parse()?, 53), rig.sandbox.place(POD.parse()?)?);
    for number in 0..ZONE.names {
        let name = format!("n{number}.load.example").parse()?;
        let question = Ask { server, name, kind: RecordType::A, via: None, edns: None, mixed_case: false };
        ensure!(rig.sandbox.ask(&pod, &[question], 1)?.iter().flatten().count() == 1, "a name is not answered");
    }
    let is_full = |socket: &Path| open(socket).is_ok_and(|open| open.len() == ZONE.names);
    wait_until(|| rig.sockets.iter().all(|socket| is_full(socket)))?;
    let (mut times, mut closings) = (Vec::new(), 0);
    for _ in 0..kills {
        let before = leader();
        let at = usize::from(before.as_deref() == Some(REPLICAS[1]));
        let began = Instant::now();
        // Dropped is killed.
        drop(replicas.remove(at));
        let mut took = None;
        let mut last = vec![BTreeSet::new(); 2];
        while took.is_none() || began.elapsed() < WATCH {
            if took.is_none() && leader() != before {
                took = Some(began.elapsed().as_secs_f64());
            }
            for (last, socket) in last.iter_mut().zip(&rig.sockets) {
                let now = open(socket)?;
                closings += last.difference(&now).count();
                *last = now;
            }
            sleep(LOOK_EVERY);
        }
        times.extend(took);
        replicas.insert(at, start(at)?);
    }
    figure("cluster_failover_most_s", quantile(&times, 1.0));
    figure("cluster_failover_p50_s", quantile(&times, 0.5));
    figure("cluster_failover_closings", closings as f64);
    Ok(())
}

/// The names that are open on a node.
fn open(socket: &Path) -> Result<BTreeSet<String>> {
    let told = ask(socket, &json!({"leases": {}}))?;
    let leases = told["leases"].as_array().into_iter().flatten();
    Ok(leases.filter_map(|lease| lease["name"].as_str().map(str::to_owned)).collect())
}
