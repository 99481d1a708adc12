//! Programs in the real kernel, each test in a network namespace of its own.
//! `nft` is the oracle: what it lists is what the kernel has.

mod isolated;

use expect_test::expect_file;
use isolated::isolated;
use namewall_cluster::{Document, Settings as ClusterSettings, load, lower};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::{Nft, NftError, RELEASE_TIMEOUT, Settings, uninstall};
use namewall_dataplane::render::Scope;
use namewall_policy::model::NodeId;
use namewall_policy::{Instant, Lease, Program, compile};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const NOW: Instant = Instant(Duration::from_secs(100));

fn program(path: &str) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let manifests = load(&[path]).expect("the example can be read");
    compile(&lower(&manifests.documents, &ClusterSettings::default()).snapshot).0
}

fn nft(arguments: &[&str]) -> String {
    let output = Command::new(namewall_testbed::program("nft")).args(arguments).output().expect("nft runs");
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The table, its parts in order, without elements, the number of the last change and the process that owns it.
fn list() -> String {
    let text = nft(&["-s", "-t", "list", "table", "inet", "namewall"]);
    let text = without_generation(&text);
    let mut parts: Vec<&str> = text.trim_end().trim_end_matches('}').split("\n\n").map(str::trim_end).collect();
    parts[0] = "table inet namewall {";
    parts[1..].sort_unstable();
    parts.join("\n\n") + "\n}\n"
}

/// The number of the last change is another after every change.
fn without_generation(text: &str) -> String {
    let number = text.split_once("set generation/").and_then(|(_, rest)| rest.split_once(' ')).expect("it is there").0;
    text.replace(&format!("generation/{number}"), "generation/0")
}

/// Fails with the lines that differ, since tables are long.
fn assert_same(now: &str, before: &str) {
    let lines =
        |a: &str, b: &str| a.lines().filter(|line| !b.contains(line)).map(|l| format!("\n  {l}")).collect::<String>();
    assert!(now == before, "too many:{}\nmissing:{}", lines(now, before), lines(before, now));
}

fn open() -> SingleThreaded<Nft> {
    open_with(Settings::default(), Scope::default())
}

fn open_with(settings: Settings, scope: Scope) -> SingleThreaded<Nft> {
    SingleThreaded::new(Nft::open(settings).expect("nftables can be used"), scope)
}

fn remove() -> Result<bool, NftError> {
    uninstall("namewall", RELEASE_TIMEOUT, &mut |_| {})
}

/// The shop with another object in it.
fn shop_and(object: &str) -> Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop");
    let mut manifests = load(&[path]).expect("the example can be read");
    let tree = namewall_cluster::yaml::parse(namewall_cluster::yaml::split_documents(object)[0]);
    let (more, _) = Document::from_tree(&"more.yaml".into(), tree.expect("it is YAML").expect("it is not empty"));
    manifests.documents.extend(more);
    compile(&lower(&manifests.documents, &ClusterSettings::default()).snapshot).0
}

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web-2, namespace: shop, labels: {app: web}}, \
    spec: {nodeName: node-1, containers: [{name: c, ports: [{name: http, containerPort: 8080}]}]}, \
    status: {phase: Running, podIP: 10.244.1.99}}";

const POLICY: &str = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: more, namespace: shop}, \
    spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}}";

#[test]
fn the_kernel_lists_what_was_rendered() {
    isolated(|| {
        let mut kernel = open();
        kernel.replace(&program("examples/shop"), NOW).expect("the kernel takes the Program");
        expect_file!["kernel/shop.nft"].assert_eq(&list());
        expect_file!["kernel/shop.namewall"].assert_eq(&kernel.dataplane.table().expect("it was made").to_string());
    });
}

/// What every bridge CNI does with its bridge.
#[test]
fn an_address_of_the_node_may_come_and_go_within_its_pods_block() {
    let addresses = |list: &str| {
        format!(
            "{{apiVersion: namewall.dev/v1alpha1, kind: NodeAddresses, metadata: {{name: node-1}}, \
              addresses: [{list}]}}"
        )
    };
    let of_pods = || nft(&["list", "set", "inet", "namewall", "podnet4"]);
    isolated(move || {
        let mut kernel = open();
        kernel.replace(&program("examples/shop"), NOW).expect("the kernel takes the Program");
        let before = of_pods();
        assert!(before.contains("10.244.1.0/24"), "{before}");
        kernel.replace(&shop_and(&addresses("10.244.1.1")), NOW).expect("an address comes");
        assert!(of_pods().contains("10.244.1.0, 10.244.1.2-10.244.1.255"), "{}", of_pods());
        kernel.replace(&shop_and(&addresses("10.244.1.1, 10.244.1.7")), NOW).expect("another comes");
        assert!(of_pods().contains("10.244.1.2-10.244.1.6"), "{}", of_pods());
        kernel.replace(&shop_and(&addresses("10.244.1.7")), NOW).expect("the first goes");
        kernel.replace(&program("examples/shop"), NOW).expect("the other goes");
        assert_eq!(of_pods(), before);
    });
}

#[test]
fn to_open_changes_nothing() {
    isolated(|| {
        let kernel = open();
        assert_eq!(nft(&["list", "ruleset"]), "", "what was tried is gone");
        drop(kernel);
        assert_eq!(nft(&["list", "ruleset"]), "");
    });
}

/// So many operations make a change the next generation: a chain of two rules, and a set for another.
const STEP: usize = 7;

#[test]
fn a_change_is_the_smallest() {
    isolated(|| {
        let (shop, pod, policy) = (program("examples/shop"), shop_and(POD), shop_and(POLICY));
        let mut kernel = open();
        kernel.replace(&shop, NOW).expect("the kernel takes the Program");
        let before = list();
        assert_eq!(kernel.replace(&shop, NOW).expect("again").operations, 0, "nothing is to be done");
        let applied = kernel.replace(&pod, NOW).expect("a pod comes");
        assert!(applied.operations <= 6 + STEP, "{applied:?}: a pod is a few elements");
        assert_same(&list(), &before);
        assert!(nft(&["list", "map", "inet", "namewall", "ingress4"]).contains("10.244.1.99"));
        kernel.replace(&shop, NOW).expect("the pod goes");
        assert!(!nft(&["list", "map", "inet", "namewall", "ingress4"]).contains("10.244.1.99"));
        let applied = kernel.replace(&policy, NOW).expect("a policy comes");
        assert!(applied.operations <= 24 + STEP, "{applied:?}: a policy is a few chains and a joined look-up");
        assert!(list().contains("chain NetworkPolicy/shop/more/ingress"));
        kernel.replace(&shop, NOW).expect("the policy goes");
        assert_same(&list(), &before);
    });
}

#[test]
fn s7_4_a_pod_of_another_node_is_a_few_elements() {
    isolated(|| {
        let scope = Scope { node: Some(NodeId(7)), ..Scope::default() };
        let mut kernel = open_with(Settings::default(), scope.clone());
        kernel.replace(&program("examples/shop"), NOW).expect("the kernel takes the Program");
        let remote = || nft(&["list", "set", "inet", "namewall", "gate4"]);
        assert!(remote().contains("10.244.1.12"), "the gate of a pod elsewhere: {}", remote());
        let before = list();
        let applied = kernel.replace(&shop_and(POD), NOW).expect("a pod comes elsewhere");
        assert!(applied.operations <= 5 + STEP, "{applied:?}");
        assert!(remote().contains("10.244.1.99"), "{}", remote());
        assert_same(&list(), &before);
        drop(kernel);
        let mut next = open_with(Settings::default(), scope);
        assert_eq!(next.replace(&shop_and(POD), NOW).expect("adopted").operations, 0, "it leads to the same chain");
    });
}

#[test]
fn a_table_that_is_right_is_adopted_and_one_that_is_not_is_repaired() {
    isolated(|| {
        let shop = program("examples/shop");
        open().replace(&shop, NOW).expect("the kernel takes the Program");
        let before = list();
        assert!(before.contains("chain NetworkPolicy/shop/web/egress"), "the table outlives the process: {before}");
        assert_eq!(open().replace(&shop, NOW).expect("adopted").operations, 0, "nothing is to be done");

        nft(&["flush", "chain", "inet", "namewall", "NetworkPolicy/shop/web/egress"]);
        nft(&["add", "rule", "inet", "namewall", "egress-forward", "accept"]);
        nft(&["add", "chain", "inet", "namewall", "stranger"]);
        nft(&["add", "element", "inet", "namewall", "peer4", "{ 0x01 . 203.0.113.9 }"]);
        nft(&["flush", "map", "inet", "namewall", "ingress4"]);
        assert_ne!(list(), before);
        open().replace(&shop, NOW).expect("repaired");
        assert_same(&list(), &before);
        assert!(!nft(&["list", "set", "inet", "namewall", "peer4"]).contains("203.0.113.9"));
        assert!(nft(&["list", "map", "inet", "namewall", "ingress4"]).contains("10.244.1.12"));
    });
}

#[test]
fn nobody_elses_table_is_touched() {
    isolated(|| {
        nft(&["add", "table", "inet", "namewall"]);
        let error = Nft::open(Settings::default()).expect_err("it is somebody else's");
        assert!(error.to_string().contains("--table"), "{error}");
        assert!(remove().is_err(), "nor is it removed");
        nft(&["list", "table", "inet", "namewall"]);
        let settings = Settings { table: "other".to_owned(), ..Settings::default() };
        let mut kernel = open_with(settings, Scope::default());
        kernel.replace(&program("examples/shop"), NOW).expect("another name will do");
    });
}

#[test]
fn a_table_in_use_is_protected_and_uninstall_removes_all() {
    isolated(|| {
        let shop = program("examples/shop");
        let mut kernel = open();
        kernel.replace(&shop, NOW).expect("the kernel takes the Program");
        let before = list();
        nft(&["flush", "ruleset"]);
        assert_same(&list(), &before);
        let at_once = Settings { patience: Duration::ZERO, ..Settings::default() };
        let mut second = open_with(at_once, Scope::default());
        let error = second.replace(&shop, NOW).expect_err("one owner at a time");
        assert!(error.to_string().contains("stop that one first"), "{error}");
        let error = uninstall("namewall", Duration::ZERO, &mut |_| {}).expect_err("not under a running one");
        assert!(error.to_string().contains(&format!("with PID {}", std::process::id())), "{error}");
        // The owner goes while its table is being removed, and the kernel may take a while to release it.
        let mut kernel = Some(kernel);
        assert!(uninstall("namewall", RELEASE_TIMEOUT, &mut |_| drop(kernel.take())).expect("it can be removed"));
        assert!(kernel.is_none(), "it has waited for the owner");
        assert_eq!(nft(&["list", "ruleset"]), "", "nothing is left");
        assert!(!remove().expect("there is nothing to do"));
    });
}

#[test]
fn s6_4_a_lease_is_in_the_kernel_when_grant_returns_and_goes_by_itself() {
    isolated(|| {
        let program = program("examples/shop");
        let mut kernel = open();
        kernel.replace(&program, NOW).expect("the kernel takes the Program");
        let (_, pattern) = program.patterns.iter().next().expect("the shop has a name in its policies");
        let lease = |address: &str, seconds| Lease {
            pattern: pattern.clone(),
            name: pattern.names.example(),
            address: address.parse().expect("an address"),
            expiry: Instant(Duration::from_secs(seconds)),
            asked_by: None,
        };
        kernel.grant(&[lease("198.51.100.7", 101), lease("2001:db8::7", 160)], NOW).expect("granted");
        let four = || nft(&["list", "set", "inet", "namewall", "lease4"]);
        assert!(four().contains("198.51.100.7"), "{}", four());
        assert!(nft(&["list", "set", "inet", "namewall", "lease6"]).contains("2001:db8::7"));
        // A renewal counts from now, and never shortens.
        kernel.grant(&[lease("198.51.100.8", 130)], NOW).expect("granted");
        kernel.grant(&[lease("198.51.100.8", 110)], NOW).expect("granted");
        assert!(four().contains("198.51.100.8 timeout 30s"), "{}", four());
        kernel.grant(&[lease("198.51.100.8", 150)], NOW).expect("granted");
        assert!(four().contains("198.51.100.8 timeout 50s"), "{}", four());
        thread::sleep(Duration::from_millis(1100));
        assert!(!four().contains("198.51.100.7"), "it has expired: {}", four());
        // Another process takes the leases over.
        drop(kernel);
        let mut next = open();
        next.replace(&program, NOW).expect("adopted");
        next.grant(&[lease("198.51.100.8", 110)], NOW).expect("granted");
        assert!(four().contains("198.51.100.8 timeout 50s"), "a new process does not shorten either: {}", four());
    });
}
