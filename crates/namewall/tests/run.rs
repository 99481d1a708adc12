//! `namewall run` as a process, in a node of a sandbox: real pods ask it, real
//! signals end it, and another takes over from it.

// All of it is a test, which cannot be seen where there is no harness.
#![allow(clippy::unwrap_used)]

use namewall_cluster as cluster;
use namewall_policy::port::Protocol;
use namewall_sandbox::{Ask, Listen, Measured, Place, Probe, Sandbox, ensure_rights};
use namewall_scenario::Scenario;
use namewall_scenario::zones::RecordType;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "203.0.113.53:53";
const PROVIDER: &str = "198.51.100.7";
const API: &str = "10.244.1.10";

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/names")
}

/// The example's pods, node and world outside; and a folder for what the firewall is told.
struct World {
    sandbox: Sandbox,
    folder: PathBuf,
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }
}

impl World {
    fn build(name: &str) -> Self {
        let manifests = cluster::load(&[example()]).unwrap();
        let snapshot = cluster::lower(&manifests.documents, &cluster::Settings::default()).snapshot;
        let scenario = Scenario::load(&example().join("scenario.yaml")).unwrap();
        let mut outside: Vec<IpAddr> = scenario.zones.addresses().collect();
        outside.extend(scenario.zones.servers().map(|(address, _)| address));
        outside.retain(|address| !address.to_string().starts_with("169."));
        let mut sandbox = Sandbox::build(&snapshot, &outside, &mut |_| {}).unwrap();
        sandbox.serve_names(&scenario.zones).unwrap();
        let listen = Listen { address: address(PROVIDER), protocol: Protocol::Tcp, port: 443 };
        sandbox.ensure_listening(&[listen]).unwrap();
        let folder = std::env::temp_dir().join(format!("namewall-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("manifests")).unwrap();
        for file in ["cluster.yaml", "policies.yaml"] {
            std::fs::copy(example().join(file), folder.join("manifests").join(file)).unwrap();
        }
        Self { sandbox, folder }
    }

    fn manifest(&self, name: &str) -> PathBuf {
        self.folder.join("manifests").join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
        command.env("NAMEWALL_RUNTIME_DIR", self.folder.join("runtime"));
        command
    }

    /// Starts it on the node, and waits until it answers.
    fn run(&self, more: &[&str]) -> Process {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = self.command();
        command.arg("run").arg("--manifests").arg(self.folder.join("manifests")).args(["--upstream", "203.0.113.53"]);
        // The machine may be busy; what is learned must outlast the test.
        command.args(["--grace", "60s", "--hold-limit", "1500ms"]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let node = self.sandbox.node("node-1").unwrap();
        let process = Process(node.enter(|| command.spawn()).unwrap().unwrap());
        let id = format!("\"pid\": {}", process.0.id());
        self.wait_for(|| String::from_utf8_lossy(&self.ask(&["status", "-o", "json"]).stdout).contains(&id));
        process
    }

    fn ask(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    fn says(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn wait_for(&self, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(10), "it never comes true; the log says:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn api(&self) -> Place {
        self.sandbox.place(address(API)).unwrap()
    }

    /// How many of so many lookups are answered with an address.
    fn resolves(&self, name: &str, times: usize) -> usize {
        let server: SocketAddr = SERVER.parse().unwrap();
        let name = name.parse().unwrap();
        let ask = Ask { server, name, kind: RecordType::A, via: None, edns: Some(1232), mixed_case: false };
        let heard = self.sandbox.ask(&self.api(), &vec![ask; times], 20).unwrap();
        heard.iter().flatten().filter(|heard| !heard.addresses.is_empty()).count()
    }

    fn reaches_provider(&self) -> bool {
        let to = SocketAddr::new(address(PROVIDER), 443);
        let probe = Probe { from: self.api(), to, protocol: Protocol::Tcp };
        self.sandbox.probe(&[probe]).unwrap()[0] == Measured::Open
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn main() {
    // Before the first thread: without root it takes a user namespace.
    ensure_rights().expect("network namespaces can be made");
    a_name_opens_and_is_told_of();
    manifests_are_followed_and_a_bad_one_keeps_its_last_good_version();
    s6_6_a_planned_restart_loses_no_question();
    leases_outlive_a_kill_and_are_adopted_with_their_names();
    it_says_what_is_wrong();
    println!("test run: 5 passed");
}

fn a_name_opens_and_is_told_of() {
    let world = World::build("names");
    let process = world.run(&[]);
    assert!(!world.reaches_provider());
    assert_eq!(world.says(&["leases"]), "nothing is open by name\n");
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    assert!(world.reaches_provider());
    let leases = world.says(&["leases"]);
    assert!(leases.contains("api.payments.example  198.51.100.7"), "{leases}");
    assert!(leases.contains("shop/api") && leases.contains("ClusterNetworkPolicy/payments egress rule 0"), "{leases}");
    assert_eq!(world.says(&["leases", "other.example"]), "nothing is open by name\n");
    let why = world.says(&["explain", "--live", "--from", "shop/api", "--to", "api.payments.example:443"]);
    assert!(why.starts_with("ALLOW  shop/api -> api.payments.example:443/TCP"), "{why}");
    assert!(why.contains("198.51.100.7 is leased to api.payments.example"), "{why}");
    let denied = ["explain", "--live", "--from", "shop/web", "--to", "198.51.100.7:443", "--expect", "deny"];
    world.says(&denied);
    // What points inside opens nothing, and is counted; the answer is passed on.
    assert_eq!(world.resolves("evil.payments.example", 1), 1);
    world.wait_for(|| world.says(&["status"]).contains("1 addresses refused"));
    world.wait_for(|| world.log().contains("points at 169.254.169.254: a link-local address is never leased"));
    assert!(world.says(&["status"]).contains("203.0.113.53:53 answers"));
    process.signal(Signal::SIGTERM);
    world.wait_for(|| !world.ask(&["status"]).status.success());
    // Stopped in order, DNS goes its usual way at once, and what is open stays so.
    assert_eq!(world.resolves("ads.example", 1), 1);
    assert!(world.reaches_provider());
}

fn manifests_are_followed_and_a_bad_one_keeps_its_last_good_version() {
    let world = World::build("manifests");
    let _process = world.run(&[]);
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    assert!(world.reaches_provider());
    let policies = world.manifest("policies.yaml");
    let text = std::fs::read_to_string(&policies).unwrap();
    std::fs::write(&policies, format!("{text}\n---\nkind: [not, yaml\n")).unwrap();
    world.wait_for(|| world.says(&["status"]).contains("its last good version counts"));
    assert!(world.reaches_provider(), "the last good version counts");
    std::fs::write(&policies, text.replace("*.payments.example", "*.other.example")).unwrap();
    world.wait_for(|| world.says(&["status"]).contains("changed 2 times"));
    assert!(!world.reaches_provider(), "the rule by that name is gone");
    std::fs::write(&policies, text).unwrap();
    world.wait_for(|| world.says(&["status"]).contains("changed 3 times"));
    assert!(world.reaches_provider(), "and here again, with what was learned");
}

fn s6_6_a_planned_restart_loses_no_question() {
    let world = World::build("upgrade");
    let first = world.run(&[]);
    let (answered, second) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let began = Instant::now();
            let (mut asked, mut answered) = (0, 0);
            while began.elapsed() < Duration::from_secs(3) {
                asked += 100;
                answered += world.resolves("api.payments.example", 100);
            }
            (asked, answered)
        });
        std::thread::sleep(Duration::from_millis(500));
        let second = world.run(&["--take-over"]);
        let third = world.run(&["--take-over"]);
        drop(second);
        (asking.join().unwrap(), third)
    });
    drop(first);
    assert_eq!(answered.0, answered.1, "asked and answered; {} {}", world.says(&["status", "-o", "json"]), world.log());
    assert!(answered.0 > 300, "{answered:?}");
    assert!(world.reaches_provider());
    assert!(world.says(&["leases"]).contains("api.payments.example"));
    drop(second);
}

fn leases_outlive_a_kill_and_are_adopted_with_their_names() {
    let world = World::build("kill");
    let first = world.run(&[]);
    assert_eq!(world.resolves("api.payments.example", 1), 1);
    first.signal(Signal::SIGKILL);
    drop(first);
    assert!(world.reaches_provider(), "while it is down known names stay open");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(world.resolves("ads.example", 1), 1, "DNS goes on without it");
    let _second = world.run(&[]);
    assert!(world.reaches_provider());
    let leases = world.says(&["leases"]);
    assert!(leases.contains("api.payments.example") && leases.contains(PROVIDER), "{leases}");
    world.wait_for(|| world.resolves("ads.example", 1) == 1 && world.says(&["status"]).contains(" 1 questions"));
}

fn it_says_what_is_wrong() {
    let world = World::build("wrong");
    let fails = |args: &[&str]| {
        let output = world.ask(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(fails(&["status"]).contains("start one with `namewall run`"));
    let manifests = world.folder.join("manifests");
    let manifests = manifests.to_str().unwrap();
    assert!(fails(&["run", "--manifests", manifests, "--node", "other"]).contains("they have node-1"));
    assert!(fails(&["run", "--manifests", manifests, "--upstream", "nine"]).contains("no address like"));
    let config = world.folder.join("config.yaml");
    std::fs::write(&config, "upstreem: [9.9.9.9]\n").unwrap();
    let config = config.to_str().unwrap();
    assert!(fails(&["run", "--manifests", manifests, "--config", config]).contains("no setting `upstreem`"));
    let _process = world.run(&[]);
    assert!(fails(&["run", "--manifests", manifests]).contains("--take-over"));
    assert!(fails(&["explain", "--live", "--from", "shop/api", "--to", "x.example:443"]).contains("look it up first"));
}
