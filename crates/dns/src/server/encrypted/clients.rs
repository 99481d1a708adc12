//! Which client has how many encrypted connections. If there are too many in all, the client that has most gives way:
//! of its connections the one that was used least recently ends.

use super::counters::EncryptedCounters;
use super::slot::Activity;
use crate::server::lock;
use crate::server::shares::Shares;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::task::AbortHandle;

/// How many connections there may be, in all and of one client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MostConnections {
    pub(super) all: usize,
    pub(super) of_client: u32,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    connections: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
    shares: Shares,
}

#[derive(Debug)]
struct Connection {
    activity: Arc<Activity>,
    task: Option<AbortHandle>,
}

/// A connection that wants a place.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) client: IpAddr,
    pub(super) activity: Arc<Activity>,
}

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    clients: Arc<Clients>,
    slot: u32,
    generation: u32,
}

impl Clients {
    /// A place for one more connection of a client, if it may have one.
    pub(super) fn enter(
        self: &Arc<Self>,
        Newcomer { client, activity }: Newcomer,
        most: MostConnections,
        counters: &EncryptedCounters,
    ) -> Option<Place> {
        let (mut table, mut gives_way) = (lock(&self.table), None);
        let own = table.shares.count(client);
        if own >= most.of_client {
            return None;
        }
        if table.len() >= most.all {
            let (heaviest, _) = table.shares.heaviest().filter(|(_, count)| *count > own + 1)?;
            let slot = table.least_used(heaviest)?;
            counters.evicted.add();
            gives_way = table.remove(slot);
        }
        let slot = table.insert(Connection { activity, task: None });
        table.shares.enter(client, slot);
        let generation = table.connections[slot as usize].0;
        // A task that ends frees its place, for which it needs the table.
        drop(table);
        gives_way.iter().for_each(AbortHandle::abort);
        Some(Place { clients: self.clone(), slot, generation })
    }

    /// Ends all connections at once.
    pub(super) fn end_all(&self) {
        let mut table = lock(&self.table);
        let tasks: Vec<AbortHandle> =
            (0..table.connections.len() as u32).filter_map(|slot| table.remove(slot)).collect();
        drop(table);
        tasks.iter().for_each(AbortHandle::abort);
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.table).len()
    }
}

impl Table {
    fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    fn insert(&mut self, connection: Connection) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push((0, None));
            self.connections.len() as u32 - 1
        });
        self.connections[slot as usize].1 = Some(connection);
        slot
    }

    fn least_used(&self, client: IpAddr) -> Option<u32> {
        let last_used = |slot: &u32| self.connections[*slot as usize].1.as_ref().map(|one| one.activity.last_used());
        self.shares.places_of(client).min_by_key(last_used)
    }

    /// Frees a place. Returns the task of its connection.
    fn remove(&mut self, slot: u32) -> Option<AbortHandle> {
        let (generation, connection) = &mut self.connections[slot as usize];
        let connection = connection.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(slot);
        self.shares.leave(slot);
        connection.task
    }
}

impl Place {
    /// The task that has the connection: it is ended if the connection has to give way.
    pub(super) fn belongs_to(&self, task: AbortHandle) {
        let mut table = lock(&self.clients.table);
        if let (generation, Some(connection)) = &mut table.connections[self.slot as usize]
            && *generation == self.generation
        {
            connection.task = Some(task);
            return;
        }
        drop(table);
        // It had to give way already.
        task.abort();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = lock(&self.clients.table);
        if table.connections[self.slot as usize].0 == self.generation {
            let _own = table.remove(self.slot);
        }
    }
}
