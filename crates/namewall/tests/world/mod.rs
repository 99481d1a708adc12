//! A sandbox with the nodes, pods and world outside of a folder like
//! examples/names, and namewalls that run on its nodes as processes.

#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod disk;
pub(crate) mod plane;

use namewall_cluster as cluster;
use namewall_policy::port::Protocol;
use namewall_sandbox::{Ask, Listen, Measured, Probe, Sandbox};
use namewall_scenario::Scenario;
use namewall_scenario::zones::RecordType;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const NODE: &str = "node-1";
const PROGRAM: &str = env!("CARGO_BIN_EXE_namewall");
const SERVER: &str = "203.0.113.53:53";
pub(crate) const PROVIDER: &str = "198.51.100.7";
const API: &str = "10.244.1.10";

pub(crate) fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/names")
}

/// The example's pods, node and world outside; and a folder for what the firewall is told.
pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    pub(crate) folder: PathBuf,
    /// The command that namewall is started by, as an argument of it. Without one it is started itself.
    pub(crate) launcher: Vec<String>,
    /// What its environment has besides.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

/// The most that a kernel calls at one place on a packet's way.
const MOST_HOOKS: usize = 1024;

/// That there is no room for another hook.
pub(crate) struct Occupied;

/// A process that ends with the test.
pub(crate) struct Process(namewall_testbed::Process);

impl Process {
    pub(crate) fn of(child: std::process::Child) -> Self {
        Self(namewall_testbed::Process::owned(child))
    }

    /// How many files and sockets it may have open, as `prlimit` has it. Those that are open stay so.
    pub(crate) fn allow_handles(&self, limit: &str) {
        let (id, limit) = (self.0.id().to_string(), format!("--nofile={limit}"));
        assert!(Command::new("prlimit").args(["--pid", &id, &limit]).status().expect("prlimit runs").success());
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !self.0.is_alive()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl World {
    pub(crate) fn build(name: &str) -> Self {
        Self::of(name, &example())
    }

    /// Of the cluster.yaml, policies.yaml and scenario.yaml in a folder.
    pub(crate) fn of(name: &str, example: &Path) -> Self {
        let manifests = cluster::load(&[example.to_owned()]).unwrap();
        let snapshot = cluster::lower(&manifests.documents, &cluster::Settings::default()).snapshot;
        let scenario = Scenario::load(&example.join("scenario.yaml")).unwrap();
        let mut outside: Vec<IpAddr> = scenario.zones.addresses().collect();
        outside.extend(scenario.zones.servers().map(|(address, _)| address));
        outside.retain(|address| !address.to_string().starts_with("169."));
        let mut sandbox = Sandbox::build(&snapshot, &outside, &mut |_| {}).unwrap();
        sandbox.serve_names(&scenario.zones).unwrap();
        let listens = |address: &IpAddr| Listen { address: *address, protocol: Protocol::Tcp, port: 443 };
        let servers: Vec<Listen> =
            scenario.zones.addresses().filter(|one| outside.contains(one)).map(|one| listens(&one)).collect();
        sandbox.ensure_listening(&servers).unwrap();
        let folder = std::env::temp_dir().join(format!("namewall-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("manifests")).unwrap();
        for file in ["cluster.yaml", "policies.yaml"] {
            std::fs::copy(example.join(file), folder.join("manifests").join(file)).unwrap();
        }
        Self { sandbox, folder, launcher: Vec::new(), environment: Vec::new() }
    }

    /// Where a node's namewall has its socket.
    pub(crate) fn runtime(&self, node: &str) -> PathBuf {
        self.folder.join(format!("runtime-{node}"))
    }

    fn command(&self, node: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.env("NAMEWALL_RUNTIME_DIR", self.runtime(node));
        command
    }

    /// The arguments of namewall on the first node, besides those that a test is about. The machine may be busy; what
    /// is learned must outlast the test.
    pub(crate) const ARGUMENTS: [&str; 6] = ["--upstream", "203.0.113.53", "--grace", "60s", "--hold-limit", "1500ms"];

    /// Starts it on the first node, and waits until it answers.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Process {
        self.spawn_on(NODE, arguments)
    }

    pub(crate) fn spawn_on(&self, node: &str, arguments: &[&str]) -> Process {
        self.answering(node, &[arguments, &Self::ARGUMENTS].concat())
    }

    /// The same, for one that is not told whom to ask.
    pub(crate) fn spawn_alone(&self, node: &str, arguments: &[&str]) -> Process {
        self.answering(node, &[arguments, &Self::ARGUMENTS[2..]].concat())
    }

    fn answering(&self, node: &str, arguments: &[&str]) -> Process {
        let process = self.start_on(node, arguments);
        self.wait_for(|| self.answers_on(node, &process));
        process
    }

    /// True if the process of the first node answers.
    pub(crate) fn answers(&self, process: &Process) -> bool {
        self.answers_on(NODE, process)
    }

    pub(crate) fn answers_on(&self, node: &str, process: &Process) -> bool {
        let status = self.command(node).args(["status", "-o", "json"]).output().unwrap();
        String::from_utf8_lossy(&status.stdout).contains(&format!("\"pid\": {}", process.0.id()))
    }

    /// Starts anything of it on a node.
    pub(crate) fn start_on(&self, node: &str, arguments: &[&str]) -> Process {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = match &self.launcher[..] {
            [] => Command::new(PROGRAM),
            [first, more @ ..] => {
                let mut command = Command::new(first);
                command.args(more).arg(PROGRAM);
                command
            }
        };
        command.env("NAMEWALL_RUNTIME_DIR", self.runtime(node)).envs(self.environment.iter().cloned());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let node = self.sandbox.node(node).unwrap();
        Process(namewall_testbed::Process::owned(node.enter(|| command.spawn()).unwrap().unwrap()))
    }

    /// The reply of what serves HTTP at a port of the first node.
    pub(crate) fn get(&self, port: u16, path: &str) -> Option<String> {
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        let mut stream = self.sandbox.node(NODE).unwrap().enter(connect).unwrap().ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        Some(reply)
    }

    pub(crate) fn ask(&self, args: &[&str]) -> Output {
        self.command(NODE).args(args).output().unwrap()
    }

    pub(crate) fn says(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the namewall of a node says, whether or not it fails.
    pub(crate) fn says_on(&self, node: &str, args: &[&str]) -> String {
        let output = self.command(node).args(args).output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// Somebody else who listens on the node.
    pub(crate) fn listener(&self) -> TcpListener {
        self.listener_at("127.0.0.1:0")
    }

    pub(crate) fn listener_at(&self, address: &str) -> TcpListener {
        self.sandbox.node(NODE).unwrap().enter(|| TcpListener::bind(address)).unwrap().unwrap()
    }

    /// Changes interfaces of the first node.
    pub(crate) fn ip(&self, arguments: &[&str]) {
        let mut command = Command::new("ip");
        let status = self.sandbox.node(NODE).unwrap().enter(|| command.args(arguments).status()).unwrap();
        assert!(status.expect("ip runs").success(), "{arguments:?}");
    }

    /// Another program takes all of the kernel's hooks for what the first node forwards: one more is refused.
    pub(crate) fn occupy_hooks(&self) -> Occupied {
        let chain = |at: usize| {
            format!("add chain ip occupied c{at} {{ type filter hook forward priority 300; policy accept; }}")
        };
        let many: Vec<String> = (0..MOST_HOOKS - 100).map(chain).collect();
        assert!(self.nft(&format!("add table ip occupied\n{}\n", many.join("\n"))));
        let refused = (MOST_HOOKS - 100..=MOST_HOOKS).find(|at| !self.nft(&chain(*at)));
        assert!(refused.is_some(), "the kernel takes more hooks than it should");
        Occupied
    }

    pub(crate) fn free_hooks(&self, _: Occupied) {
        assert!(self.nft("delete table ip occupied"));
    }

    /// Whether the first node's kernel does what `nft` tells it.
    fn nft(&self, commands: &str) -> bool {
        let file = self.folder.join("commands.nft");
        std::fs::write(&file, commands).unwrap();
        let mut command = Command::new("nft");
        command.arg("-f").arg(&file).stderr(Stdio::null());
        self.sandbox.node(NODE).unwrap().enter(|| command.status()).unwrap().expect("nft runs").success()
    }

    pub(crate) fn wait_for(&self, holds: impl Fn() -> bool) {
        self.wait_up_to(Duration::from_secs(30), holds);
    }

    pub(crate) fn wait_up_to(&self, patience: Duration, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < patience, "it never comes true; the log says:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// How many of so many lookups are answered with an address.
    pub(crate) fn resolves(&self, name: &str, times: usize) -> usize {
        self.answered(API, &vec![lookup(SERVER, name); times])
    }

    /// How many lookups of a pod are answered with an address.
    pub(crate) fn answered(&self, pod: &str, lookups: &[Ask]) -> usize {
        let pod = self.sandbox.place(address(pod)).unwrap();
        let heard = self.sandbox.ask(&pod, lookups, 20).unwrap();
        heard.iter().flatten().filter(|heard| !heard.addresses.is_empty()).count()
    }

    pub(crate) fn reaches_provider(&self) -> bool {
        self.reaches(API, PROVIDER)
    }

    /// Whether a pod reaches an address outside, at the port that is listened at.
    pub(crate) fn reaches(&self, from: &str, to: &str) -> bool {
        let from = self.sandbox.place(address(from)).unwrap();
        let probe = Probe { from, to: SocketAddr::new(address(to), 443), protocol: Protocol::Tcp };
        self.sandbox.probe(&[probe]).unwrap()[0] == Measured::Open
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A question to a server for the address of a name.
pub(crate) fn lookup(server: &str, name: &str) -> Ask {
    let (server, name) = (server.parse().unwrap(), name.parse().unwrap());
    Ask { server, name, kind: RecordType::A, via: None, edns: Some(1232), mixed_case: false }
}
