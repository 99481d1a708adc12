//! A cluster that lives, read once.

use crate::cli::{ApiServer, DnsAnswer, Reading};
use crate::input::{Loaded, Origin};
use crate::output;
use anyhow::{Result, bail};
use clap::Args;
use namewall_cluster::kinds::Component;
use namewall_kubernetes::{Connection, SharedAddress, Watch};
use namewall_policy::domain::DomainName;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long all objects of a cluster may take.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// How soon it is said what is in the way. An API server that is not there, and rights that are not given, stay so.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const TRIES: u32 = 8;

/// The cluster that is asked.
#[derive(Args, Debug)]
pub(crate) struct LiveCluster {
    #[command(flatten)]
    server: ApiServer,
    #[command(flatten)]
    reading: Reading,
}

impl Origin for LiveCluster {
    fn load(&self) -> Result<Loaded> {
        Ok(self.read()?.0)
    }
}

impl LiveCluster {
    /// The cluster, and what its DNSNameResolvers say.
    pub(super) fn read(&self) -> Result<(Loaded, Vec<SharedAddress>)> {
        read_cluster(&self.server, &self.reading)
    }
}

/// The cluster, and what its DNSNameResolvers say.
pub(crate) fn read_cluster(server: &ApiServer, reading: &Reading) -> Result<(Loaded, Vec<SharedAddress>)> {
    let connection = Connection::open(&server.target())?;
    let mut watch = Watch::start(&connection, Component::Plugin);
    wait(&watch, connection.server())?;
    let read = watch.read(&reading.settings.cluster());
    let mut loaded = Loaded::compile(read.lowered, read.findings, &reading.settings).with(reading.lenient);
    let objects = watch.new_names().into_iter().filter_map(|(_, object)| object);
    let shared: Vec<SharedAddress> = objects.flat_map(|object| object.addresses().collect::<Vec<_>>()).collect();
    // As agents do: an address is open to every rule that speaks of its name, whoever has looked it up.
    let mut answers: BTreeMap<DomainName, Vec<IpAddr>> = BTreeMap::new();
    for one in &shared {
        if let Ok(name) = DomainName::parse_recorded(&one.name) {
            answers.entry(name).or_default().push(one.address);
        }
    }
    let answers: Vec<DnsAnswer> = answers.into_iter().map(|(name, addresses)| DnsAnswer { name, addresses }).collect();
    loaded.learn(&answers, None);
    Ok((loaded, shared))
}

fn wait(watch: &Watch, server: &str) -> Result<()> {
    let most = (READ_TIMEOUT.as_millis() / LOOK_EVERY.as_millis()) as u32;
    let mut in_the_way = 0;
    for _ in 0..most {
        let Err(trouble) = watch.wait_until_known(LOOK_EVERY) else { return Ok(()) };
        in_the_way += u32::from(!trouble.is_empty());
        if in_the_way < TRIES {
            continue;
        }
        for one in &trouble {
            output::note(&format!("cannot list {}: {}", one.kind, one.what));
        }
        bail!("the cluster at {server} cannot be read as a whole, and without a part of it any answer could be wrong");
    }
    bail!("the cluster at {server} cannot be read in {} s", READ_TIMEOUT.as_secs())
}
