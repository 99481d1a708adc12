//! The commands that use the kernel, as a user would use and misuse them. Each
//! test has a sandbox of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A folder for a sandbox, which is taken down at the end.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("namewall-test-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        Self(folder)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
        command.args(arguments).current_dir(ROOT).env("NAMEWALL_RUNTIME_DIR", &self.0);
        command.output().expect("it runs")
    }

    /// The exit code, and all that was said.
    fn said(&self, arguments: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.run(arguments);
        let text = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        (status.code().unwrap_or(-1), text)
    }

    #[track_caller]
    fn expect(&self, arguments: &[&str], code: i32, part: &str) {
        let (got, text) = self.said(arguments);
        assert_eq!(got, code, "{arguments:?}: {text}");
        assert!(text.contains(part), "{arguments:?}: `{part}` is not in: {text}");
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        self.run(&["sandbox", "down"]);
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn a_sandbox_is_built_probed_entered_and_taken_away() {
    let place = TempFolder::new("life");
    place.expect(&["sandbox", "up", "examples/shop"], 0, "4 pods on node-1");
    place.expect(&["sandbox", "probe"], 0, "every one as predicted");
    place.expect(&["sandbox", "probe", "--port", "53/UDP", "-o", "json"], 0, "\"measured\": \"silent\"");
    place.expect(&["sandbox", "exec", "shop/web", "--", "cat", "/proc/net/fib_trie"], 0, "10.244.1.10");
    place.expect(&["sandbox", "exec", "shop/web", "--", "sh", "-c", "exit 7"], 7, "");
    namewall_testbed::program("nft");
    place.expect(&["sandbox", "exec", "--node", "node-1", "--", "nft", "list", "tables"], 0, "table inet namewall");
    place.expect(&["sandbox", "exec", "--outside", "--", "cat", "/proc/net/fib_trie"], 0, "203.0.113.10");
    // A second one replaces the first.
    place.expect(&["sandbox", "up", "--outside", "198.51.100.77", "examples/shop"], 0, "Outside are 198.51.100.77");
    place.expect(&["sandbox", "down"], 0, "down");
    place.expect(&["sandbox", "down"], 0, "no sandbox is up");
}

/// The process that keeps the sandbox takes no signal of the terminal, so it must notice by itself.
#[test]
fn a_sandbox_that_nobody_waits_for_any_more_leaves_no_process() {
    let place = TempFolder::new("given-up");
    fs::create_dir_all(&place.0).expect("a folder");
    let pipe = place.0.join("pipe.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).expect("a pipe");
    let mut command = Command::new(env!("CARGO_BIN_EXE_namewall"));
    command.args(["sandbox", "up"]).arg(&pipe).env("NAMEWALL_RUNTIME_DIR", place.0.join("run"));
    let mut up = command.spawn().expect("it runs");
    let name = pipe.to_string_lossy().into_owned();
    wait_for("the keeper reads the pipe", || !keepers_of(&name).is_empty());
    up.kill().and_then(|()| up.wait()).expect("it is killed");
    wait_for("the keeper ends", || keepers_of(&name).is_empty());
}

/// Processes that keep a sandbox of this input.
fn keepers_of(input: &str) -> Vec<PathBuf> {
    let keeps = |folder: &PathBuf| {
        let line = fs::read(folder.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&b"keep".as_slice()) && words.contains(&input.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("processes").flatten().map(|entry| entry.path());
    all.filter(keeps).collect()
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "not within a minute: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn what_is_left_of_a_killed_one_is_cleaned_up() {
    let place = TempFolder::new("killed");
    place.expect(&["sandbox", "up", "examples/shop"], 0, "up");
    let keeper = keeper_of(&place.0);
    let killed = Command::new("kill").args(["-9", &keeper.to_string()]).status().expect("kill runs");
    assert!(killed.success());
    // Until its last socket is closed: as long as one is open, somebody may be let in and thrown out.
    let has_open = || fs::read_dir(format!("/proc/{keeper}/fd")).is_ok_and(|mut all| all.next().is_some());
    while has_open() {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    place.expect(&["sandbox", "probe"], 2, "no sandbox is up");
    place.expect(&["sandbox", "up", "examples/shop"], 0, "4 pods");
    place.expect(&["sandbox", "probe"], 0, "every one as predicted");
}

/// The process that was started with this folder.
fn keeper_of(folder: &Path) -> u32 {
    let wanted = format!("NAMEWALL_RUNTIME_DIR={}", folder.display());
    let processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |pid: &u32| {
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        text.split(|byte| *byte == 0).any(|part| part == wanted.as_bytes())
    };
    pids.filter(is_it).max().expect("the keeper runs")
}

#[test]
fn workloads_without_addresses_get_some_and_node_ports_are_probed() {
    let place = TempFolder::new("templates");
    let deployment = |name: &str| {
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{template: {{metadata: \
             {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: c, ports: [{{name: http, containerPort: 8080}}]}}]}}}}}}\n"
        )
    };
    let text = deployment("web")
        + &deployment("api")
        + "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n\
           ---\napiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: shop}\n\
           spec: {type: NodePort, clusterIP: 10.96.0.9, selector: {app: api}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}\n\
           ---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\n\
           spec: {podSelector: {matchLabels: {app: web}}, ingress: []}\n";
    fs::create_dir_all(&place.0).expect("it is writable");
    let file = place.0.join("deployments.yaml");
    fs::write(&file, text).expect("it is writable");
    let file = file.to_str().expect("it is text");
    place.expect(&["sandbox", "up", file], 0, "addresses from 10.244.0.0/16");
    place.expect(&["sandbox", "probe"], 0, "192.0.2.1:30080/TCP");
    place.expect(&["sandbox", "probe"], 0, "every one as predicted");
    place.expect(&["sandbox", "up", "--pod-network", "10.7.0.0/24", file], 0, "addresses from 10.7.0.0/24");
    place.expect(&["sandbox", "exec", "shop/web", "--", "cat", "/proc/net/fib_trie"], 0, "10.7.0.2");
}

/// Manifests from Git have neither nodes nor the addresses of Services.
#[test]
fn services_and_nodes_without_addresses_get_some_and_are_probed() {
    let place = TempFolder::new("services");
    let text = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {template: {metadata: \
           {labels: {app: web}}, spec: {containers: [{name: c, ports: [{containerPort: 8080}]}]}}}\n\
           ---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n\
           spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}\n";
    fs::create_dir_all(&place.0).expect("it is writable");
    let file = place.0.join("deployment.yaml");
    fs::write(&file, text).expect("it is writable");
    let file = file.to_str().expect("it is text");
    let said = "1 Service has an address from 10.96.0.0/16 and the node has 192.0.2.1.";
    place.expect(&["sandbox", "up", file], 0, said);
    for target in ["192.0.2.1:30080/TCP", "10.96.0.1:80/TCP", "192.0.2.1:80/TCP"] {
        place.expect(&["sandbox", "probe"], 0, target);
    }
    place.expect(&["sandbox", "probe"], 0, "every one as predicted");
}

#[test]
fn misuse_is_told_what_to_do() {
    let place = TempFolder::new("misuse");
    place.expect(&["sandbox", "probe"], 2, "namewall sandbox up PATH");
    place.expect(&["sandbox", "exec", "shop/web", "--", "true"], 2, "no sandbox is up");
    place.expect(&["sandbox", "exec", "--", "true"], 2, "say where");
    place.expect(&["sandbox", "up", "no/such/folder"], 2, "cannot read no/such/folder");
    place.expect(&["sandbox", "up", "examples/shop/policies.yaml"], 2, "no pod and no workload");
    place.expect(&["rules", "--node", "nobody", "examples/shop"], 2, "there are node-1");
    place.expect(&["sandbox", "up", "examples/shop"], 0, "up");
    place.expect(&["sandbox", "exec", "shop/nobody", "--", "true"], 2, "there are kube-system/dns, shop/api");
    place.expect(&["sandbox", "exec", "shop/web", "--", "no-such-command"], 2, "cannot run no-such-command");
}

#[test]
fn scenarios_are_played_with_packets() {
    let place = TempFolder::new("real");
    let file = place.0.with_extension("yaml");
    fs::write(&file, SCENARIO).expect("it can be written");
    place.expect(&["test", "--real", &file.to_string_lossy()], 0, "1 not tried with packets");
    fs::write(&file, SCENARIO.replace("80/TCP: deny", "80/TCP: allow")).expect("it can be written");
    place.expect(&["test", "--real", &file.to_string_lossy()], 1, "with packets: silence, told of as");
    fs::remove_file(&file).ok();
}

const SCENARIO: &str = "
name: A template has no address
topology:
  nodes: {n1: {addresses: [172.18.0.1], podCIDRs: [10.244.1.0/24]}}
  pods: {a/a: {ip: 10.244.1.2, node: n1}, a/b: {ip: 10.244.1.3, node: n1}}
  objects:
    - {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none, namespace: a}, spec: {podSelector: {}}}
    - {apiVersion: apps/v1, kind: Deployment, metadata: {name: t, namespace: a}, spec: {template: {spec: {}}}}
probes:
  - a/a -> a/b:80/TCP: deny
  - a/t -> a/b:81/TCP: deny
";

#[test]
fn the_rules_can_be_read_and_nothing_is_there_to_uninstall() {
    let place = TempFolder::new("rules");
    place.expect(&["rules", "examples/shop"], 0, "chain NetworkPolicy/shop/web/egress {");
    place.expect(&["uninstall", "--table", "no-such-table"], 0, "nothing to remove");
}

#[test]
fn every_way_that_is_listed_is_tried_with_packets() {
    let place = TempFolder::new("attack");
    let example = "examples/cluster-egress-firewall";
    let [cluster, firewall] = [format!("{example}/cluster.yaml"), format!("{example}/metadata")];
    let redirector = format!("{firewall}/redirector.yaml");
    let attack = ["audit-paths", "metadata", "--attack"];
    // Without the firewall each way leads there, as predicted; with it none does.
    let open = [&attack[..], &[&cluster, &redirector]].concat();
    place.expect(&open, 1, "every one as predicted");
    let (_, text) = place.said(&open);
    for way in ["open       open       directly, from shop/web", "open       open       through Service"] {
        assert!(text.contains(way), "`{way}` is not in: {text}");
    }
    let closed = [&attack[..], &[&cluster, &firewall]].concat();
    place.expect(&closed, 0, "every one as predicted");
    let (_, text) = place.said(&closed);
    assert!(text.contains("closed     closed     through Service"), "{text}");
    assert!(!text.contains("open       open"), "{text}");
    // Each way that is listed is tried, or it is said why not.
    for destination in ["nodes", "10.244.0.0/16"] {
        every_way_is_tried_or_said_why_not(&place, &["audit-paths", destination, "--attack", &cluster, &redirector]);
    }
    // Manifests without addresses get some, as `sandbox up` gives them.
    place.expect(&["audit-paths", "nodes", "--attack", "-o", "json", "examples/shop"], 1, "\"asPredicted\": true");
}

fn every_way_is_tried_or_said_why_not(place: &TempFolder, attack: &[&str]) {
    let (_, text) = place.said(attack);
    assert!(text.contains("\nnot tried: ") && text.contains("every one as predicted"), "{text}");
    let json = place.run(&[attack, &["-o", "json"]].concat()).stdout;
    let json = String::from_utf8_lossy(&json);
    let told: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let count = |value: &serde_json::Value| value.as_array().map_or(1, Vec::len);
    let sum = |list: &serde_json::Value| -> usize {
        list.as_array().into_iter().flatten().map(|one| count(&one["from"]) * count(&one["to"])).sum()
    };
    let number = |name: &str| told["ways"][name].as_u64().expect("a number") as usize;
    assert_eq!(number("listed"), sum(&told["paths"]), "{json}");
    assert_eq!(number("notTried"), sum(&told["notTried"]), "{json}");
    assert_eq!(number("listed"), number("tried") + number("notTried"), "{json}");
    assert!(number("tried") > 0 && number("notTried") > 0, "{json}");
    let said = |one: &serde_json::Value| one["why"].as_str().is_some_and(|why| !why.is_empty());
    assert!(told["notTried"].as_array().expect("a list").iter().all(said), "{json}");
    // No attempt that is said to be tried was not made.
    let not_made = |one: &serde_json::Value| one["seen"] == "not tried" && one["asPredicted"] != true;
    assert!(!told["attempts"].as_array().expect("a list").iter().any(not_made), "{json}");
}

#[test]
fn s7_4_chains_of_services_are_tried_with_packets() {
    let place = TempFolder::new("chains");
    let attack = ["audit-paths", "192.0.2.66", "--attack", "tests/manifests/chains.yaml"];
    let by_node_port = "through Service lab/near at 10.96.1.2:80/TCP, which leads to Service lab/out, from shop/web";
    let by_address = "through Service lab/far at 10.96.1.3:80/TCP, which leads to Service lab/out, from shop/web";
    let by_proxy = "through Service lab/out at 198.51.100.10:80/TCP, from shop/web";
    let (_, open) = place.said(&attack);
    // Who gets it after the first node is up to routes; in the sandbox it is another node.
    for line in [
        format!("depends    open       {by_node_port}"),
        format!("depends    open       {by_address}"),
        format!("open       open       {by_proxy}"),
        "every one as predicted".to_owned(),
    ] {
        assert!(open.contains(&line), "`{line}` is not in: {open}");
    }
    let (_, closed) = place.said(&[&attack[..], &["tests/manifests/chains-firewall.yaml"]].concat());
    for line in [by_node_port, by_address, by_proxy].map(|way| format!("closed     closed     {way}")) {
        assert!(closed.contains(&line), "`{line}` is not in: {closed}");
    }
    assert!(closed.contains("every one as predicted"), "{closed}");
}
