//! What is written of a pod, to the kernel of its node, through a real watch: a
//! pod gets its address, or other labels, by which another policy holds for it.
//! From when the API server has answered the write to when the kernel tells that
//! its table has changed.

use crate::rig::{NODES, Rig};
use anyhow::{Context, Result, ensure};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use namewall_bench::figures::{figure, milliseconds, quantile};
use namewall_dataplane::netlink::{Family, Received, Socket};
use namewall_dataplane::nft::set;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Ten changes a second: each is a change for itself.
const EVERY: Duration = Duration::from_millis(100);
const KERNEL_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// Who is told what changes in nftables, as a bit.
const CHANGES: u32 = 1 << 6;
/// A new element of a set, and where the message has the set's name.
const NEW_ELEMENT: u16 = (10 << 8) | 12;
const FIXED: usize = 4;
const SET_NAME: u16 = 2;

/// Holds for pods that others' do not.
const POLICY: &str = "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {matchLabels: {is: closed}}, policyTypes: [Ingress]}
";

pub(crate) fn measure(events: usize) -> Result<()> {
    let rig = Rig::build("events", 1)?;
    rig.plane.apply(POLICY)?;
    let node = rig.sandbox.node(NODES[0]).context("there is the node")?;
    let mut kernel = Kernel(node.enter(|| Socket::open_for(Family::NetlinkNetFilter, CHANGES))??);
    let server = Server::open(&rig)?;
    let (mut addresses, mut labels) = (Vec::new(), Vec::new());
    for number in 0..events / 2 {
        let (name, address) = (format!("event-{number}"), Ipv4Addr::new(10, 244, 1, u8::try_from(11 + number)?));
        server.create(&name)?;
        std::thread::sleep(EVERY);
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        kernel.forget()?;
        addresses.push(server.timed(&name, &Change::Status(status), || kernel.wait_for(address))?);
        std::thread::sleep(EVERY);
        let closed = Change::Labels(json!({"is": "closed"}));
        kernel.forget()?;
        labels.push(server.timed(&name, &closed, || kernel.wait_for(address))?);
    }
    let all = [&addresses[..], &labels[..]].concat();
    for (what, times) in [("event", &all), ("event_address", &addresses), ("event_labels", &labels)] {
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)] {
            figure(&format!("cluster_{what}_{name}_ms"), quantile(times, share));
        }
    }
    figure("cluster_events", all.len() as f64);
    Ok(())
}

/// What is written of a pod.
enum Change {
    Status(Value),
    Labels(Value),
}

/// The API server, for who writes pods.
pub(crate) struct Server {
    runtime: Runtime,
    pods: Api<DynamicObject>,
    resource: ApiResource,
}

impl Server {
    pub(crate) fn open(rig: &Rig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let read = Kubeconfig::read_from(rig.plane.kubeconfig())?;
        let options = KubeConfigOptions::default();
        let client = runtime
            .block_on(async { anyhow::Ok(Client::try_from(Config::from_custom_kubeconfig(read, &options).await?)?) })?;
        let resource = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
        };
        let pods = Api::namespaced_with(client, "shop", &resource);
        Ok(Self { runtime, pods, resource })
    }

    /// Creates a pod without an address. Returns its uid.
    pub(crate) fn create(&self, name: &str) -> Result<String> {
        let spec = json!({"nodeName": NODES[0], "containers": [{"name": "c", "image": "none"}]});
        let pod = DynamicObject::new(name, &self.resource).data(json!({"spec": spec}));
        let created = self.runtime.block_on(self.pods.create(&PostParams::default(), &pod))?;
        created.metadata.uid.context("a pod has a uid")
    }

    /// From the answer to a write to the kernel, in milliseconds. What is in the kernel before the answer is here
    /// took no time.
    fn timed(&self, name: &str, change: &Change, wait_for_kernel: impl FnOnce() -> Result<()>) -> Result<f64> {
        let usual = PatchParams::default();
        self.runtime.block_on(async {
            match change {
                Change::Status(status) => {
                    self.pods.patch_status(name, &usual, &Patch::Merge(json!({"status": status}))).await
                }
                Change::Labels(labels) => {
                    self.pods.patch(name, &usual, &Patch::Merge(json!({"metadata": {"labels": labels}}))).await
                }
            }
        })?;
        let answered = Instant::now();
        wait_for_kernel()?;
        Ok(milliseconds(answered.elapsed()))
    }
}

/// What the kernel tells of its tables.
struct Kernel(Socket);

impl Kernel {
    fn forget(&mut self) -> Result<()> {
        while self.0.has_more() {
            self.0.receive()?;
        }
        Ok(())
    }

    /// Until the table has the pod with this address.
    fn wait_for(&mut self, address: Ipv4Addr) -> Result<()> {
        let (began, bytes) = (Instant::now(), address.octets());
        let is_it = |message: Received<'_>| {
            message.kind == NEW_ELEMENT
                && message.attributes(FIXED).text(SET_NAME) == Some(set::PODS.0)
                && message.body.windows(bytes.len()).any(|some| some == bytes)
        };
        loop {
            if !self.0.has_more() {
                ensure!(began.elapsed() < KERNEL_TIMEOUT, "the kernel never hears of {address}");
                std::thread::sleep(LOOK_EVERY);
            } else if Received::all(self.0.receive()?).any(is_it) {
                return Ok(());
            }
        }
    }
}
