//! The CNI plugin as a process, chained behind Debian's `bridge` as a container
//! runtime chains it, with `namewall run` as the node's agent: network namespaces
//! of the test's own, real packets, and no cluster.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod isolated;

use isolated::isolated;
use namewall_testbed::{give_up, output_with_input};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PLUGINS: &str = "/usr/lib/cni";
const NOBODY: u32 = 65534;
/// What `web` may reach, and what it may not.
const MAY: &str = "198.51.100.7:80";
const MAY_NOT: &str = "198.51.100.9:80";

const MANIFESTS: &str = "
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDR: 10.88.1.0/24},
 status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, uid: u1, labels: {app: web}}, spec: {nodeName: n1}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop},
 spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 198.51.100.7/32}}]}]}}
";

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Node {
    folder: PathBuf,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What came of a call of the plugin.
struct Called {
    output: Output,
}

impl Called {
    fn result(&self) -> Value {
        assert!(self.output.status.success(), "{}", String::from_utf8_lossy(&self.output.stdout));
        serde_json::from_slice(&self.output.stdout).unwrap_or_default()
    }

    fn code(&self) -> Value {
        assert!(!self.output.status.success());
        serde_json::from_slice::<Value>(&self.output.stdout).unwrap()["code"].clone()
    }

    fn says(&self, text: &str) -> bool {
        let said = [&self.output.stdout[..], &self.output.stderr].concat();
        String::from_utf8_lossy(&said).contains(text)
    }
}

impl Node {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("namewall-cni-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("manifests")).unwrap();
        let node = Self { folder };
        node.write(MANIFESTS);
        for command in [
            "link set lo up",
            "address add 192.0.2.1/32 dev lo",
            "address add 198.51.100.7/32 dev lo",
            "address add 198.51.100.9/32 dev lo",
        ] {
            ip(command);
        }
        node
    }

    fn write(&self, manifests: &str) {
        std::fs::write(self.folder.join("manifests/all.yaml"), manifests).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
        command.env("NAMEWALL_RUNTIME_DIR", self.folder.join("runtime")).env_remove("CNI_COMMAND");
        command
    }

    fn start(&self) -> Process {
        self.start_by(self.command())
    }

    /// With the capabilities of the chart's agent alone.
    fn start_limited(&self) -> Process {
        let mut limited = Command::new("setpriv");
        limited.args(["--bounding-set=-all,+net_admin", "--inh-caps=-all"]);
        limited.arg(env!("CARGO_BIN_EXE_namewall"));
        limited.env("NAMEWALL_RUNTIME_DIR", self.folder.join("runtime")).env_remove("CNI_COMMAND");
        self.start_by(limited)
    }

    /// With a table of another name.
    fn start_with_table(&self, table: &str) -> Process {
        self.start_with(self.command(), &["--table", table])
    }

    fn start_by(&self, command: Command) -> Process {
        self.start_with(command, &[])
    }

    fn start_with(&self, mut command: Command, more: &[&str]) -> Process {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        command
            .args(["run", "--node", "n1", "--upstream", "192.0.2.53", "--manifests"])
            .arg(self.folder.join("manifests"))
            .args(more);
        let process = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let began = Instant::now();
        while self.status()["pid"] != process.0.id() {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(30), "it does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        process
    }

    fn status(&self) -> Value {
        let output = self.command().args(["status", "-o", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// What passes sockets of pods' network namespaces to an agent that may not enter them.
    fn sidecar(&self) -> Process {
        let (bin, conf) = (self.folder.join("bin"), self.folder.join("conf"));
        for folder in [&bin, &conf] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let mut command = self.command();
        command.args(["cni", "install", "--watch", "--bin-dir"]).arg(bin).arg("--conf-dir").arg(conf);
        command.arg("--socket").arg(self.folder.join("runtime/run.sock")).arg("--netns-dir").arg(&self.folder);
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn record(&self) -> PathBuf {
        self.folder.join("runtime/attachments/c1@eth0.json")
    }

    /// The plugin's configuration, as a runtime passes it on.
    fn config(&self, previous: &Value, more: &Value) -> Value {
        let runtime = self.folder.join("runtime");
        let mut config = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "namewall",
            "socket": runtime.join("run.sock"), "records": runtime.join("attachments"),
        });
        if !previous.is_null() {
            config["prevResult"] = previous.clone();
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        config
    }

    /// `bridge`, which makes the pod's network.
    fn bridge(&self, command: &str, pod: &Pod<'_>) -> Value {
        let config = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": {"type": "host-local", "dataDir": self.folder.join("ipam"),
                     "ranges": [[{"subnet": "10.88.1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        });
        let mut bridge = Command::new(format!("{PLUGINS}/bridge"));
        pod.environment(&mut bridge, command);
        let output = output_with_input(&mut bridge, &config.to_string()).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn call(&self, command: &str, pod: &Pod<'_>, config: &Value) -> Called {
        let mut plugin = Command::new(env!("CARGO_BIN_EXE_namewall"));
        pod.environment(&mut plugin, command);
        plugin.uid(pod.runtime);
        Called { output: output_with_input(&mut plugin, &config.to_string()).unwrap() }
    }
}

/// A container of a pod, and its network namespace.
struct Pod<'a> {
    name: &'a str,
    uid: &'a str,
    namespace: &'a Path,
    /// The user that the runtime is.
    runtime: u32,
}

impl Pod<'_> {
    fn environment(&self, command: &mut Command, cni: &str) {
        let Self { name, uid, .. } = self;
        command
            .env("CNI_COMMAND", cni)
            .env("CNI_CONTAINERID", "c1")
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", PLUGINS)
            .env("CNI_NETNS", self.namespace)
            .env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={name};K8S_POD_UID={uid}"));
    }

    /// Whether one packet from the pod is enough to connect. A second would be sent after a second.
    fn reaches(&self, place: &str) -> bool {
        self.connect(place).is_ok()
    }

    fn connect(&self, place: &str) -> std::io::Result<TcpStream> {
        let (file, place): (File, SocketAddr) = (File::open(self.namespace).unwrap(), place.parse().unwrap());
        let connect = move || {
            setns(file, CloneFlags::CLONE_NEWNET).unwrap();
            TcpStream::connect_timeout(&place, Duration::from_millis(700))
        };
        std::thread::spawn(connect).join().unwrap()
    }
}

#[test]
fn s1_9_a_pod_is_enforced_before_its_first_packet() {
    if !Path::new(PLUGINS).join("bridge").exists() {
        give_up(format_args!("there is no {PLUGINS}/bridge; install containernetworking-plugins"));
    }
    isolated(|| {
        let sandbox = Process(Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap());
        let namespace = PathBuf::from(format!("/proc/{}/ns/net", sandbox.0.id()));
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(&namespace).unwrap() == own {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (node, pod) = (Node::new("first"), Pod { name: "web", uid: "u1", namespace: &namespace, runtime: 0 });
        let _servers = [MAY, MAY_NOT].map(|place| TcpListener::bind(place).unwrap());
        it_refuses_what_it_cannot_read(&node, &pod);
        let previous = node.bridge("ADD", &pod);
        without_an_agent_the_setting_decides(&node, &pod, &previous);
        let agent = node.start();
        who_is_not_known_is_refused(&node, &namespace, &previous);
        an_agent_that_hangs_is_as_one_that_is_away(&node, &pod, &previous, &agent);
        add_returns_when_the_pod_is_enforced(&node, &pod, &previous);
        check_finds_interfaces_that_have_other_names(&node, &pod, &previous);
        only_root_may_attach(&node, &pod, &previous);
        drop(agent);
        assert_eq!(node.call("STATUS", &pod, &node.config(&Value::Null, &json!({}))).code(), 50);
        let _agent = node.start();
        a_restart_loses_nothing(&node, &pod, &previous);
        garbage_is_collected(&node, &pod, &previous);
        check_finds_that_an_interface_is_gone(&node, &pod, &previous);
        node.bridge("DEL", &pod);
    });
}

/// What the pod reaches by its second interface, and what policies deny it at first.
const SECOND_NOT: &str = "203.0.113.9:80";
/// What it would reach by a third interface, which comes later.
const THIRD_NOT: &str = "203.0.113.10:80";
const DEADLINE: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn s7_4_second_interfaces_are_enforced_before_the_first_packet_and_kept_so() {
    if !Path::new(PLUGINS).join("bridge").exists() {
        give_up(format_args!("there is no {PLUGINS}/bridge; install containernetworking-plugins"));
    }
    isolated(|| {
        let sandbox = Process(Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap());
        let namespace = PathBuf::from(format!("/proc/{}/ns/net", sandbox.0.id()));
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(&namespace).unwrap() == own {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (node, pod) = (Node::new("second"), Pod { name: "web", uid: "u1", namespace: &namespace, runtime: 0 });
        let inside = |command: &str| {
            let mut entered = Command::new("nsenter");
            entered.arg(format!("--net={}", namespace.display())).args(command.split(' '));
            assert!(entered.status().unwrap().success(), "{command}");
        };
        let connect = |name: &str, number: u8, to: &str| {
            ip(&format!("link add host-{name} type veth peer name {name} netns {}", sandbox.0.id()));
            ip(&format!("address add 172.16.{number}.1/24 dev host-{name}"));
            ip(&format!("link set host-{name} up"));
            inside(&format!("ip address add 172.16.{number}.2/24 dev {name}"));
            inside(&format!("ip link set {name} up"));
            inside(&format!("ip route add {to}/32 via 172.16.{number}.1"));
        };
        ip("address add 203.0.113.9/32 dev lo");
        ip("address add 203.0.113.10/32 dev lo");
        let _servers = [MAY, MAY_NOT, SECOND_NOT, THIRD_NOT].map(|place| TcpListener::bind(place).unwrap());
        let previous = node.bridge("ADD", &pod);
        // As in every pod: a reset of the kernel's comes by it.
        inside("ip link set lo up");
        connect("net1", 1, "203.0.113.9");
        inside("ip route add 198.51.100.7/32 via 172.16.1.1");
        assert!(pod.reaches(SECOND_NOT), "without namewall the second interface leads anywhere");
        // A pod that starts without an agent starts closed.
        let away = json!({"timeoutSeconds": 1, "whenAgentAway": "allow"});
        assert_eq!(node.call("ADD", &pod, &node.config(&previous, &away)).result(), previous);
        assert!(!pod.reaches(SECOND_NOT) && !pod.reaches(MAY), "second interfaces are closed until an agent comes");
        node.call("DEL", &pod, &node.config(&Value::Null, &json!({}))).result();

        let agent = node.start_limited();
        node.call("ADD", &pod, &node.config(&previous, &json!({}))).result();
        assert!(!pod.reaches(SECOND_NOT), "nothing is open before");
        wait_for("the denial is heard, by sockets that were passed on", || {
            let status = node.status();
            assert_eq!(status["second"]["unlogged"], json!([]), "{status}");
            status["denials"].as_u64() > Some(0)
        });
        assert!(pod.reaches(MAY), "what policies allow passes by the second interface, too");
        let web = json!([{"pod": "shop/web", "interfaces": ["net1"], "enforced": true}]);
        assert_eq!(node.status()["second"]["pods"], web, "{}", node.status());
        // An interface that comes later.
        connect("net2", 2, "203.0.113.10");
        assert!(!pod.reaches(THIRD_NOT));
        node.write(&MANIFESTS.replace("198.51.100.7/32", "0.0.0.0/0"));
        wait_for("the table follows the policies", || pod.reaches(SECOND_NOT) && pod.reaches(THIRD_NOT));
        let stream = pod.connect(SECOND_NOT).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();

        // The next agent may not enter the namespace. What is there stays, until the sidecar passes sockets.
        drop(agent);
        node.write(MANIFESTS);
        let agent = node.start_limited();
        let second = node.status()["second"].clone();
        assert_eq!((&second["reached"], &second["unreached"]), (&json!(0), &json!(1)), "{second}");
        assert_eq!(second["unreachedPods"], json!(["shop/web"]), "{second}");
        assert!(pod.reaches(SECOND_NOT), "the table is as the last agent left it");
        let sidecar = node.sidecar();
        wait_for("the sidecar passes sockets", || node.status()["second"]["reached"] == 1);
        wait_for("the table follows the policies", || !pod.reaches(SECOND_NOT));
        wait_for("the connection is cut that policies forbid since", || {
            let told = (&stream).write(b"x").and_then(|_| (&stream).read(&mut [0]));
            told.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
        });
        assert_eq!(node.status()["second"]["repaired"], 0);
        drop((agent, sidecar));

        // Nobody looks, and root in the namespace removes the tables.
        inside("nft flush ruleset");
        assert!(pod.reaches(SECOND_NOT), "the attack works while no agent runs");
        let _agent = node.start();
        assert!(!pod.reaches(SECOND_NOT));
        assert_eq!(node.status()["second"]["repaired"], 1, "it is found out: {}", node.status());
        inside("nft flush ruleset");
        assert!(!pod.reaches(SECOND_NOT), "while an agent runs its tables are its own");
        node.call("DEL", &pod, &node.config(&Value::Null, &json!({}))).result();
        node.bridge("DEL", &pod);
    });
}

/// A pod that starts while no agent runs is closed by the plugin, which does not know how the agent calls its table.
#[test]
fn s7_4_an_agent_with_another_table_opens_what_the_plugin_closed_and_uninstall_removes_all_of_it() {
    if !Path::new(PLUGINS).join("bridge").exists() {
        give_up(format_args!("there is no {PLUGINS}/bridge; install containernetworking-plugins"));
    }
    isolated(|| {
        let sandbox = Process(Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap());
        let namespace = PathBuf::from(format!("/proc/{}/ns/net", sandbox.0.id()));
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        while std::fs::read_link(&namespace).unwrap() == own {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (node, pod) = (Node::new("table"), Pod { name: "web", uid: "u1", namespace: &namespace, runtime: 0 });
        let inside = |command: &str| {
            let mut entered = Command::new("nsenter");
            entered.arg(format!("--net={}", namespace.display())).args(command.split(' '));
            let output = entered.output().unwrap();
            assert!(output.status.success(), "{command}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let _servers = [MAY, MAY_NOT].map(|place| TcpListener::bind(place).unwrap());
        let previous = node.bridge("ADD", &pod);
        ip(&format!("link add host-net1 type veth peer name net1 netns {}", sandbox.0.id()));
        ip("address add 172.16.1.1/24 dev host-net1");
        ip("link set host-net1 up");
        inside("ip address add 172.16.1.2/24 dev net1");
        inside("ip link set net1 up");
        for to in [MAY, MAY_NOT] {
            inside(&format!("ip route add {}/32 via 172.16.1.1", to.trim_end_matches(":80")));
        }
        assert!(pod.reaches(MAY_NOT), "without namewall the second interface leads anywhere");
        let away = json!({"timeoutSeconds": 1, "whenAgentAway": "allow"});
        assert_eq!(node.call("ADD", &pod, &node.config(&previous, &away)).result(), previous);
        assert!(!pod.reaches(MAY) && !pod.reaches(MAY_NOT), "closed until an agent comes");

        let agent = node.start_with_table("mywall");
        wait_for("what policies allow is open", || pod.reaches(MAY));
        assert!(!pod.reaches(MAY_NOT), "and nothing else");
        drop(agent);
        let listed = inside("nft list tables");
        assert!(listed.lines().all(|table| table.ends_with(" mywall")), "{listed}");

        let removed = node.command().args(["uninstall", "--table", "mywall"]).output().unwrap();
        let said = String::from_utf8_lossy(&removed.stdout).into_owned();
        assert!(removed.status.success() && said.contains("shop/web"), "{said}");
        assert_eq!(inside("nft list ruleset"), "", "nothing stays in the pod");
        assert!(pod.reaches(MAY_NOT), "as without namewall");
        node.bridge("DEL", &pod);
    });
}

fn it_refuses_what_it_cannot_read(node: &Node, pod: &Pod<'_>) {
    let version = node.call("VERSION", pod, &json!({"cniVersion": "1.0.0"})).result();
    assert_eq!(version["supportedVersions"], json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_namewall"));
    pod.environment(&mut plugin, "ADD");
    let garbage = Called { output: output_with_input(&mut plugin, "\u{1}{]").unwrap() };
    assert_eq!(garbage.code(), 6);
    assert_eq!(node.call("ADD", pod, &node.config(&Value::Null, &json!({}))).code(), 7, "it is not chained");
    assert_eq!(node.call("ADD", pod, &node.config(&json!({}), &json!({"cniVersion": "9.0.0"}))).code(), 1);
    assert_eq!(node.call("PLUG", pod, &node.config(&Value::Null, &json!({}))).code(), 4);
}

fn without_an_agent_the_setting_decides(node: &Node, pod: &Pod<'_>, previous: &Value) {
    let refused = node.call("ADD", pod, &node.config(previous, &json!({"timeoutSeconds": 1})));
    assert_eq!(refused.code(), 11);
    assert!(refused.says("no agent answers") && refused.says("namewall-agent") && !node.record().exists());
    let allowed = json!({"timeoutSeconds": 1, "whenAgentAway": "allow"});
    assert_eq!(node.call("ADD", pod, &node.config(previous, &allowed)).result(), *previous);
    assert!(node.record().exists(), "an agent that comes finds it");
    node.call("DEL", pod, &node.config(&Value::Null, &json!({}))).result();
    assert!(!node.record().exists());
}

fn who_is_not_known_is_refused(node: &Node, namespace: &Path, previous: &Value) {
    for (name, uid) in [("api", "u1"), ("web", "u2")] {
        let stranger = Pod { name, uid, namespace, runtime: 0 };
        let refused = node.call("ADD", &stranger, &node.config(previous, &json!({"timeoutSeconds": 1})));
        assert_eq!(refused.code(), 11);
        assert!(refused.says(&format!("pod shop/{name} with uid {uid} is not known here")), "{name} {uid}");
        assert!(!node.record().exists());
    }
    assert_eq!(node.status()["attachments"]["known"], 0);
}

/// SIGSTOP: its socket is there, and takes connections that nobody answers.
fn an_agent_that_hangs_is_as_one_that_is_away(node: &Node, pod: &Pod<'_>, previous: &Value, agent: &Process) {
    let signal = |signal| kill(Pid::from_raw(agent.0.id() as i32), signal).unwrap();
    let own = |more: &Value| node.config(&Value::Null, more);
    signal(Signal::SIGSTOP);
    let refused = node.call("ADD", pod, &node.config(previous, &json!({"timeoutSeconds": 1})));
    assert_eq!(refused.code(), 11);
    assert!(refused.says("no agent answers") && refused.says("within 1 s") && !node.record().exists());
    let allowed = json!({"timeoutSeconds": 1, "whenAgentAway": "allow"});
    assert_eq!(node.call("ADD", pod, &node.config(previous, &allowed)).result(), *previous);
    assert!(node.record().exists(), "an agent that comes finds it");
    assert!(!pod.reaches(MAY) && !pod.reaches(MAY_NOT), "it is closed until the agent knows its address");
    assert_eq!(node.call("STATUS", pod, &own(&json!({"cniVersion": "1.1.0"}))).code(), 50);
    // On a busy machine one call may take longer; one that always does waits too long itself.
    let deleted_in_time = || {
        let began = Instant::now();
        node.call("DEL", pod, &own(&json!({}))).result();
        began.elapsed() < Duration::from_secs(2)
    };
    assert!((0..10).any(|_| deleted_in_time()), "DEL waits for an agent that hangs");
    assert!(!node.record().exists());
    signal(Signal::SIGCONT);
    // It answers what it was asked meanwhile, in any order.
    wait_for("the agent forgets the pod", || {
        node.call("DEL", pod, &own(&json!({}))).result();
        node.status()["attachments"]["known"] == 0
    });
}

fn check_finds_interfaces_that_have_other_names(node: &Node, pod: &Pod<'_>, previous: &Value) {
    let check = || node.call("CHECK", pod, &node.config(previous, &json!({})));
    let inside = |command: &str| {
        let mut entered = Command::new("nsenter");
        entered.arg(format!("--net={}", pod.namespace.display())).args(command.split(' '));
        assert!(entered.status().unwrap().success(), "{command}");
    };
    let host = previous["interfaces"][1]["name"].as_str().unwrap();
    inside("ip link set eth0 name eth9");
    assert_eq!(check().code(), 100, "the pod has renamed it");
    inside("ip link set eth9 name eth0");
    check().result();
    ip(&format!("link set {host} name veth9"));
    assert_eq!(check().code(), 100, "the host's end has another name");
    ip(&format!("link set veth9 name {host}"));
    wait_for("it is as it was", || check().output.status.success());
    wait_for("the pod is at its interface again", || pod.reaches(MAY));
    assert!(!pod.reaches(MAY_NOT));
}

fn check_finds_that_an_interface_is_gone(node: &Node, pod: &Pod<'_>, previous: &Value) {
    node.call("ADD", pod, &node.config(previous, &json!({}))).result();
    node.call("CHECK", pod, &node.config(previous, &json!({}))).result();
    ip(&format!("link delete {}", previous["interfaces"][1]["name"].as_str().unwrap()));
    let gone = node.call("CHECK", pod, &node.config(previous, &json!({})));
    assert_eq!(gone.code(), 100, "{}", String::from_utf8_lossy(&gone.output.stdout));
    node.call("DEL", pod, &node.config(&Value::Null, &json!({}))).result();
    assert!(!node.record().exists());
}

fn add_returns_when_the_pod_is_enforced(node: &Node, pod: &Pod<'_>, previous: &Value) {
    let began = Instant::now();
    let result = node.call("ADD", pod, &node.config(previous, &json!({}))).result();
    println!("ADD took {:?}", began.elapsed());
    assert_eq!(result, *previous);
    assert!(!pod.reaches(MAY_NOT), "nothing is open before");
    assert!(pod.reaches(MAY), "and no first packet is lost");
    let record: Value = serde_json::from_reader(File::open(node.record()).unwrap()).unwrap();
    assert_eq!(record["addresses"][0], "10.88.1.2");
    let (host, mac) = (&previous["interfaces"][1]["name"], &previous["interfaces"][2]["mac"]);
    assert_eq!((&record["host"]["name"], &record["mac"]), (host, mac));
    let attached = json!({"known": 1, "enforced": 1, "interfaces": 1, "unreadable": []});
    assert_eq!(node.status()["attachments"], attached);
    node.call("CHECK", pod, &node.config(previous, &json!({}))).result();
    node.call("STATUS", pod, &node.config(&Value::Null, &json!({"cniVersion": "1.1.0"}))).result();
    let mut other = previous.clone();
    other["ips"][0]["address"] = "10.88.1.3/24".into();
    assert_eq!(node.call("CHECK", pod, &node.config(&other, &json!({}))).code(), 100);
}

fn only_root_may_attach(node: &Node, pod: &Pod<'_>, previous: &Value) {
    let runtime = node.folder.join("runtime");
    std::fs::set_permissions(&runtime, Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(runtime.join("run.sock"), Permissions::from_mode(0o777)).unwrap();
    let other = Pod { runtime: NOBODY, ..*pod };
    let deleted = node.call("DEL", &other, &node.config(&Value::Null, &json!({})));
    assert!(deleted.says("only root may attach pods"), "{}", String::from_utf8_lossy(&deleted.output.stderr));
    assert!(deleted.output.status.success(), "DEL always succeeds");
    node.call("CHECK", pod, &node.config(previous, &json!({}))).result();
}

fn a_restart_loses_nothing(node: &Node, pod: &Pod<'_>, previous: &Value) {
    node.call("CHECK", pod, &node.config(previous, &json!({}))).result();
    assert!(pod.reaches(MAY) && !pod.reaches(MAY_NOT));
    // A record that cannot be read is told of.
    let broken = node.folder.join("runtime/attachments/c9@eth0.json");
    File::create(&broken).unwrap().write_all(b"{").unwrap();
    let collected = node.call(
        "GC",
        pod,
        &node.config(&Value::Null, &json!({"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]})),
    );
    collected.result();
    assert!(collected.says("c9@eth0.json") && node.record().exists());
}

fn garbage_is_collected(node: &Node, pod: &Pod<'_>, previous: &Value) {
    assert_eq!(node.call("GC", pod, &node.config(&Value::Null, &json!({}))).code(), 7, "no list is no empty list");
    assert!(node.record().exists());
    // A runtime asks for each network by itself, and lists only what is of that network.
    let other = node.folder.join("runtime/attachments/c2@eth0.json");
    let mut record: Value = serde_json::from_reader(File::open(node.record()).unwrap()).unwrap();
    (record["network"], record["container"]) = ("others".into(), "c2".into());
    std::fs::write(&other, record.to_string()).unwrap();
    node.call("GC", pod, &node.config(&Value::Null, &json!({"cni.dev/valid-attachments": []}))).result();
    assert!(!node.record().exists());
    assert!(other.exists(), "a record of another network stays");
    let of_other = json!({"name": "others", "cni.dev/valid-attachments": []});
    node.call("GC", pod, &node.config(&Value::Null, &of_other)).result();
    assert!(!other.exists(), "it was a record that can be read");
    assert_eq!(node.status()["attachments"]["known"], 0);
    assert_eq!(node.call("CHECK", pod, &node.config(previous, &json!({}))).code(), 100);
    node.call("DEL", pod, &node.config(&Value::Null, &json!({}))).result();
}

/// A runtime's configuration with one plugin, at this address of the network.
fn runtime_configuration(subnet: &str) -> String {
    let bridge = json!({"type": "bridge", "ipam": {"type": "host-local", "subnet": subnet}});
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}).to_string()
}

#[test]
fn it_is_installed_follows_the_runtime_and_is_taken_out_again() {
    let folder = std::env::temp_dir().join(format!("namewall-cni-install-{}", std::process::id()));
    let (bin, conf) = (folder.join("bin"), folder.join("conf"));
    for folder in [&bin, &conf] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let cni = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
        command.arg("cni").args(arguments).arg("--bin-dir").arg(&bin).arg("--conf-dir").arg(&conf);
        command.env_remove("CNI_COMMAND").stdin(Stdio::null());
        command
    };
    let done = |arguments: &[&str]| {
        let output = cni(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (original, chained, plugin) =
        (conf.join("10-pods.conflist"), conf.join("00-namewall.conflist"), bin.join("namewall"));
    let list =
        |path: &Path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap_or_default()).unwrap_or_default();

    let (code, told) = done(&["install", "--wait", "1s"]);
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("there is no configuration in"), "{told}");
    std::fs::write(&original, runtime_configuration("10.88.1.0/24")).unwrap();
    let settings = ["--when-agent-away", "allow", "--timeout", "7", "--socket", "/run/else/run.sock"];
    let (code, told) = done(&[&["install"], &settings[..]].concat());
    assert_eq!(code, Some(0), "{told}");
    let written = list(&chained);
    assert_eq!(written["plugins"][0]["type"], "bridge", "{written}");
    let ours =
        json!({"type": "namewall", "whenAgentAway": "allow", "timeoutSeconds": 7, "socket": "/run/else/run.sock"});
    assert_eq!(written["plugins"][1], ours);
    assert_eq!(std::fs::read_to_string(&original).unwrap(), runtime_configuration("10.88.1.0/24"), "it is not changed");
    // The runtime runs what was put there.
    let mut installed = Command::new(&plugin);
    let version = output_with_input(installed.env("CNI_COMMAND", "VERSION"), r#"{"cniVersion": "1.0.0"}"#).unwrap();
    assert!(version.status.success() && String::from_utf8_lossy(&version.stdout).contains("supportedVersions"));

    // The sidecar follows changes, and puts back what somebody has removed.
    let socket = folder.join("run.sock");
    let watch = ["install", "--watch", "--socket", socket.to_str().unwrap(), "--netns-dir", folder.to_str().unwrap()];
    let mut sidecar = Process(cni(&watch).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    std::fs::write(folder.join("next"), runtime_configuration("10.99.0.0/16")).unwrap();
    std::fs::rename(folder.join("next"), &original).unwrap();
    std::fs::remove_file(&plugin).unwrap();
    wait_for("the copy follows the configuration", || list(&chained)["plugins"][0]["ipam"]["subnet"] == "10.99.0.0/16");
    wait_for("the plugin is put back", || plugin.exists());
    kill(Pid::from_raw(sidecar.0.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(sidecar.0.wait().unwrap().code(), Some(0));
    assert!(chained.exists() && plugin.exists(), "it stays when the sidecar ends");

    let (code, told) = done(&["uninstall", "--keep-records"]);
    assert_eq!(code, Some(0), "{told}");
    assert!(!chained.exists() && !plugin.exists() && original.exists());
    for path in [&chained, &plugin] {
        assert!(told.contains(&format!("removed {}", path.display())), "{told}");
    }
    assert_eq!(done(&["uninstall", "--keep-records"]), (Some(0), String::new()), "there is nothing left");
    std::fs::remove_dir_all(&folder).unwrap();
}
