//! One agent's watch path in a large cluster: what a pod that comes, changes or
//! goes costs from the API server's words to the kernel, and what the cluster
//! takes in memory. Without packets.

use anyhow::{Result, ensure};
use clap::Parser;
use namewall_bench::Cluster;
use namewall_bench::figures::{Memory, figure, median, milliseconds, quantile, timed};
use namewall_cluster::kinds::{Kind, WATCHED};
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{Settings, Store};
use namewall_dataplane::Dataplane;
use namewall_dataplane::nft::{Nft, Settings as NftSettings};
use namewall_dataplane::render::Scope;
use namewall_policy::{Instant, compile, compile_next};
use namewall_sandbox::{Namespace, ensure_rights};
use serde_json::{Value as Json, json};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

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
    #[arg(long, default_value_t = 40)]
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
    for document in cluster.documents() {
        writeln!(file, "{}", json_of(&document.node))?;
    }
    Ok(file.flush()?)
}

fn kind_of(object: &Json) -> Option<&'static Kind> {
    WATCHED.iter().find(|kind| Some(kind.name) == object["kind"].as_str())
}

fn measure(options: &Options, file: &Path) -> Result<()> {
    let before = Memory::now();
    let mut store = Store::default();
    let mut pods = Vec::new();
    let began = std::time::Instant::now();
    for line in BufReader::new(File::open(file)?).lines() {
        let object: Json = serde_json::from_str(&line?)?;
        let Some(kind) = kind_of(&object) else { continue };
        store.apply(kind, &object);
        // Those that will change.
        if kind.name == "Pod" && pods.len() < options.changes {
            pods.push(object);
        }
    }
    figure("watch_store_ms", milliseconds(began.elapsed()));
    figure("watch_store_mb", Memory::since(before).process);
    let settings = Settings::default();
    let (read, took) = timed(|| store.read(&settings));
    figure("watch_lower_ms", milliseconds(took));
    let mut snapshot = read.lowered.snapshot;
    let ((mut program, _), took) = timed(|| compile(&snapshot));
    figure("watch_compile_ms", milliseconds(took));
    figure("watch_pods", snapshot.workloads.len() as f64);
    let namespace = Namespace::create()?;
    let scope = Scope { node: snapshot.node_named("node-0007"), ..Scope::default() };
    let mut nft = namespace.enter(|| Nft::open(NftSettings { scope, ..NftSettings::default() }))??;
    let (done, took) = timed(|| nft.replace(&program, Instant::default()));
    done?;
    figure("watch_start_kernel_ms", milliseconds(took));
    figure("watch_mb", Memory::since(before).process);
    let kind = WATCHED.iter().find(|kind| kind.name == "Pod").copied().expect("pods are watched");
    let mut times: [Vec<f64>; 5] = Default::default();
    for at in 0..options.changes {
        let mut pod = pods[at % pods.len()].clone();
        pod["metadata"]["labels"]["version"] = json!(format!("changed-{}", at % 3));
        let (_, apply) = timed(|| store.apply(&kind, &pod));
        let (read, lower) = timed(|| store.read(&settings));
        let next = read.lowered.snapshot;
        let ((compiled, _), compile) = timed(|| compile_next((&snapshot, &program), &next));
        let (done, replace) = timed(|| nft.replace(&compiled, Instant::default()));
        done?;
        (snapshot, program) = (next, compiled);
        for (times, took) in times.iter_mut().zip([apply, lower, compile, replace, apply + lower + compile + replace]) {
            times.push(milliseconds(took));
        }
    }
    for (times, name) in times.iter().zip(["apply", "lower", "compile", "replace", "change"]) {
        figure(&format!("watch_{name}_p50_ms"), median(times));
        figure(&format!("watch_{name}_p99_ms"), quantile(times, 0.99));
    }
    figure("watch_end_mb", Memory::since(before).process);
    Ok(())
}

fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::String(text) => json!(text),
        Value::Seq(items) => items.iter().map(json_of).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.to_string(), json_of(&entry.node)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}
