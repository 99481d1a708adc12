//! A sandbox with namewall in it: every node's namespace has the table a node
//! of a real cluster would have, and kube-proxy's beside it.

use crate::error::Error;
use crate::sandbox::{Progress, Sandbox};
use crate::services;
use namewall_dataplane::nflog::{DenialLog, Denied};
use namewall_dataplane::nft::{Count, Nft, NftError, Settings, put_table};
use namewall_dataplane::render::Scope;
use namewall_dataplane::{CutEstablished, Dataplane};
use namewall_policy::{Instant, Lease, Program, Snapshot};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

const SERVICES: &str = "kube-proxy";

#[derive(Debug)]
struct Plane {
    nft: Nft,
    log: DenialLog,
}

#[derive(Debug)]
pub struct Cluster {
    pub sandbox: Sandbox,
    planes: BTreeMap<Arc<str>, Plane>,
    /// The time that was told last, and when.
    told: (Instant, std::time::Instant),
}

/// What the cluster is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub snapshot: &'a Snapshot,
    pub program: &'a Program,
    pub outside: &'a [IpAddr],
    pub cut: CutEstablished,
}

impl Cluster {
    /// The NFLOG group every node tells of denials in.
    pub const LOG_GROUP: u16 = 53;

    pub fn build(wanted: &Wanted<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Self, Error> {
        let sandbox = Sandbox::build(wanted.snapshot, wanted.outside, progress)?;
        let mut cluster =
            Self { sandbox, planes: BTreeMap::new(), told: (Instant::default(), std::time::Instant::now()) };
        cluster.enforce(wanted)?;
        Ok(cluster)
    }

    /// Goes on to another state; connections that it forbids are cut.
    pub fn update(&mut self, wanted: &Wanted<'_>) -> Result<(), Error> {
        self.sandbox.update(wanted.snapshot, wanted.outside)?;
        self.planes.retain(|name, _| self.sandbox.node(name).is_some());
        self.enforce(wanted).map(drop)
    }

    /// Goes on to another state, or stays, with new agents: each finds the table
    /// the last one left. How many operations each took to make it right.
    pub fn restart(&mut self, wanted: &Wanted<'_>) -> Result<BTreeMap<Arc<str>, usize>, Error> {
        self.planes.clear();
        self.sandbox.update(wanted.snapshot, wanted.outside)?;
        self.enforce(wanted)
    }

    /// How many operations each node's table took.
    fn enforce(&mut self, wanted: &Wanted<'_>) -> Result<BTreeMap<Arc<str>, usize>, Error> {
        let mut operations = BTreeMap::new();
        // Whoever changes the cluster tells no time, and meanwhile leases have grown older.
        let now = self.told.0 + self.told.1.elapsed();
        let failed = |node: &Arc<str>, source| Error::Enforce { node: node.to_string(), source };
        for (name, namespace) in self.sandbox.nodes() {
            let nat = services::table(wanted.snapshot, self.sandbox.topology(), name);
            namespace.enter(|| put_table(SERVICES, &nat))?.map_err(|source| failed(name, source))?;
            if !self.planes.contains_key(name) {
                let node = wanted.snapshot.node_named(name);
                let plane = namespace.enter(|| open_plane(node))?.map_err(|source| failed(name, source))?;
                self.planes.insert(name.clone(), plane);
            }
            let Some(Plane { nft, .. }) = self.planes.get_mut(name) else { continue };
            nft.settings_mut().cut = wanted.cut;
            nft.settings_mut().scope.node = wanted.snapshot.node_named(name);
            let applied = nft.replace(wanted.program, now).map_err(|source| failed(name, source))?;
            if applied.narrows {
                nft.cut(wanted.program, now).map_err(|source| failed(name, source))?;
            }
            operations.insert(name.clone(), applied.operations);
        }
        Ok(operations)
    }

    /// Opens addresses on every node.
    pub fn grant(&mut self, leases: &[Lease], now: Instant) -> Result<(), Error> {
        self.told = (now, std::time::Instant::now());
        for (name, plane) in &mut self.planes {
            let failed = |source| Error::Enforce { node: name.to_string(), source };
            plane.nft.grant(leases, now).map_err(failed)?;
        }
        Ok(())
    }

    /// What has been denied since this was last asked.
    pub fn denials(&mut self) -> Result<Vec<Denied>, Error> {
        let mut denials = Vec::new();
        for plane in self.planes.values_mut() {
            denials.extend(plane.log.drain().map_err(Error::DenialLog)?);
        }
        Ok(denials)
    }

    /// How often each rule of a policy has matched, on all nodes.
    pub fn counts(&mut self) -> Result<BTreeMap<String, Count>, Error> {
        let mut all: BTreeMap<String, Count> = BTreeMap::new();
        for (name, plane) in &mut self.planes {
            let failed = |source| Error::Enforce { node: name.to_string(), source };
            for (label, count) in plane.nft.counts().map_err(failed)? {
                let sum = all.entry(label).or_default();
                *sum = Count { packets: sum.packets + count.packets, bytes: sum.bytes + count.bytes };
            }
        }
        Ok(all)
    }

    /// The table of a node, as it was made.
    pub fn table(&self, node: &str) -> Option<&namewall_dataplane::nft::table::Table> {
        self.planes.get(node)?.nft.table()
    }
}

/// A node that nobody described judges all pods: they are all on it.
fn open_plane(node: Option<namewall_policy::model::NodeId>) -> Result<Plane, NftError> {
    let scope = Scope { node, log_group: Cluster::LOG_GROUP, dns: None };
    let nft = Nft::open(Settings { scope, ..Settings::default() })?;
    let log = DenialLog::open(Cluster::LOG_GROUP).map_err(NftError::Socket)?;
    Ok(Plane { nft, log })
}
