//! What holds while something is broken.

use crate::names::{ASKS, FIRST, NOBODY, put_firewall};
use crate::report::{Seen, eventually, now, step};
use crate::stage::{Stage, pod};
use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// How long the API server is away: longer than a lease lasts.
const AWAY: Duration = Duration::from_secs(15);

pub(crate) fn an_agent_is_killed(stage: &Stage) -> Result<()> {
    put_firewall(stage)?;
    now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
    stage.tell(ASKS, &format!("hold {FIRST} 1500"))?.map_err(anyhow::Error::msg)?;
    step("an agent is killed: what is closed stays closed, what is open stays open", || {
        // It tries what it may not while nobody is there, and while the next agent takes the table over.
        let hammer = ["hammer", "kill", NOBODY, "20"];
        stage.plane.apply(&pod(("shop", "kill"), "node-1", "", &hammer))?;
        stage.plane.kubectl(&["wait", "--for=condition=Ready", "pod/kill", "-n", "shop", "--timeout=60s"])?;
        kill(agent_process("node-1")?, Signal::SIGKILL)?;
        now("it connects", stage.goes(ASKS, FIRST, true))?;
        now("it does not connect", stage.goes(ASKS, NOBODY, false))?;
        let held = stage.tell(ASKS, "still 1500")?;
        now("the connection goes on", Ok(Seen::new(held == Ok("still".to_owned()), format!("{held:?}"))))
    })?;
    step("it comes back and adopts what is there", || {
        let name = stage.agent(0)?;
        eventually("restarted, and ready", || {
            let pod = stage.plane.get(&["pod", "-n", "namewall", &name])?;
            let status = &pod["status"]["containerStatuses"][0];
            Ok(Seen::new(status["restartCount"] == 1 && status["ready"] == true, status.to_string()))
        })?;
        eventually("it connects", || stage.goes(ASKS, "api.payments.example:443", true))?;
        let file = stage.folder.join("pods/kill");
        eventually("the pod has tried", || Ok(Seen::new(file.exists(), "nothing yet")))?;
        let said = std::fs::read_to_string(&file)?;
        now("closed", Ok(Seen::new(said.starts_with("closed"), said)))?;
        stage.plane.kubectl(&["delete", "pod", "-n", "shop", "kill", "--wait=false"]).map(drop)
    })
}

/// The process of a node's agent. All processes that can be seen from here are of this run.
fn agent_process(node: &str) -> Result<Pid> {
    let is_it = |line: &str| line.starts_with("/namewall\0agent\0") && line.contains(&format!("--node={node}\0"));
    let entries = std::fs::read_dir("/proc")?.flatten();
    let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = numbers.find(|id| std::fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| is_it(&line)));
    found.map(Pid::from_raw).with_context(|| format!("no agent runs on {node}"))
}

pub(crate) fn the_api_server_is_away(stage: &mut Stage) -> Result<()> {
    step("the API server is away: policies hold, and names are learned", || {
        stage.plane.kill_server();
        std::thread::sleep(AWAY);
        now("it does not connect", stage.goes(ASKS, NOBODY, false))?;
        now("it does not connect", stage.goes("shop/web", "10.96.0.80:5432", false))?;
        now("it connects", stage.goes("shop/api", "10.96.0.80:5432", true))?;
        now("it connects", stage.goes(ASKS, "api.payments.example:443", true))?;
        now("it connects", stage.goes(ASKS, "one.cdn.example:443", true))
    })?;
    step("it comes back, and changes count again", || {
        stage.plane.start_server()?;
        crate::names::remove_firewall(stage)
    })
}
