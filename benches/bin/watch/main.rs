//! One agent's watch path in a large cluster: what a pod that comes, changes or
//! goes costs from the API server's words to the kernel, and what the cluster
//! takes in memory. Without packets.

use anyhow::{Result, ensure};
use clap::Parser;
use namewall_bench::Cluster;
use namewall_bench::figures::{Memory, figure, median, milliseconds, quantile, timed};
use namewall_cluster::kinds::{self, Component, Kind, VersionedKind};
use namewall_cluster::{Key, Listing, Settings, Store};
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::{Nft, Settings as NftSettings};
use namewall_dataplane::render::Scope;
use namewall_policy::{Instant, compile, compile_next};
use namewall_sandbox::{Namespace, ensure_rights};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whose agent it is.
const NODE: &str = "node-0007";

#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    #[arg(long, default_value_t = 5_000)]
    policies: usize,
    #[arg(long, default_value_t = 2_000)]
    namespaces: usize,
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    /// Pods that are replaced, half of them on the agent's node
    #[arg(long, default_value_t = 200)]
    changes: usize,
    /// Only writes the cluster's objects to this file, a line each
    #[arg(long)]
    generate: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(path) = &options.generate {
        return generate(&options, path);
    }
    ensure_rights()?;
    // Another process makes the cluster, so that what that takes is not counted here.
    let file = std::env::temp_dir().join(format!("namewall-bench-watch-{}", std::process::id()));
    let mut maker = Command::new(std::env::current_exe()?);
    maker.args(std::env::args_os().skip(1)).arg("--generate").arg(&file);
    ensure!(maker.status()?.success(), "the cluster cannot be made");
    let measured = measure(&options, &file);
    std::fs::remove_file(&file)?;
    measured
}

fn generate(options: &Options, path: &Path) -> Result<()> {
    let Options { pods, policies, namespaces, nodes, .. } = *options;
    let cluster = Cluster { pods, policies, namespaces, nodes, ..Cluster::default() };
    let mut file = BufWriter::new(File::create(path)?);
    let mut applications: BTreeMap<(String, String), Vec<Json>> = BTreeMap::new();
    for document in cluster.documents() {
        let object = serde_json::to_value(&document.node)?;
        writeln!(file, "{object}")?;
        if let (Some("Pod"), Some(application)) = (object["kind"].as_str(), application(&object)) {
            applications.entry(application).or_default().push(object["status"]["podIP"].clone());
        }
    }
    // Each application is a Service.
    for (at, (application, addresses)) in applications.iter().enumerate() {
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 96, 0, 1).to_bits() + at as u32);
        let (namespace, name) = application;
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "clusterIP": address.to_string(), "clusterIPs": [address.to_string()],
                "selector": {"app": name}, "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
            },
        });
        writeln!(file, "{service}\n{}", slice(namespace, name, addresses))?;
    }
    Ok(file.flush()?)
}

/// The namespace and name of the application that a pod is of.
fn application(pod: &Json) -> Option<(String, String)> {
    let text = |path: &str| pod.pointer(path).and_then(Json::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/spec/serviceAccountName")?))
}

fn slice(namespace: &str, name: &str, addresses: &[Json]) -> Json {
    let endpoints: Vec<Json> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": namespace, "name": format!("{name}-x"), "labels": {"kubernetes.io/service-name": name},
        },
        "endpoints": endpoints, "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
    })
}

fn kind_of(object: &Json) -> Option<VersionedKind> {
    kinds::watched(Component::Agent).find(|kind| Some(kind.name) == object["kind"].as_str()).map(Kind::preferred)
}

/// A cluster, and what will change in it.
struct Listed {
    store: Store,
    /// Every second one is of the agent's node.
    pods: Vec<Json>,
    policy: Json,
}

/// Lists everything, as at a start.
fn list(options: &Options, file: &Path) -> Result<Listed> {
    let mut listings: BTreeMap<&str, Listing> = BTreeMap::new();
    let (mut own, mut others, mut policy) = (Vec::new(), Vec::new(), Json::Null);
    for line in BufReader::new(File::open(file)?).lines() {
        let object: Json = serde_json::from_str(&line?)?;
        let Some(versioned) = kind_of(&object) else { continue };
        listings.entry(versioned.kind.name).or_insert_with(|| Listing::new(versioned)).push(&object);
        if *versioned.kind == kinds::POD && object["spec"]["hostNetwork"].is_null() {
            let is_own = object["spec"]["nodeName"] == NODE;
            let some = if is_own { &mut own } else { &mut others };
            if some.len() <= options.changes / 2 {
                some.push(object);
            }
        } else if *versioned.kind == kinds::NETWORK_POLICY {
            policy = object;
        }
    }
    let mut store = Store::default();
    listings.into_values().for_each(|listing| _ = store.replace(listing));
    let own = own.iter().cycle().take(options.changes / 2).cloned();
    let pods = others.into_iter().zip(own).flat_map(|(other, own)| [other, own]);
    Ok(Listed { store, pods: pods.collect(), policy })
}

/// A pod goes, and another comes for it: what the API server tells of it, in the order in which it does.
fn replaced(pod: &mut Json, number: usize) -> Vec<Json> {
    let gone = pod["status"]["podIP"].clone();
    let address = json!(Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 1).to_bits() + number as u32).to_string());
    let mut events = vec![json!({"type": "DELETED", "object": *pod})];
    let name = format!("{}-{number}", pod["metadata"]["name"].as_str().unwrap_or_default());
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"]["pod-template-hash"] = json!(format!("{number:x}"));
    pod["status"] = json!({"phase": "Pending"});
    events.push(json!({"type": "ADDED", "object": *pod}));
    pod["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    events.push(json!({"type": "MODIFIED", "object": *pod}));
    if let Some((namespace, name)) = application(pod).filter(|_| gone != address) {
        events.push(json!({"type": "MODIFIED", "object": slice(&namespace, &name, &[address])}));
    }
    events
}

/// What this process has used, in milliseconds.
fn processor_time() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}

fn measure(options: &Options, file: &Path) -> Result<()> {
    let before = Memory::now();
    let (listed, took) = timed(|| list(options, file));
    let Listed { mut store, mut pods, mut policy } = listed?;
    figure("watch_list_ms", milliseconds(took));
    figure("watch_store_mb", Memory::since(before).process);
    let settings = Settings::default();
    let (read, took) = timed(|| store.read(&settings));
    figure("watch_lower_ms", milliseconds(took));
    let mut snapshot = read.lowered.snapshot;
    let ((mut program, _), took) = timed(|| compile(&snapshot));
    figure("watch_compile_ms", milliseconds(took));
    figure("watch_pods", snapshot.workloads.len() as f64);
    figure("watch_roles", snapshot.roles.len() as f64);
    let namespace = Namespace::create()?;
    let scope = Scope { node: snapshot.node_named(NODE), ..Scope::default() };
    let mut nft = SingleThreaded::new(namespace.enter(|| Nft::open(NftSettings::default()))??, scope);
    let (done, took) = timed(|| nft.replace(&program, Instant::default()));
    done?;
    figure("watch_start_kernel_ms", milliseconds(took));
    figure("watch_mb", Memory::since(before).process);
    let mut times: [Vec<f64>; 5] = Default::default();
    let (mut events, mut used) = (0_u32, 0.0);
    for (number, pod) in pods.iter_mut().enumerate() {
        for event in replaced(pod, number) {
            let text = event.to_string();
            let began = processor_time();
            let (changed, apply) = timed(|| apply(&mut store, &text));
            if !changed? {
                continue;
            }
            let (read, lower) = timed(|| store.read(&settings));
            let next = read.lowered.snapshot;
            let ((compiled, _), compile) = timed(|| compile_next(&snapshot, &program, &next));
            let (done, replace) = timed(|| nft.replace(&compiled, Instant::default()));
            done?;
            (snapshot, program) = (next, compiled);
            used += processor_time() - began;
            events += u32::from(event["object"]["kind"] == "Pod");
            let all = apply + lower + compile + replace;
            for (times, took) in times.iter_mut().zip([apply, lower, compile, replace, all]) {
                times.push(milliseconds(took));
            }
        }
    }
    for (times, name) in times.iter().zip(["apply", "lower", "compile", "replace", "change"]) {
        figure(&format!("watch_{name}_p50_ms"), median(times));
        figure(&format!("watch_{name}_p99_ms"), quantile(times, 0.99));
    }
    // Milliseconds a second for a hundred changes, as a share of a core.
    figure("watch_core_percent", used / f64::from(events) * 100.0 / 10.0);
    figure("watch_end_mb", Memory::since(before).process);

    // A policy has all compiled anew, and for a moment there are two of everything.
    policy["spec"]["policyTypes"] = json!(["Ingress", "Egress"]);
    policy["spec"]["egress"] = json!([]);
    let text = json!({"type": "MODIFIED", "object": policy}).to_string();
    let (done, took) = timed(|| {
        ensure!(apply(&mut store, &text)?, "the policy has changed");
        let next = store.read(&settings).lowered.snapshot;
        let (compiled, _) = compile_next(&snapshot, &program, &next);
        nft.replace(&compiled, Instant::default())?;
        Ok((next, compiled))
    });
    (snapshot, program) = done?;
    figure("watch_policy_ms", milliseconds(took));
    figure("watch_after_policy_mb", Memory::since(before).process);
    drop((snapshot, program));
    Ok(())
}

/// Takes what a watch tells.
fn apply(store: &mut Store, text: &str) -> Result<bool> {
    let event: Json = serde_json::from_str(text)?;
    let object = &event["object"];
    let Some(versioned) = kind_of(object) else { return Ok(false) };
    Ok(match event["type"].as_str() {
        Some("DELETED") => store.remove(versioned.kind, &Key::of(object)),
        _ => store.apply(versioned, object),
    })
}
