//! OpenShift's own CoreDNS plugin and operator beside namewall, on the same objects. Their sources are not in the Go
//! module proxy, so nothing here builds them: `OPENSHIFT_PLUGIN` names a folder with the programs `coredns` and
//! `operator`, and only who has them runs this (docs/openshift.md).

use crate::dns::Dns;
use crate::world::{Process, World, address};
use namewall_testbed::{ControlPlane, Front, Proxy};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where CoreDNS has its upstream, at its own address.
const UPSTREAM: u16 = 5353;

/// The programs, which end with it.
pub(crate) struct Openshift {
    _processes: Vec<Process>,
    _ways: Vec<Proxy>,
}

/// What the programs are started in.
pub(crate) struct Setting<'s> {
    pub(crate) world: &'s World,
    pub(crate) plane: &'s ControlPlane,
    pub(crate) front: &'s Front,
    pub(crate) dns: &'s Dns,
}

/// The folder with the programs, if the plugin is to be tried.
pub(crate) fn programs() -> Option<PathBuf> {
    std::env::var_os("OPENSHIFT_PLUGIN").map(PathBuf::from)
}

impl Openshift {
    /// A CoreDNS with the plugin at each of these addresses, which asks the test's DNS, and an operator that asks the
    /// CoreDNS of `pods`.
    pub(crate) fn start(setting: &Setting<'_>, programs: &Path, servers: &[&str], pods: &[&str]) -> Self {
        let (mut processes, mut ways) = (Vec::new(), Vec::new());
        for server in servers {
            let place = setting.world.sandbox.place(address(server)).unwrap();
            let enter = || (UdpSocket::bind((*server, UPSTREAM)), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
            let (upstream, way) = place.namespace.enter(enter).unwrap();
            setting.dns.serve(address(server), upstream.unwrap());
            let way = Proxy::to(way.unwrap(), setting.front.port()).unwrap();
            let corefile = setting.world.folder.join(format!("Corefile-{server}"));
            let text = format!(
                ".:53 {{\n  bind {server}\n  errors\n  ocp_dnsnameresolver {{\n    namespaces namewall\n  }}\n  \
                 forward . {server}:{UPSTREAM}\n}}\n"
            );
            std::fs::write(&corefile, text).unwrap();
            let mut coredns = Command::new(programs.join("coredns"));
            coredns.arg("-conf").arg(&corefile);
            processes.push(start(setting, &way, server, coredns));
            ways.push(way);
        }
        let place = setting.world.sandbox.place(address(pods[0])).unwrap();
        let way = place.namespace.enter(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap().unwrap();
        let way = Proxy::to(way, setting.front.port()).unwrap();
        let mut operator = Command::new(programs.join("operator"));
        operator.arg("namewall").args(pods.iter().map(|pod| format!("{pod}:53")));
        processes.push(start(setting, &way, pods[0], operator));
        ways.push(way);
        Self { _processes: processes, _ways: ways }
    }
}

fn start(setting: &Setting<'_>, way: &Proxy, at: &str, mut command: Command) -> Process {
    let log = || {
        let file = std::fs::File::options().create(true).append(true).open(setting.world.folder.join("openshift"));
        file.expect("the log can be written")
    };
    command.env("KUBECONFIG", setting.front.kubeconfig(setting.plane, way.port()).unwrap());
    command.stdin(Stdio::null()).stdout(log()).stderr(log());
    let place = setting.world.sandbox.place(address(at)).unwrap();
    Process::of(place.namespace.enter(|| command.spawn()).unwrap().unwrap())
}
