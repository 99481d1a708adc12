//! What operators see: `nft list table` of a table that uses every feature. Each
//! test has a network namespace of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../isolated/mod.rs"]
mod isolated;

use isolated::isolated;
use namewall_cluster::{Settings as ClusterSettings, load, lower};
use namewall_dataplane::nft::{Nft, Settings};
use namewall_dataplane::render::{Intercept, Listener, Scope};
use namewall_dataplane::{Connection, Dataplane as _, SingleThreaded, Tunnels};
use namewall_policy::port::Protocol;
use namewall_policy::{Instant, Lease, Program, Snapshot, compile};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

const NOW: Instant = Instant(Duration::from_secs(100));

fn nft(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(namewall_testbed::program("nft"));
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = thread::spawn(move || std::io::Write::write_all(&mut stdin, input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn rich() -> (Snapshot, Program) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/listing/rich.yaml");
    let manifests = load(&[path]).unwrap();
    let snapshot = lower(&manifests.documents, &ClusterSettings::default()).snapshot;
    let program = compile(&snapshot).0;
    (snapshot, program)
}

/// Everything that a table can have: both versions of IP, pods here and elsewhere, Services, DNS, closed blocks,
/// leases, connections that were cut.
fn enforce() -> SingleThreaded<Nft> {
    let (snapshot, program) = rich();
    let listener = |address: &str, server: Option<&str>| Listener {
        address: address.parse().unwrap(),
        port: 1053,
        server: server.map(|server| server.parse().unwrap()),
    };
    let listeners =
        vec![listener("192.0.2.11", None), listener("fd00:18::1", None), listener("192.0.2.11", Some("10.96.0.10"))];
    let dns = Some(Intercept { listeners, servers: vec!["10.96.0.10".parse().unwrap()] });
    let tunnels = Tunnels { ports: [4789, 8472, 6081, 6082].into(), protocols: [4, 41, 47].into() };
    let extra = vec!["10.8.0.0/24".parse().unwrap(), "fd08::/64".parse().unwrap()];
    let closed = vec!["10.244.1.0/24".parse().unwrap(), "fd00:244:1::/64".parse().unwrap()];
    let scope = Scope { node: snapshot.node_named("n1"), log_group: 5, dns, closed, tunnels, extra };
    let mut kernel = SingleThreaded::new(Nft::open(Settings::default()).unwrap(), scope);
    kernel.replace(&program, NOW).unwrap();
    let leases: Vec<Lease> = program
        .patterns
        .iter()
        .flat_map(|(_, pattern)| {
            let lease = |address: &str| Lease {
                pattern: pattern.clone(),
                name: pattern.names.example(),
                address: address.parse().unwrap(),
                expiry: NOW + Duration::from_secs(100 * 3600),
                asked_by: None,
            };
            [lease("203.0.113.80"), lease("2001:db8::80")]
        })
        .collect();
    assert!(!leases.is_empty());
    kernel.grant(&leases, NOW).unwrap();
    kernel.dataplane.beat(Duration::from_secs(3600)).unwrap();
    let between = |from: &str, to: &str| {
        Connection::between(
            Protocol::Tcp,
            SocketAddr::new(from.parse().unwrap(), 1000),
            SocketAddr::new(to.parse().unwrap(), 443),
        )
    };
    let cut = [between("10.244.1.10", "203.0.113.9"), between("fd00:244:1::10", "2001:db8::9")];
    // They are remembered; that the kernel knows none of them does not matter here.
    let _ = kernel.dataplane.cut(&cut.iter().collect::<Vec<_>>());
    kernel
}

/// What nft 1.0.6 cannot read back: it does not know the flag `persist`, and writes `flags` without one.
fn is_about_owner(line: &str) -> bool {
    ["flags", "flags owner"].contains(&line.trim())
}

/// Every line of a listing but for what is another at every look: times and counters, and who owns the table.
fn lines(listing: &str) -> Vec<String> {
    let stable = |line: &str| {
        let words = line.split_whitespace().collect::<Vec<_>>();
        let is_time = |at: usize| at > 0 && words[at - 1] == "expires" || words[at] == "expires";
        let kept: Vec<&str> = (0..words.len()).filter(|at| !is_time(*at)).map(|at| words[at]).collect();
        kept.join(" ").replace(" ,", ",")
    };
    let shown = listing.lines().filter(|line| !is_about_owner(line)).map(stable).filter(|line| !line.is_empty());
    let mut lines: Vec<String> = shown.map(|line| line.split(" # ").next().unwrap_or_default().to_owned()).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn nft_can_show_all_of_a_table() {
    isolated(|| {
        let _kernel = enforce();
        let listing = nft(&["list", "table", "inet", "namewall"], "");
        let json = nft(&["-j", "list", "table", "inet", "namewall"], "");
        // nft 1.0.6 knows the first flag of the table and not the second, `persist`.
        let json = json.replace(r#""flags": ["owner", "unknown"]"#, "").replace("{\"", "\n{\"");
        // No packet or connection is marked, nor changed in another way.
        for (form, text, change) in [("text", &listing, "mark set"), ("json", &json, "mangle")] {
            assert!(!text.contains(change), "{form} has {change}");
        }
        for (form, text) in [("text", &listing), ("json", &json)] {
            for bad in ["invalid", "unknown", "@nh,", "@th,", "@ll,", "\"base\""] {
                let lines: Vec<&str> = text.lines().filter(|line| line.contains(bad)).collect();
                assert!(lines.is_empty(), "{form} has {bad}: {lines:#?}");
            }
        }
        for set in ["lease4", "lease6", "cut4", "cut6", "peer4", "peer6", "named4", "alive", "asker4"] {
            let shown = nft(&["list", "set", "inet", "namewall", set], "");
            assert!(shown.contains("elements = {"), "the table is not as rich as it should be: {shown}");
        }
        let joined = nft(&["list", "map", "inet", "namewall", "joined4"], "");
        assert!(joined.contains("elements = {") && joined.contains(": \"NetworkPolicy/shop/"), "{joined}");
        for part in [
            "counter name",
            "audit-egress4",
            "audit/gates",
            "service4",
            "doubtful",
            "closed-source",
            "dns/taken",
            "ports/",
            "net4/",
        ] {
            assert!(listing.contains(part), "the table is not as rich as it should be: it has no {part}");
        }
    });
}

#[test]
fn nft_reads_its_own_listing_back() {
    let listing = isolated(|| {
        let kernel = enforce();
        // A table with an owner cannot be loaded: nft would be the owner, and end.
        drop(kernel);
        nft(&["list", "table", "inet", "namewall"], "")
    });
    let again = isolated({
        let listing = listing.clone();
        move || {
            let known = listing.lines().filter(|line| !is_about_owner(line));
            let plain: String = known.map(|line| format!("{line}\n")).collect();
            nft(&["-c", "-f", "-"], &plain);
            nft(&["-f", "-"], &plain);
            nft(&["list", "table", "inet", "namewall"], "")
        }
    });
    let (first, second) = (lines(&listing), lines(&again));
    let only = |a: &[String], b: &[String]| a.iter().filter(|line| !b.contains(line)).cloned().collect::<Vec<_>>();
    assert!(first == second, "lost: {:#?}\ncame: {:#?}", only(&first, &second), only(&second, &first));
}

/// `namewall rules --live` in this network namespace.
fn rules(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_namewall")).args(["rules", "--live"]).args(arguments).output().unwrap()
}

fn says(arguments: &[&str]) -> String {
    let output = rules(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn rules_live_says_in_words_what_the_kernel_has() {
    isolated(|| {
        let _kernel = enforce();
        let all = says(&[]);
        for part in [
            "10.244.1.10, fd00:244:1::10",
            "NetworkPolicy/shop/web egress rule 0: UDP port 5432; 2 pod addresses or ports by name; 2 pod addresses",
            "TCP port 22, TCP port 443, TCP ports 8000-8100, SCTP port 9; from 2001:db8::-2001:db8:ffff",
            "TCP port 443, UDP port 443; 5 networks",
            "go on  EgressFirewalls are not for pods: the pod network or pods\n",
            "deny   EgressFirewall/shop/default egress rule 2: any IPv4 address (0 times)",
            "deny   isolated for egress by NetworkPolicy/shop/web: anything (0 times)",
            "deny   ClusterEgressFirewall/no-metadata egress rule 0: to 169.254.169.254 or to fd00:ec2::254",
            "allow  ClusterNetworkPolicy/names egress rule 0: names",
            "www.example.com 203.0.113.80 for 99 h more",
            "audited",
            "a pod of another node",
        ] {
            assert!(all.contains(part), "it does not say {part:?}:\n{all}");
        }
        let one = says(&["--pod", "fd00:244:1::12"]);
        assert!(one.contains("10.244.1.12") && !one.contains("10.244.1.10"), "{one}");
        let unknown = rules(&["--pod", "10.244.1.77"]);
        let told = String::from_utf8_lossy(&unknown.stderr).into_owned();
        assert!(unknown.status.code() == Some(2) && told.contains("has no rule for a pod 10.244.1.77"), "{told}");
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/listing/rich.yaml");
        let manifests = manifests.to_str().unwrap();
        let named = says(&["--pod", "shop/db", manifests]);
        assert!(named.starts_with("shop/db 10.244.1.12 fd00:244:1::12\n"), "{named}");
        let system = says(&["--namespace", "kube-system", manifests]);
        assert!(system.contains("kube-system/dns") && !system.contains("shop/db"), "{system}");
    });
}

#[test]
fn rules_live_says_what_to_do_where_there_is_nothing_to_read() {
    isolated(|| {
        let check = |arguments: &[&str], parts: &[&str]| {
            let output = rules(arguments);
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{told}");
            assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        };
        check(&[], &["there is no table inet namewall", "namewall run", "--table"]);
        check(&["--pod", "shop/web"], &["by their addresses only", "PATH"]);
        nft(&["add", "table", "inet", "namewall"], "");
        check(&[], &["did not make"]);
        let nobody = Command::new("setpriv")
            .args(["--reuid=65534", "--clear-groups", env!("CARGO_BIN_EXE_namewall"), "rules", "--live"])
            .output();
        let told = String::from_utf8_lossy(&nobody.unwrap().stderr).into_owned();
        assert!(told.contains("as root"), "{told}");
    });
}
