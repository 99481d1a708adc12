//! What holds while something is broken, or is changed for another.

use crate::names::{ASKS, FIRST, NOBODY, SILENT, put_firewall, remove_firewall};
use crate::policies::first_packets_pass;
use crate::report::{Observation, TIMEOUT, eventually, now, step, within};
use crate::stage::{ProbePod, Stage, process_of};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use std::time::Duration;

/// Within which another controller leads, by the documentation, and some more for a busy machine.
const TAKEN_OVER: Duration = Duration::from_secs(15 + 30);
/// Within which a node that was cut off from its power works again, on a busy machine.
const RESTARTED: Duration = Duration::from_secs(300);
/// How long the API server is away: longer than a lease lasts.
const AWAY: Duration = Duration::from_secs(15);

pub(crate) fn the_leading_controller_hangs(stage: &Stage) -> Result<()> {
    let leader = || {
        let lease = stage.plane.get(&["lease", "namewall-controller", "-n", "namewall"])?;
        Ok(lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    };
    step("the leading controller hangs; another takes over, and looks names up", || {
        let before: String = leader()?;
        let process = process_of("controller", &format!("--identity={before}"))?;
        kill(process, Signal::SIGSTOP)?;
        put_firewall(stage)?;
        within(TAKEN_OVER, "another leads", || leader().map(|now| Observation::new(now != before, now)))?;
        eventually("it connects", || stage.goes(SILENT, FIRST, true))?;
        kill(process, Signal::SIGCONT)?;
        eventually("it connects", || stage.goes(SILENT, FIRST, true))
    })
}

pub(crate) fn an_agent_is_killed(stage: &Stage) -> Result<()> {
    now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
    stage.tell(ASKS, &format!("hold {FIRST} 1500"))?.map_err(anyhow::Error::msg)?;
    step("an agent is killed: what is closed stays closed, what is open stays open", || {
        start_hammer(stage, "kill", "node-1")?;
        kill(process_of("agent", "--node=node-1")?, Signal::SIGKILL)?;
        now("it connects", stage.goes(ASKS, FIRST, true))?;
        now("it does not connect", stage.goes(ASKS, NOBODY, false))?;
        goes_on(stage)
    })?;
    step("it comes back and adopts what is there", || {
        let name = stage.agent(0)?;
        eventually("restarted, and ready", || {
            let pod = stage.plane.get(&["pod", "-n", "namewall", &name])?;
            let status = &pod["status"]["containerStatuses"][0];
            Ok(Observation::new(status["restartCount"] == 1 && status["ready"] == true, status.to_string()))
        })?;
        now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
        goes_on(stage)?;
        eventually("it enforces the pods that the CNI plugin attached", || attached(stage, 0))?;
        was_closed(stage, "kill")
    })
}

pub(crate) fn agents_are_updated(stage: &Stage) -> Result<()> {
    step("agents are restarted as by an update: nothing opens, and nothing is cut", || {
        start_hammer(stage, "update-1", "node-1")?;
        start_hammer(stage, "update-2", "node-2")?;
        stage.plane.kubectl(&["rollout", "restart", "-n", "namewall", "daemonset/namewall-agent"])?;
        let rollout = ["rollout", "status", "-n", "namewall", "daemonset/namewall-agent", TIMEOUT];
        stage.plane.kubectl(&rollout)?;
        goes_on(stage)?;
        now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
        was_closed(stage, "update-1")?;
        was_closed(stage, "update-2")
    })
}

pub(crate) fn runtime_and_node_restart(stage: &mut Stage) -> Result<()> {
    step("containerd is killed and starts again: pods keep their guard, new ones lose no first packet", || {
        stage.nodes[0].restart_containerd()?;
        now("every pod is guarded", guarded(stage, 0))?;
        now("it does not connect", stage.goes("shop/web", "10.96.0.80:5432", false))?;
        first_packets_pass(stage, "runtime", &["node-1"])?;
        eventually("every pod is guarded", || guarded(stage, 0))
    })?;
    step(
        "a node's power is cut and comes back: its pods are attached and guarded, new ones lose no first packet",
        || {
            let before = seconds(stage, 0)?;
            stage.nodes[0].reboot()?;
            within(RESTARTED, "another agent runs, and every pod is guarded", || match seconds(stage, 0)? < before {
                true => guarded(stage, 0),
                false => Ok(Observation::new(false, "the agent of before")),
            })?;
            stage.plane.kubectl(&["wait", "--for=condition=Ready", "node", "--all", TIMEOUT])?;
            eventually("it connects", || stage.goes("shop/api", "10.96.0.80:5432", true))?;
            eventually("it does not connect", || stage.goes("shop/web", "10.96.0.80:5432", false))?;
            first_packets_pass(stage, "reboot", &["node-1"])
        },
    )
}

/// How long the agent of a node has run.
fn seconds(stage: &Stage, node: usize) -> Result<u64> {
    let status: serde_json::Value = serde_json::from_str(&stage.ask_agent(node, &["status", "-o", "json"])?)?;
    status["seconds"].as_u64().context("no time")
}

/// Whether every pod of a node is attached, and its interface guarded.
fn guarded(stage: &Stage, node: usize) -> Result<Observation> {
    let status: serde_json::Value = serde_json::from_str(&stage.ask_agent(node, &["status", "-o", "json"])?)?;
    let (guard, attached) = (&status["guard"], &status["attachments"]);
    let is_empty = |what: &str| guard[what].as_array().is_some_and(Vec::is_empty);
    let is_good = guard["interfaces"].as_u64() > Some(0)
        && guard["error"].is_null()
        && is_empty("unknown")
        && is_empty("missing")
        && attached["known"].as_u64() > Some(0)
        && attached["enforced"] == attached["known"];
    Ok(Observation::new(is_good, format!("{guard}, {attached}")))
}

/// A pod that tries what it may not, while nobody is there and while the next agent takes the table over.
fn start_hammer(stage: &Stage, name: &str, node: &str) -> Result<()> {
    let pod = ProbePod { namespace: "shop", name, node, labels: "" };
    stage.plane.apply(&pod.manifest(&["hammer", name, NOBODY, "20"]))?;
    let (pod, ready) = (format!("pod/{name}"), "--for=condition=Ready");
    stage.plane.kubectl(&["wait", ready, &pod, "-n", "shop", TIMEOUT]).map(drop)
}

fn was_closed(stage: &Stage, name: &str) -> Result<()> {
    let file = stage.folder.join("pods").join(name);
    eventually("the pod has tried", || Ok(Observation::new(file.exists(), "nothing yet")))?;
    let said = std::fs::read_to_string(&file)?;
    now("closed", Ok(Observation::new(said.starts_with("closed"), said)))?;
    stage.plane.kubectl(&["delete", "pod", "-n", "shop", name, "--wait=false"]).map(drop)
}

/// Whether the agent of a node enforces what was attached, be it before it started.
fn attached(stage: &Stage, node: usize) -> Result<Observation> {
    let status: serde_json::Value = serde_json::from_str(&stage.ask_agent(node, &["status", "-o", "json"])?)?;
    let attached = &status["attachments"];
    let count = |what: &str| attached[what].as_u64().unwrap_or_default();
    let is_good = count("known") > 0 && count("enforced") == count("known") && count("interfaces") == count("known");
    Ok(Observation::new(is_good, attached.to_string()))
}

/// The connection that was there before.
fn goes_on(stage: &Stage) -> Result<()> {
    let held = stage.tell(ASKS, "still")?;
    now("the connection goes on", Ok(Observation::new(held == Ok("still".to_owned()), format!("{held:?}"))))
}

pub(crate) fn the_api_server_is_away(stage: &mut Stage) -> Result<()> {
    step("the API server is away: policies hold, and names are learned", || {
        stage.was_away = true;
        stage.plane.kill_server();
        std::thread::sleep(AWAY);
        now("it does not connect", stage.goes(ASKS, NOBODY, false))?;
        now("it does not connect", stage.goes("shop/web", "10.96.0.80:5432", false))?;
        now("it connects", stage.goes("shop/api", "10.96.0.80:5432", true))?;
        now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
        now("it connects", stage.goes(ASKS, "one.cdn.example:443", true))
    })?;
    step("the API server comes back", || stage.plane.start_server())?;
    step("changes count again", || remove_firewall(stage))
}
