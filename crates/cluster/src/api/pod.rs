//! Pods, and the kinds whose templates stand for pods that do not exist yet.

use super::meta::ObjectMeta;
use serde::Deserialize;

#[derive(Deserialize, Default, Debug, Clone)]
pub struct Pod {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    pub node_name: Option<String>,
    #[serde(default)]
    pub host_network: bool,
    #[serde(default)]
    pub containers: Vec<Container>,
    #[serde(default)]
    pub init_containers: Vec<Container>,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    #[serde(default)]
    pub ports: Vec<ContainerPort>,
    /// `Always` makes an init container a sidecar, whose ports count.
    pub restart_policy: Option<String>,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort {
    pub name: Option<String>,
    pub container_port: u16,
    pub protocol: Option<String>,
}

#[derive(Deserialize, Default, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus {
    pub phase: Option<String>,
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pub pod_ips: Vec<PodIp>,
}

#[derive(Deserialize, Debug, Clone)]
pub struct PodIp {
    pub ip: String,
}

/// Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, ReplicationController.
#[derive(Deserialize, Debug, Clone)]
pub struct Template {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: TemplateSpec,
}

#[derive(Deserialize, Debug, Clone)]
pub struct TemplateSpec {
    pub replicas: Option<i64>,
    #[serde(default)]
    pub template: PodTemplate,
}

#[derive(Deserialize, Default, Debug, Clone)]
pub struct PodTemplate {
    #[serde(default)]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
}

#[derive(Deserialize, Debug, Clone)]
pub struct CronJob {
    #[serde(default)]
    pub metadata: ObjectMeta,
    pub spec: CronJobSpec,
}

#[derive(Deserialize, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct CronJobSpec {
    pub job_template: JobTemplate,
}

#[derive(Deserialize, Debug, Clone)]
pub struct JobTemplate {
    pub spec: TemplateSpec,
}
