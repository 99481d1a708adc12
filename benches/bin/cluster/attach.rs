//! From a container runtime's ADD to policies that are enforced: the CNI plugin as
//! a process, for pods that the API server has without an address. The process's
//! own start counts.

use crate::events::Server;
use crate::namewall;
use crate::rig::{NODES, Rig};
use anyhow::{Context, Result, ensure};
use namewall_bench::figures::{figure, milliseconds, quantile};
use namewall_testbed::output_with_input;
use serde_json::json;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::{Duration, Instant};

/// The watch has told of a pod by then, as before a runtime begins.
const KNOWN_AFTER: Duration = Duration::from_millis(100);

pub(crate) fn measure(pods: usize) -> Result<()> {
    let rig = Rig::build("attach", 1)?;
    let (node, server) = (rig.sandbox.node(NODES[0]).context("there is the node")?, Server::open(&rig)?);
    // One interface stands for all: only its ends are looked for.
    let place = rig.sandbox.place(Ipv4Addr::new(10, 244, 1, 10).into()).context("there is the pod")?;
    let namespace = place.namespace.path();
    let records = rig.sockets[0].with_file_name("attachments");
    let mut times = Vec::new();
    for number in 0..pods {
        let (name, address) = (format!("attach-{number}"), Ipv4Addr::new(10, 244, 1, u8::try_from(11 + number)?));
        let uid = server.create(&name)?;
        std::thread::sleep(KNOWN_AFTER);
        let config = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "namewall", "socket": rig.sockets[0], "records": records,
            "prevResult": {
                "cniVersion": "1.0.0",
                "interfaces": [{"name": "eth0", "sandbox": namespace}],
                "ips": [{"interface": 0, "address": format!("{address}/24")}],
            },
        });
        let run = |command: &str| -> Result<f64> {
            let mut plugin = Command::new(namewall()?);
            plugin
                .env("CNI_COMMAND", command)
                .env("CNI_CONTAINERID", &name)
                .env("CNI_IFNAME", "eth0")
                .env("CNI_NETNS", &namespace)
                .env("CNI_ARGS", format!("K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_UID={uid}"));
            let began = Instant::now();
            let output = node.enter(|| output_with_input(&mut plugin, &config.to_string()))??;
            let took = milliseconds(began.elapsed());
            ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stdout));
            Ok(took)
        };
        times.push(run("ADD")?);
        // The next pod has the same network namespace, which only one pod can have at a time.
        run("DEL")?;
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
        figure(&format!("cluster_attach_{name}_ms"), quantile(&times, share));
    }
    Ok(())
}
