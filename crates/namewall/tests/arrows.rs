//! Which crate may see which (ARCHITECTURE.md), and what the policy core must
//! not touch.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crate → the crates of ours it may depend on, for building or for testing.
const ARROWS: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("cluster", &["policy", "runtime"]),
    ("scenario", &["policy", "cluster"]),
    ("dns", &["policy"]),
    ("expression", &["policy"]),
    // Neither sees the other: a change of a directive rebuilds no engine.
    ("corefile", &["policy", "expression"]),
    ("engines", &["policy", "expression"]),
    ("zones", &["policy", "dns"]),
    ("telemetry", &[]),
    ("dns-firewall", &["policy", "runtime", "dns", "expression", "corefile", "zones", "engines", "telemetry"]),
    ("dataplane", &["policy"]),
    // Links are asked for over netlink.
    ("cni", &["dataplane", "runtime"]),
    // Time, randomness and tasks, for all that a simulation runs; and files that are safe to open.
    ("runtime", &["policy"]),
    ("kubernetes", &["policy", "runtime", "cluster", "telemetry"]),
    ("testbed", &[]),
    ("e2e", &["testbed"]),
    ("agent", &["policy", "runtime", "cluster", "cni", "dns", "dataplane", "kubernetes", "telemetry"]),
    ("controller", &["policy", "runtime", "cluster", "dns", "kubernetes", "telemetry"]),
    // Its nodes are what nodes are: agents.
    ("sandbox", &["policy", "scenario", "dns", "dataplane", "agent"]),
    // Only tests use it.
    ("simulation", &["policy", "runtime", "cluster", "dns", "dataplane", "kubernetes", "agent", "controller"]),
    (
        "bench",
        &[
            "policy",
            "cluster",
            "scenario",
            "dns",
            "expression",
            "corefile",
            "engines",
            "dns-firewall",
            "dataplane",
            "agent",
            "sandbox",
            "kubernetes",
            "simulation",
            "testbed",
        ],
    ),
];

/// Crates without I/O: they take files, time and the environment as arguments.
const PURE: &[&str] = &["policy", "expression", "corefile", "zones"];

/// The core is plain types and functions: nobody's runtime, nobody's format.
const NOT_IN_POLICY: &[&str] = &["tokio", "kube", "serde", "serde_json"];

/// No files, no sockets, no clock, no environment, no output.
const NOT_SAID_IN_PURE: &[&str] =
    &["std::fs", "TcpStream", "UdpSocket", "SystemTime", "Instant::now", "std::env", "println!"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Package {
    name: String,
    /// Name and kind ("normal", "dev", "build") of every dependency.
    dependencies: Vec<(String, String)>,
}

impl Package {
    /// Its folder's name: `policy` for namewall-policy, `namewall` for the binary's.
    fn crate_name(&self) -> &str {
        crate_name(&self.name)
    }

    fn ours(&self) -> impl Iterator<Item = &str> {
        // Any test may use the testbed.
        let is_of_tests = |(name, kind): &&(String, String)| name == "namewall-testbed" && kind == "dev";
        let names = self.dependencies.iter().filter(move |one| !is_of_tests(one)).map(|(name, _)| name.as_str());
        names.filter(|name| name.starts_with("namewall")).map(crate_name)
    }
}

fn crate_name(package: &str) -> &str {
    package.strip_prefix("namewall-").unwrap_or(package)
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let text = |value: &Value| value.as_str().unwrap_or("normal").to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .map(|package| Package {
            name: text(&package["name"]),
            dependencies: list(&package["dependencies"]).iter().map(|d| (text(&d["name"]), text(&d["kind"]))).collect(),
        })
        .collect()
}

#[test]
fn crates_see_only_what_the_arrows_allow() {
    let mut wrong = Vec::new();
    for package in packages() {
        let crate_name = package.crate_name();
        if crate_name == "namewall" {
            continue; // Only the binary sees all.
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == crate_name) else {
            wrong.push(format!(
                "crates/{crate_name} has no arrows yet: say in this test and in ARCHITECTURE.md what it sees"
            ));
            continue;
        };
        for seen in package.ours().filter(|seen| !allowed.contains(seen)) {
            let allowed = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
            wrong.push(format!(
                "{crate_name} -> {seen} is not an arrow of this project: crates/{crate_name} may depend on {allowed}. \
                 ARCHITECTURE.md says why; see crates/{crate_name}/Cargo.toml"
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn policy_depends_on_no_runtime_and_no_format() {
    let packages = packages();
    let policy = packages.iter().find(|package| package.crate_name() == "policy").expect("there is a policy crate");
    for (name, kind) in &policy.dependencies {
        assert!(
            kind == "dev" || !NOT_IN_POLICY.contains(&name.as_str()),
            "policy -> {name}: the core is pure (ARCHITECTURE.md); see crates/policy/Cargo.toml"
        );
    }
}

#[test]
fn pure_crates_do_no_io_and_read_no_clock() {
    let mut wrong = Vec::new();
    let mut folders: Vec<PathBuf> =
        PURE.iter().map(|crate_name| root().join("crates").join(crate_name).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("the source can be read");
            for (at, line) in text.lines().enumerate() {
                for word in NOT_SAID_IN_PURE.iter().filter(|word| line.contains(**word)) {
                    let file = path.strip_prefix(root()).unwrap_or(&path).display();
                    wrong.push(format!(
                        "{file}:{}: `{word}`: a pure crate does no I/O and takes time as an argument (ARCHITECTURE.md)",
                        at + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
