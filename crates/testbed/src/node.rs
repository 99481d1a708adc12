//! A node: a machine with containerd, runc, the CNI's `bridge`, a kubelet and a
//! kube-proxy, all of them as they are. What they write is in memory, and gone
//! with the machine.

use crate::machine::Machine;
use crate::{ControlPlane, programs};
use anyhow::{Context, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Nodes there can be: each has a user of its own at the API server.
pub(crate) const NAMES: [&str; 2] = ["node-1", "node-2"];
/// How long containerd may take on a busy machine.
const CONTAINERD_TIMEOUT: Duration = Duration::from_secs(120);
/// All nodes' pods.
const PODS: &str = "10.244.0.0/16,fd00:10:244::/48";
const SOCKET: &str = "/run/containerd/containerd.sock";
const CTR: [&str; 4] = ["-a", SOCKET, "-n", "k8s.io"];
/// What its programs are called.
const CONTAINERD: &str = "containerd";
const KUBELET: &str = "kubelet";
const PROXY: &str = "kube-proxy";
/// What every pod's first container is: it does nothing, and holds the pod's network.
const PAUSE: &str = "pause:e2e";

/// What a node has of its own.
#[derive(Clone, Debug)]
pub struct NodeSettings<'a> {
    /// Its address, without a prefix, and its pods', like 10.244.1.0/24.
    pub address: &'a str,
    pub pods: &'a str,
    /// The same in IPv6, where there is both.
    pub six: Option<[&'a str; 2]>,
    /// Whom pods are told to ask for names, and whom their DNS server asks.
    pub dns: [&'a str; 2],
    /// Archives of all images there will ever be.
    pub images: &'a [PathBuf],
    /// A folder that the node has as /run/e2e.
    pub shared: &'a Path,
    /// A cgroup that is there, in every hierarchy, for all of it.
    pub cgroup: &'a str,
}

impl NodeSettings<'_> {
    fn all_pods(&self) -> Vec<&str> {
        [self.pods].into_iter().chain(self.six.map(|[_, pods]| pods)).collect()
    }

    fn all_addresses(&self) -> String {
        [self.address].into_iter().chain(self.six.map(|[address, _]| address)).collect::<Vec<_>>().join(",")
    }

    /// How pods get their addresses, and what they reach by them.
    fn address_management(&self) -> serde_json::Value {
        let ranges: Vec<_> = self.all_pods().iter().map(|pods| json!([{"subnet": pods}])).collect();
        let everything = [Some("0.0.0.0/0"), self.six.map(|_| "::/0")];
        let routes: Vec<_> = everything.iter().flatten().map(|all| json!({"dst": all})).collect();
        json!({"type": "host-local", "ranges": ranges, "routes": routes})
    }
}

/// The tokens of a node's kubelet and kube-proxy.
pub(crate) fn tokens(name: &str) -> [String; 2] {
    ["kubelet", "proxy"].map(|program| format!("{program}-of-{name}"))
}

/// A machine that is a node.
#[derive(Debug)]
pub struct Node {
    pub machine: Machine,
    /// All its addresses, as kubelet is told them.
    addresses: String,
    cgroup: String,
}

impl Node {
    /// Starts everything; whether it is ready, the API server knows.
    pub fn start(machine: Machine, plane: &ControlPlane, settings: &NodeSettings<'_>) -> Result<Self> {
        let mut node = Self { machine, addresses: settings.all_addresses(), cgroup: settings.cgroup.to_owned() };
        node.make_folders(plane, settings).context("cannot make a node of a machine")?;
        node.write(plane, settings)?;
        plane.apply(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\nspec: {{podCIDR: {}, podCIDRs: {:?}}}\n",
            node.machine.name(),
            settings.pods,
            settings.all_pods(),
        ))?;
        node.start_programs(settings)?;
        Ok(node)
    }

    /// Of what programs write by default, nothing is the machine's own; what the kernel has only once is not changed.
    fn make_folders(&self, plane: &ControlPlane, settings: &NodeSettings<'_>) -> Result<()> {
        let logs = self.machine.logs().join(format!("{}.pods", self.machine.name()));
        std::fs::create_dir_all(&logs)?;
        let plugins = settings.shared.join(format!("plugins-{}", self.machine.name()));
        std::fs::create_dir_all(&plugins)?;
        let script = format!(
            "# `ip netns` may have left a mount here. Hidden below ours, a container runtime would still find it.
             umount -l /run/netns 2>/dev/null || true
             mount -t tmpfs tmpfs /run
             mkdir -p /run/e2e /run/node /run/fixed /run/conf
             mount --bind {shared} /run/e2e
             for folder in /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/lib/namewall /etc/cni /var/log/containers /etc/containerd; do
               mkdir -p $folder; mount -t tmpfs tmpfs $folder
             done
             # What is mounted for a pod is seen where its containers are made.
             mount --make-shared /var/lib/kubelet
             # As on a machine that systemd has started: a container may follow the network namespaces of pods.
             mount --make-shared /run
             mkdir -p /var/log/pods /etc/cni/net.d; mount --bind {logs} /var/log/pods
             # On a disk: what a container writes to memory counts as its own.
             mkdir -p /opt/cni/bin; mount --bind {plugins} /opt/cni/bin
             cp /usr/lib/cni/* /opt/cni/bin
             cp {certificate} /run/node/authority.crt
             # A kubelet sets these, for all of the machine: it finds them set.
             for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \\
                 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
               file=/run/fixed/$(basename ${{setting%=*}}); echo ${{setting#*=}} > $file
               mount --bind $file /proc/sys/${{setting%=*}}
             done
             # A kernel without IPv6 has nothing of it to forward.
             [ ! -d /proc/sys/net/ipv6 ] || sysctl -qw net.ipv6.conf.all.forwarding=1
             sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1",
            shared = settings.shared.display(),
            logs = logs.display(),
            plugins = plugins.display(),
            certificate = plane.folder().join("authority.crt").display(),
        );
        self.machine.shell(&script).map(drop)
    }

    /// Their configuration.
    fn write(&self, plane: &ControlPlane, settings: &NodeSettings<'_>) -> Result<()> {
        let name = self.machine.name();
        let [kubelet, proxy] = tokens(name);
        let folder = settings.shared.join(format!("conf-{name}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::copy(plane.kubeconfig_for(&kubelet, &kubelet)?, folder.join("kubelet"))?;
        std::fs::copy(plane.kubeconfig_for(&proxy, &proxy)?, folder.join("proxy"))?;
        let NodeSettings { address, dns: [asked, above], .. } = *settings;
        let cgroup = settings.cgroup;
        for (file, text) in [
            ("resolv.conf", format!("nameserver {above}\n")),
            (
                "containerd.toml",
                format!(
                    "version = 2\n\
                     [plugins.\"io.containerd.grpc.v1.cri\"]\n\
                     sandbox_image = \"{PAUSE}\"\n\
                     # root here may be without CAP_SYS_RESOURCE.\n\
                     restrict_oom_score_adj = true\n\
                     disable_hugetlb_controller = true\n\
                     [plugins.\"io.containerd.grpc.v1.cri\".cni]\n\
                     bin_dir = \"/opt/cni/bin\"\n\
                     conf_dir = \"/etc/cni/net.d\"\n"
                ),
            ),
            (
                "cni.conflist",
                format!(
                    r#"{{"cniVersion": "0.4.0", "name": "pods", "plugins": [{{"type": "bridge", "bridge": "cni0",
                    "isGateway": true, "hairpinMode": true, "ipMasq": false, "ipam": {}}}]}}"#,
                    settings.address_management()
                ),
            ),
            (
                "kubelet.yaml",
                format!(
                    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                     containerRuntimeEndpoint: unix://{SOCKET}\naddress: {address}\n\
                     authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}\n\
                     authorization: {{mode: AlwaysAllow}}\n\
                     cgroupDriver: cgroupfs\nfailCgroupV1: false\ncgroupRoot: {cgroup}\n\
                     clusterDNS: [{asked}]\nclusterDomain: cluster.local\nresolvConf: /run/conf/resolv.conf\n\
                     failSwapOn: false\nlocalStorageCapacityIsolation: false\nevictionHard: {{memory.available: 1Mi}}\n\
                     healthzPort: 0\nserializeImagePulls: false\nregistryPullQPS: 0\n\
                     nodeStatusReportFrequency: 10s\n"
                ),
            ),
            (
                "proxy.yaml",
                format!(
                    "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
                     clientConnection: {{kubeconfig: /run/conf/proxy}}\nmode: nftables\nhostnameOverride: {name}\n\
                     clusterCIDR: \"{PODS}\"\noomScoreAdj: 0\nbindAddress: {address}\n\
                     nftables: {{minSyncPeriod: 100ms}}\n\
                     conntrack: {{maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}}\n"
                ),
            ),
        ] {
            std::fs::write(folder.join(file), text)?;
        }
        self.machine
            .shell(&format!("cp {}/* /run/conf; cp /run/conf/cni.conflist /etc/cni/net.d", folder.display()))?;
        Ok(())
    }

    fn start_programs(&mut self, settings: &NodeSettings<'_>) -> Result<()> {
        self.start_containerd()?;
        let machine = &self.machine;
        for image in settings.images {
            let image = image.display().to_string();
            machine.run("ctr", &[&CTR[..], &["images", "import", &image]].concat())?;
        }
        self.start_kubelet()
    }

    /// Starts containerd, and waits until it answers.
    fn start_containerd(&mut self) -> Result<()> {
        let machine = &mut self.machine;
        let mut containerd = machine.command("containerd");
        containerd.args(["--config", "/run/conf/containerd.toml"]);
        machine.start(CONTAINERD, containerd)?;
        let began = Instant::now();
        while let Err(error) = machine.run("ctr", &[&CTR[..], &["version"]].concat()) {
            if began.elapsed() > CONTAINERD_TIMEOUT {
                return Err(error.context("containerd is never ready"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Starts kubelet and kube-proxy.
    fn start_kubelet(&mut self) -> Result<()> {
        let machine = &mut self.machine;
        let built = programs(&["kubelet", "kube-proxy"]);
        let mut kubelet = machine.command(built.join("kubelet"));
        kubelet
            .args(["--config=/run/conf/kubelet.yaml", "--kubeconfig=/run/conf/kubelet"])
            .arg(format!("--node-ip={}", self.addresses))
            .arg(format!("--hostname-override={}", machine.name()));
        machine.start(KUBELET, kubelet)?;
        let mut proxy = machine.command(built.join("kube-proxy"));
        proxy.arg("--config=/run/conf/proxy.yaml");
        machine.start(PROXY, proxy)?;
        Ok(())
    }

    /// Kills containerd and starts it again. Containers go on meanwhile.
    pub fn restart_containerd(&mut self) -> Result<()> {
        self.machine.stop(CONTAINERD);
        self.start_containerd()
    }

    /// Ends everything on the node at once, as when its power is cut, and starts it again. What is on a disk stays; what
    /// is in memory is gone: processes, containers, links of pods, rules, and `/run` but for the files of this run.
    pub fn reboot(&mut self) -> Result<()> {
        for name in [KUBELET, PROXY, CONTAINERD] {
            self.machine.stop(name);
        }
        let script = format!(
            r#"node=$(readlink /proc/self/ns/mnt)
             # The shims of containers are in the node's mount namespace, and containers are in its cgroup.
             all() {{
               for process in /proc/[0-9]*; do
                 if grep -qs '{cgroup}' $process/cgroup || {{ grep -qs containerd-shim $process/comm \
                     && [ "$(readlink $process/ns/mnt)" = "$node" ]; }}; then
                   echo ${{process#/proc/}}
                 fi
               done
             }}
             for try in $(seq 300); do
               left=$(all)
               [ "$left" ] || break
               kill -9 $left 2> /dev/null || true
               sleep 0.1
             done
             [ ! "$(all)" ]
             for file in $(ls /run/netns); do umount /run/netns/$file || true; rm -f /run/netns/$file; done
             cut -d ' ' -f 5 /proc/self/mountinfo | grep '^/run/containerd/' | tac | xargs -r -n 1 umount -l
             rm -rf /run/containerd /run/namewall /run/netns
             ip link del cni0 || true
             nft flush ruleset"#,
            cgroup = self.cgroup,
        );
        self.machine.shell(&script)?;
        self.start_containerd()?;
        self.start_kubelet()
    }
}
