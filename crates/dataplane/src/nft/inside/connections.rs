//! Connections over second interfaces: which there are, and cutting them (S3.4).

use super::{PodTables, lock};
use crate::conntrack::{self, Connection, Conntrack};
use crate::inside::{PodConnections, PodDenials, SecondConnection};
use crate::netlink::{PodSockets, SecondLinks, Socket, Way};
use crate::nflog::Told;
use crate::nft::batch::Batch;
use crate::nft::error::NftError;
use crate::nft::kernel::{CUT_AT_ONCE, Nft};
use crate::nft::read::{SetRef, read_keys_at};
use crate::nft::session::Session;
use crate::nft::set::{self, Version};
use crate::remembered::{Ends, Remembered};
use crate::{Cut, ListConnections};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// So many cut TCP connections are remembered for each pod.
pub(super) const REMEMBERED: usize = 5_000;
/// So many lines about denials are read at once: a pod that causes more has to wait for the next look.
const LINES_AT_ONCE: usize = 200;

/// Lists connections of the node, and of pods with second interfaces.
#[derive(Debug)]
pub struct NftConnections {
    own: Conntrack,
    pods: Vec<PodHandle>,
}

#[derive(Debug)]
struct PodHandle {
    id: String,
    pod: String,
    addresses: Vec<IpAddr>,
    links: SecondLinks,
    sockets: Arc<Mutex<PodSockets>>,
}

impl ListConnections for NftConnections {
    type Error = NftError;

    fn list(&mut self) -> Result<Vec<Connection>, NftError> {
        self.own.list().map_err(NftError::Connections)
    }

    fn list_inside(&mut self) -> Vec<PodConnections<NftError>> {
        let list = |handle: &PodHandle| PodConnections {
            id: handle.id.clone(),
            pod: handle.pod.clone(),
            addresses: handle.addresses.clone(),
            connections: handle.list(),
        };
        self.pods.iter().map(list).collect()
    }
}

impl PodHandle {
    fn list(&self) -> Result<Vec<SecondConnection>, NftError> {
        let conntrack = lock(&self.sockets).conntrack().map_err(NftError::Connections)?;
        let all = conntrack.lock().unwrap_or_else(PoisonError::into_inner).list().map_err(NftError::Connections)?;
        let mut ways: HashMap<(Option<IpAddr>, IpAddr), Way> = HashMap::new();
        let mut found = Vec::new();
        for connection in all {
            let direction = self.links.direction(&connection, |from, to| match ways.get(&(from, to)) {
                Some(way) => Ok(*way),
                None => {
                    let way = lock(&self.sockets).way(from, to).map_err(NftError::Connections)?;
                    ways.insert((from, to), way);
                    Ok(way)
                }
            })?;
            found.extend(direction.map(|direction| SecondConnection { connection, direction }));
        }
        Ok(found)
    }
}

impl Nft {
    pub(crate) fn all_connections(&self) -> Result<NftConnections, NftError> {
        let with_links = self.inside.iter().filter_map(|(id, pod)| {
            let links = pod.links.clone().filter(|links| !links.second.is_empty())?;
            let (pod, addresses, sockets) = (pod.pod.clone(), pod.addresses.clone(), pod.sockets.clone());
            Some(PodHandle { id: id.clone(), pod, addresses, links, sockets })
        });
        let pods = with_links.collect();
        Ok(NftConnections { own: Conntrack::open().map_err(NftError::Connections)?, pods })
    }

    /// One that cannot be cut does not save the others; the first failure is told when all have been tried.
    pub(crate) fn cut_all_inside(&mut self, id: &str, connections: &[&Connection]) -> Result<Cut, NftError> {
        let Some(pod) = self.inside.get_mut(id) else { return Ok(Cut::default()) };
        let (mut cut, mut failed) = (Cut::default(), None);
        let sockets = pod.sockets.clone();
        let socket = &mut lock(&sockets).netfilter;
        for some in connections.chunks(CUT_AT_ONCE) {
            // Before they go: no packet may come between.
            match pod.remember(socket, &self.settings.table, some) {
                Ok(forgotten) => cut.forgotten += forgotten,
                Err(error) => failed = failed.or(Some(error)),
            }
            for connection in some {
                match conntrack::delete(socket, connection) {
                    Ok(was_there) => cut.connections += usize::from(was_there),
                    Err(error) => failed = failed.or(Some(NftError::Connections(error))),
                }
            }
        }
        failed.map_or(Ok(cut), Err)
    }

    /// The denials that pods' namespaces have told of by now.
    pub(crate) fn read_denials_inside(&mut self) -> Vec<PodDenials> {
        let mut all = Vec::new();
        for pod in self.inside.values().filter(|pod| pod.unlogged.is_none()) {
            // A log that fails is bound anew with the next change.
            let told = lock(&pod.sockets).log.told(LINES_AT_ONCE).unwrap_or_default();
            if told != Told::default() {
                all.push(PodDenials { pod: pod.pod.clone(), told });
            }
        }
        all
    }
}

impl PodTables {
    /// Has the kernel answer what is still sent through these connections with a reset. Returns how many others gave
    /// way.
    fn remember(&mut self, socket: &mut Socket, table: &str, connections: &[&Connection]) -> Result<usize, NftError> {
        if !self.rules.as_ref().is_some_and(|rules| rules.table.sets.contains_key(set::CUT.0)) {
            return Ok(0);
        }
        let ends = connections.iter().filter_map(|connection| Ends::of(connection));
        let memory = self.remembered.remember(ends, |_| true, std::time::Instant::now());
        let mut batch = Batch::new(table);
        for version in Version::BOTH {
            batch.destroy_elements(set::CUT[version], memory.gone[version as usize].iter());
        }
        batch.add_passing(set::CUT, &memory.new);
        if batch.operations() == 0 {
            return Ok(0);
        }
        let done = Session { socket, table: table.into() }.commit(batch);
        match &done {
            Ok(()) => self.seen = super::ruleset(socket).ok(),
            Err(error) if error.leaves_all_as_it_was() => {}
            Err(_) => self.rules = None,
        }
        done.map(|()| memory.forgotten)
    }
}

/// The cut connections that an earlier process has left in a table.
pub(super) fn found_cuts(socket: &mut Socket, table: &str) -> Result<Remembered, NftError> {
    let mut remembered = Remembered::with_room(REMEMBERED);
    let mut ends = Vec::new();
    for version in Version::BOTH {
        let set = set::CUT[version];
        let keys = read_keys_at(socket, &SetRef { table, set }, usize::MAX);
        let keys = keys.map_err(|source| NftError::Read { table: table.to_owned(), source })?;
        ends.extend(keys.iter().filter_map(|key| Ends::found(key)));
    }
    remembered.adopt(ends, |_| true, std::time::Instant::now());
    Ok(remembered)
}
