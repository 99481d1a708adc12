//! The real kube-proxy in a node of the sandbox, in place of the sandbox's own.

use crate::api::{self, Lists};
use crate::common::{nft, run_in};
use namewall_sandbox::Namespace;
use namewall_testbed::{Process, peer, program};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How kube-proxy writes its rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Iptables,
    Nftables,
}

impl Form {
    fn mode(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }

    /// What of its rules of both families there is now.
    fn rules(self, node: &Namespace) -> String {
        let commands: [&[&str]; 2] = match self {
            Self::Iptables => [&["iptables-save"], &["ip6tables-save"]],
            Self::Nftables => [&["nft", "list", "ruleset", "ip"], &["nft", "list", "ruleset", "ip6"]],
        };
        commands.map(|command| run_in(node, Command::new(program(command[0])).args(&command[1..]))).concat()
    }

    /// Names that only rules of this form have.
    fn marks(self) -> [&'static str; 4] {
        match self {
            Self::Iptables => ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-SVC-", "KUBE-MARK-MASQ"],
            Self::Nftables => {
                ["table ip kube-proxy", "table ip6 kube-proxy", "map service-nodeports", "map service-ips"]
            }
        }
    }
}

/// A kube-proxy that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct KubeProxy {
    _process: Process,
    folder: PathBuf,
}

impl Drop for KubeProxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A node as kube-proxy knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: &'a str,
    pub(crate) pods: &'a str,
}

/// How long a busy machine may take.
const PATIENCE: Duration = Duration::from_secs(120);

impl KubeProxy {
    /// Starts it in the node, and returns when its rules have all of `wanted`. They have nothing of `unwanted` then.
    pub(crate) fn start(node: &Namespace, machine: Machine<'_>, form: Form, objects: Objects<'_>) -> Self {
        nft(node, "delete table inet kube-proxy");
        let folder = new_folder();
        let at = node.enter(|| api::serve(objects.lists)).expect("the node is entered").expect("a port of loopback");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sandbox\n\
             clusters: [{{name: sandbox, cluster: {{server: \"http://{at}\"}}}}]\n\
             users: [{{name: sandbox, user: {{}}}}]\n\
             contexts: [{{name: sandbox, context: {{cluster: sandbox, user: sandbox}}}}]\n"
        );
        let Machine { name, address, pods } = machine;
        let mode = form.mode();
        let settings = format!(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: {mode}\n\
             clientConnection:\n  kubeconfig: {}\n  contentType: application/json\n\
             hostnameOverride: {name}\nbindAddress: {address}\nclusterCIDR: \"{pods}\"\noomScoreAdj: 0\n\
             nftables: {{minSyncPeriod: 100ms}}\n\
             iptables: {{minSyncPeriod: 100ms, localhostNodePorts: false}}\n\
             conntrack: {{maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}}\n",
            folder.join("kubeconfig").display(),
        );
        std::fs::write(folder.join("kubeconfig"), kubeconfig).expect("a kubeconfig is written");
        std::fs::write(folder.join("settings.yaml"), settings).expect("settings are written");
        let log = folder.join("log");
        let mut command = Command::new(peer("kubernetes").join("kube-proxy"));
        command.arg(format!("--config={}", folder.join("settings.yaml").display()));
        let said = File::create(&log).expect("a log");
        command.stdin(Stdio::null()).stdout(said.try_clone().expect("the log twice")).stderr(said);
        let child = node.enter(|| command.spawn()).expect("the node is entered").expect("kube-proxy starts");
        let proxy = Self { _process: Process::owned(child), folder };
        let wanted: Vec<&str> = objects.wanted.iter().copied().chain(form.marks()).collect();
        proxy.wait(|| form.rules(node), &wanted);
        let rules = form.rules(node);
        let found = objects.unwanted.iter().find(|text| rules.contains(**text));
        assert_eq!(found, None, "kube-proxy translates it:\n{rules}");
        proxy
    }

    fn wait(&self, rules: impl Fn() -> String, wanted: &[&str]) {
        let began = Instant::now();
        loop {
            let now = rules();
            let Some(missing) = wanted.iter().find(|text| !now.contains(**text)) else { return };
            assert!(
                began.elapsed() < PATIENCE,
                "kube-proxy never wrote {missing}; its rules:\n{now}\nit says:\n{}",
                read(&self.folder.join("log"))
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What kube-proxy reads, and what its rules must have then, and must not have.
pub(crate) struct Objects<'a> {
    pub(crate) lists: Lists,
    pub(crate) wanted: &'a [&'a str],
    pub(crate) unwanted: &'a [&'a str],
}

fn new_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("namewall-kube-proxy-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder of its own");
    folder
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
