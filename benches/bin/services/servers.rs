//! The servers that are measured, with the Corefile that kubeadm writes. Both run at once and take turns, so that their
//! HTTP ports differ; the API server is named, since they run in no pod; and what is forwarded goes to loopback.

use crate::load::Load;
use crate::objects::Cluster;
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use clap::Args;
use namewall_testbed::ControlPlane;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Args, Clone, Debug)]
pub(crate) struct Programs {
    /// The namewall to be measured; beside this program by default
    #[arg(long)]
    namewall: Option<PathBuf>,
    /// A CoreDNS with the plugins of the Corefile, as scripts/peers/coredns-full builds it; without it only namewall is measured
    #[arg(long)]
    coredns: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    process: Process,
    log: PathBuf,
}

/// An upstream without names. Only the plugin `loop` asks it.
pub(crate) fn upstream() -> Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let at = socket.local_addr()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            if let [_, _, flags, codes, ..] = &mut buffer[..length] {
                (*flags, *codes) = (*flags | 0x80, 0x83);
                let _ = socket.send_to(&buffer[..length], client);
            }
        }
    });
    Ok(at)
}

/// Ours first, then CoreDNS.
pub(crate) fn start(programs: &Programs, plane: &ControlPlane, upstream: SocketAddr) -> Result<Vec<Server>> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("namewall"));
    let namewall = programs.namewall.clone().or_else(beside).filter(|path| path.is_file());
    let namewall = namewall.context("it is not built: cargo build --release --package namewall")?;
    let mut servers = vec![Server::start("namewall", plane, upstream, |corefile| {
        let mut command = Command::new(&namewall);
        command.args(["dns", "--conf"]).arg(corefile);
        command
    })?];
    if let Some(program) = &programs.coredns {
        servers.push(Server::start("coredns", plane, upstream, |corefile| {
            let mut command = Command::new(program);
            // One core for it, as for ours.
            command.args(["-quiet", "-conf"]).arg(corefile).env("GOMAXPROCS", "1");
            command
        })?);
    }
    Ok(servers)
}

impl Server {
    fn start(
        name: &'static str,
        plane: &ControlPlane,
        upstream: SocketAddr,
        command: impl FnOnce(&Path) -> Command,
    ) -> Result<Self> {
        let [port, health, ready, metrics] = free_ports()?;
        let text = format!(
            ".:{port} {{
    errors
    health 127.0.0.1:{health} {{
       lameduck 5s
    }}
    ready 127.0.0.1:{ready}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
       kubeconfig {}
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }}
    prometheus 127.0.0.1:{metrics}
    forward . {upstream} {{
       max_concurrent 1000
    }}
    cache 30 {{
       disable success cluster.local
       disable denial cluster.local
    }}
    loop
    reload
    loadbalance
}}
",
            plane.kubeconfig().display()
        );
        let corefile = plane.folder().join(format!("{name}.Corefile"));
        std::fs::write(&corefile, text)?;
        let log = plane.folder().join(format!("{name}.log"));
        let process = Process::start(command(&corefile), &log)?;
        Ok(Self { name, address: (Ipv4Addr::LOCALHOST, port).into(), process, log })
    }

    /// It is when it knows the last Service, and answers a little load.
    pub(crate) fn wait_until_ready(&mut self, cluster: &Cluster) -> Result<()> {
        let last = cluster.last();
        let began = Instant::now();
        loop {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            socket.send_to(&last.bytes, self.address)?;
            let mut answer = [0; 512];
            if socket.recv(&mut answer).is_ok_and(|length| last.expected.is(&answer[..length])) {
                break;
            }
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            ensure!(began.elapsed() < START_TIMEOUT, "{} does not know the cluster:\n{}", self.name, log());
            std::thread::sleep(Duration::from_millis(100));
        }
        // A runtime finds its pace.
        let warm_up = Load { rate: Some(2_000), most_open: 1_024, lasts: Duration::from_secs(2) };
        warm_up.run(self.address, cluster, 0).map(drop)
    }

    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        self.process.cpu_time()
    }

    /// In MB: now, and at most so far.
    pub(crate) fn memory(&self) -> [f64; 2] {
        self.process.memory()
    }
}

/// Ports that are free for UDP and TCP now.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    while held.len() < N {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = socket.local_addr()?.port();
        if let Ok(listener) = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push((port, socket, listener));
        }
    }
    let mut ports = [0; N];
    for (port, (free, ..)) in ports.iter_mut().zip(&held) {
        *port = *free;
    }
    Ok(ports)
}
