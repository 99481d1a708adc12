//! `namewall-generate`: writes a made-up cluster into a folder.

use clap::Parser;
use namewall_bench::Cluster;
use namewall_bench::bulk::Form;
use std::path::PathBuf;

/// Write a made-up cluster as manifests, the same ones every time
#[derive(Parser, Debug)]
#[command(name = "namewall-generate", version)]
struct Args {
    /// How many pods
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// How many namespaces, the platform's two among them
    #[arg(long, default_value_t = 200)]
    namespaces: usize,
    /// How many policies of all kinds
    #[arg(long, default_value_t = 1_000)]
    policies: usize,
    /// How many nodes
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// How many pods share an application, and so their labels
    #[arg(long, default_value_t = 4)]
    replicas: usize,
    /// Write Deployments, one an application, in place of pods
    #[arg(long)]
    deployments: bool,
    /// Write so many objects: pods, their Deployments and Services, and policies, in the form of --form
    #[arg(long, value_name = "COUNT")]
    objects: Option<usize>,
    /// How these are written
    #[arg(long, default_value = "yaml", requires = "objects")]
    form: Form,
    /// The folder; it is made if it is missing
    out: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let Args { pods, namespaces, policies, nodes, replicas, deployments, objects, form, out } = Args::parse();
    if let Some(objects) = objects {
        let cluster = Cluster::of_objects(objects);
        cluster.write_bulk(&out, form)?;
        let (from, to) = cluster.question();
        println!("namewall explain --from {from} --to {to} {}", out.display());
        return Ok(());
    }
    let cluster = Cluster { pods, namespaces, policies, nodes, replicas, templates: deployments };
    cluster.write_to(&out)?;
    // A question that can be asked of it, for scripts too.
    let (from, to) = cluster.question();
    println!("namewall explain --from {from} --to {to} {}", out.display());
    Ok(())
}
