//! `namewall cni withdraw`: takes the CNI plugin out of the nodes' runtimes
//! before the agents are deleted. Without it no new pod would start on those
//! nodes, since no agent would answer.
//!
//! The DaemonSet does it: its sidecar `cni`, which keeps the plugin installed,
//! becomes a container that removes it and ends before the agent starts.

use crate::cli::CniWithdraw;
use anyhow::{Context, Result, bail};
use namewall_cluster::Key;
use namewall_kubernetes::Connection;
use namewall_kubernetes::api::{ApiError, CONFLICT, NOT_FOUND, Request, Resource, Verb};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing::info;

const DAEMON_SETS: Resource = Resource { group: "apps", version: "v1", kind: "DaemonSet", plural: "daemonsets" };
/// What the chart calls the container.
const SIDECAR: &str = "cni";
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) fn run(args: &CniWithdraw) -> Result<ExitCode> {
    args.logging.start()?;
    let connection = Connection::open(&args.server.target())?;
    let key = Key { namespace: args.namespace.as_str().into(), name: args.daemon_set.as_str().into() };
    let ask = |verb: Verb| {
        let request = Request { resource: DAEMON_SETS, key: key.clone(), verb };
        connection.block_on(connection.environment().api.ask(request))
    };
    let until = Instant::now() + args.timeout.0;
    let mut is_told = false;
    loop {
        let daemon_set = match ask(Verb::Get) {
            Err(error) if error.code() == Some(NOT_FOUND) => {
                info!("there is no DaemonSet {}/{}, so nothing keeps the plugin", key.namespace, key.name);
                return Ok(ExitCode::SUCCESS);
            }
            Err(error @ ApiError::Refused { .. }) => return Err(error).context("cannot read the DaemonSet"),
            // It may come back.
            Err(ApiError::Unreachable(_)) => Value::Null,
            Ok(daemon_set) => daemon_set,
        };
        match withdrawn(&daemon_set) {
            Some(changed) => match ask(Verb::Replace(changed)) {
                Err(error) if error.code() == Some(CONFLICT) => continue,
                Err(error @ ApiError::Refused { .. }) => return Err(error).context("cannot change the DaemonSet"),
                Err(ApiError::Unreachable(_)) | Ok(_) => {}
            },
            None if is_rolled_out(&daemon_set) => {
                info!("the plugin is out of the runtimes of all nodes");
                return Ok(ExitCode::SUCCESS);
            }
            None => {}
        }
        if !std::mem::replace(&mut is_told, true) {
            info!("waiting until each node's agent has taken the plugin out");
        }
        if Instant::now() >= until {
            let status = &daemon_set["status"];
            bail!(
                "the plugin is not out of all runtimes after {} s: of {} nodes {} are done. Look at the DaemonSet's pods, \
                 or remove the chart without this (helm uninstall --no-hooks) and run `namewall uninstall` on each node",
                args.timeout.0.as_secs(),
                status["desiredNumberScheduled"],
                status["updatedNumberScheduled"].as_u64().unwrap_or(0)
            );
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The DaemonSet whose sidecar removes the plugin, on all nodes at once. None if it is so already, or has no sidecar.
fn withdrawn(daemon_set: &Value) -> Option<Value> {
    let mut changed = daemon_set.clone();
    let containers = changed.pointer_mut("/spec/template/spec/initContainers")?.as_array_mut()?;
    let sidecar = containers.iter_mut().find(|container| container["name"] == SIDECAR)?;
    let folders = ["--bin-dir=", "--conf-dir="];
    let is_folder = |arg: &&Value| arg.as_str().is_some_and(|arg| folders.iter().any(|flag| arg.starts_with(flag)));
    // The records stay: the agent guards interfaces by them until the end.
    let mut args = vec![json!("cni"), json!("uninstall"), json!("--keep-records")];
    args.extend(sidecar["args"].as_array()?.iter().filter(is_folder).cloned());
    if sidecar["args"] == json!(args) {
        return None;
    }
    sidecar["args"] = json!(args);
    sidecar.as_object_mut()?.remove("restartPolicy");
    changed["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}});
    Some(changed)
}

/// True if every node has a pod of the changed DaemonSet, and it is ready: what removes the plugin has ended before.
fn is_rolled_out(daemon_set: &Value) -> bool {
    let (generation, status) = (&daemon_set["metadata"]["generation"], &daemon_set["status"]);
    let count = |what: &str| status[what].as_u64().unwrap_or(0);
    let wanted = count("desiredNumberScheduled");
    generation.is_u64()
        && status["observedGeneration"] == *generation
        && count("updatedNumberScheduled") == wanted
        && count("numberReady") == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon_set() -> Value {
        json!({
            "metadata": {"name": "namewall-agent", "generation": 3},
            "spec": {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
                "template": {"spec": {"initContainers": [{
                    "name": "cni",
                    "restartPolicy": "Always",
                    "args": ["cni", "install", "--watch", "--bin-dir=/host/bin", "--conf-dir=/host/conf", "--timeout=10"],
                }]}},
            },
            "status": {
                "observedGeneration": 3, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2,
            },
        })
    }

    #[test]
    fn the_sidecar_becomes_one_that_removes_the_plugin_and_ends() {
        let changed = withdrawn(&daemon_set()).expect("it is changed");
        let sidecar = &changed["spec"]["template"]["spec"]["initContainers"][0];
        let args = json!(["cni", "uninstall", "--keep-records", "--bin-dir=/host/bin", "--conf-dir=/host/conf"]);
        assert_eq!((&sidecar["args"], &sidecar["restartPolicy"]), (&args, &Value::Null));
        assert_eq!(changed["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], "100%");
        assert_eq!(withdrawn(&changed), None, "once is enough");
        assert_eq!(withdrawn(&json!({"spec": {"template": {"spec": {"containers": []}}}})), None, "without a plugin");
        assert_eq!(withdrawn(&Value::Null), None);
    }

    #[test]
    fn it_is_done_when_every_node_has_a_ready_pod_of_the_new_form() {
        assert!(is_rolled_out(&daemon_set()));
        for (what, value) in [("observedGeneration", 2), ("updatedNumberScheduled", 1), ("numberReady", 1)] {
            let mut one = daemon_set();
            one["status"][what] = value.into();
            assert!(!is_rolled_out(&one), "{what}");
        }
        assert!(!is_rolled_out(&Value::Null), "an API server that does not answer");
    }
}
