//! The way out.

use crate::report::{Observation, eventually, now, step};
use crate::stage::{ProbePod, Stage};
use anyhow::Result;

pub(crate) fn leaves_nothing(stage: &Stage) -> Result<()> {
    step("helm uninstall takes everything out of the cluster; rules stay in force", || {
        stage.helm(&["uninstall", "namewall", "--wait"])?;
        eventually("no namespace, no roles", || {
            let kinds = "namespaces,clusterroles,clusterrolebindings";
            let said = stage.plane.kubectl(&["get", kinds, "-o", "name"])?;
            Ok(Observation::new(!said.contains("namewall"), said))
        })?;
        now("it does not connect", stage.goes("shop/web", "10.96.0.80:5432", false))?;
        now("it connects", stage.goes("shop/api", "10.96.0.80:5432", true))
    })?;
    step("the CNI plugin went before the agents: new pods start, though none of them would answer it", || {
        for node in &stage.nodes {
            let left = node.machine.shell("ls -A /etc/cni/net.d /opt/cni/bin")?;
            let is_good = !left.contains("namewall") && left.contains("cni.conflist");
            now("the runtime has its own configuration", Ok(Observation::new(is_good, left)))?;
            let name = format!("between-{}", node.machine.name());
            stage.run_pod(ProbePod { namespace: "shop", name: &name, node: node.machine.name(), labels: "" })?;
        }
        stage.pods_are_ready("shop")
    })?;
    step("namewall uninstall leaves nothing in the nodes' kernels", || {
        for (nth, node) in stage.nodes.iter().enumerate() {
            now("our table is there", stage.tables(nth).map(|said| Observation::new(said.contains("namewall"), said)))?;
            uninstall(stage, node.machine.name())?;
            eventually("our table is gone", || {
                stage.tables(nth).map(|said| Observation::new(!said.contains("namewall"), said))
            })?;
            let left = || node.machine.shell("ls -A /etc/cni/net.d /opt/cni/bin");
            eventually("the runtime has its own configuration", || {
                left().map(|said| Observation::new(!said.contains("namewall") && said.contains("cni.conflist"), said))
            })?;
        }
        now("it connects", stage.goes("shop/web", "10.96.0.80:5432", true))
    })?;
    step("pods start without it", || {
        stage.run_pod(ProbePod { namespace: "shop", name: "after", node: "node-1", labels: "" })?;
        stage.pods_are_ready("shop")?;
        now("it connects", stage.goes("shop/after", "10.96.0.80:5432", true))
    })
}

/// As docs/install.md says, where a node has no binary but that of the image.
fn uninstall(stage: &Stage, node: &str) -> Result<()> {
    let root = stage.folder.join("root.yaml");
    std::fs::write(&root, "securityContext: {runAsUser: 0}\n")?;
    let (node, root) = (format!("node/{node}"), format!("--custom={}", root.display()));
    let chart = std::fs::read_to_string(stage.programs.chart.join("Chart.yaml"))?;
    let version = chart.lines().find_map(|line| line.strip_prefix("appVersion: ")).unwrap_or_default();
    let image = format!("--image=namewall:{version}");
    let debug = ["debug", &node, &image, "--profile=sysadmin", &root, "--", "/namewall", "uninstall"];
    stage.plane.kubectl(&debug).map(drop)
}
