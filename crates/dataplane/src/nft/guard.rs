//! The guard's tables in the kernel.

use super::batch::Batch;
use super::change::Change;
use super::error::NftError;
use super::kernel::Nft;
use super::read;
use super::session::{Check, NOTE, Session};
use super::table::{Table, TableFamily, TableRef};
use super::wire::table::{OWNER, PERSIST};
use crate::guard::{self, Guard, GuardDrops, Guarded, PodInterface};
use crate::netlink::Socket;
use crate::netlink::bridges::{Bridges, filter_bridges};
use crate::render::TUNNELS_REFUSE;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::time::Duration;

/// A table that is kept like a value.
#[derive(Debug)]
pub(super) struct Kept {
    family: TableFamily,
    /// What the kernel has; None until it was read.
    pub(super) known: Option<Table>,
}

#[derive(Debug)]
pub(super) struct GuardTables {
    frames: Kept,
    groups: Kept,
    /// The interfaces that were to be guarded.
    ports: BTreeSet<u32>,
}

impl Default for GuardTables {
    fn default() -> Self {
        Self { frames: Kept::new(TableFamily::Netdev), groups: Kept::new(TableFamily::Bridge), ports: BTreeSet::new() }
    }
}

/// Where a table is, and how long to wait for its owner.
pub(super) struct Access<'a> {
    pub(super) socket: &'a mut Socket,
    pub(super) name: &'a str,
    pub(super) patience: Duration,
}

impl Kept {
    pub(super) fn new(family: TableFamily) -> Self {
        Self { family, known: None }
    }

    /// Makes the kernel's table like this one, in one transaction; how many operations that took.
    pub(super) fn replace(&mut self, access: &mut Access<'_>, table: Table) -> Result<usize, NftError> {
        let patience = access.patience;
        let mut session = Session { socket: access.socket, table: TableRef { family: self.family, name: access.name } };
        let mut batch = Batch::new(session.table);
        let nothing = Table::default();
        let claimed;
        let change = match &self.known {
            Some(known) if Change::is_possible(known, &table) => Change::between(known, &table),
            Some(_) => {
                batch.delete_table();
                batch.add_table(OWNER | PERSIST, NOTE);
                Change::between(&nothing, &table)
            }
            None => {
                claimed = session.claim(patience)?;
                match &claimed {
                    Some(live) if Change::is_possible(live, &table) => Change::between(live, &table),
                    // Hooks or sets of another form, or an interface that is gone: a new table in place of the old.
                    found => {
                        if found.is_some() {
                            batch.delete_table();
                        }
                        batch.add_table(OWNER | PERSIST, NOTE);
                        Change::between(&nothing, &table)
                    }
                }
            }
        };
        change.write(&mut batch);
        let operations = batch.operations();
        let done = session.commit(batch).and_then(|()| session.verify(&Check::of(&change), &table));
        match &done {
            Ok(()) => self.known = Some(table),
            Err(error) if error.leaves_all_as_it_was() => {}
            Err(_) => self.known = None,
        }
        done.map(|()| operations)
    }
}

/// What a kernel lacks, for users.
const NO_FRAMES: &str = "the kernel has no hook for frames that come in by an interface (CONFIG_NETFILTER_INGRESS, nftables' \
                         netdev family), or lacks an expression that its rules need: what a pod sends is told by its \
                         address alone";
const NO_BRIDGES: &str = "the kernel has no nftables tables for bridges (CONFIG_NF_TABLES_BRIDGE): pods with ingress policies \
                          hear no broadcast and multicast of their own node either";
const NO_GROUPS: &str = "the kernel has no nftables tables for bridges (CONFIG_NF_TABLES_BRIDGE) and no hook for frames that \
                         leave by an interface: pods with ingress policies hear broadcast and multicast of other pods";

impl Nft {
    pub(super) fn guard_interfaces(&mut self, guard: &Guard<'_>) -> Result<Guarded, NftError> {
        // Whatever becomes of the tables: without it policies see nothing of what goes from port to port.
        self.guard.ports = guard.interfaces.iter().map(|interface| interface.index).collect();
        let bridges = self.filter_bridges_of_pods();
        let hooks = self.features.guard;
        // A kernel without tables for bridges may have a hook where frames leave.
        let groups_at_ports = !hooks.bridges && hooks.frames && self.features.egress_hook.is_there;
        let lacking = [
            (!hooks.frames, NO_FRAMES),
            (groups_at_ports, NO_BRIDGES),
            (!hooks.bridges && !groups_at_ports, NO_GROUPS),
        ];
        let lacking = lacking.into_iter().filter_map(|(lacks, what)| lacks.then_some(what)).collect();
        let render = |guard: &Guard<'_>| {
            let mut table = guard::frames(guard);
            if groups_at_ports {
                guard::add_groups(&mut table, guard.interfaces, guard.own);
            }
            table
        };
        let (tables, mut access) = self.guard_access();
        let mut done = Guarded { lacking, by_address_alone: !hooks.frames, ..Guarded::default() };
        let mut there = guard.interfaces.to_vec();
        if hooks.frames {
            done.operations = match tables.frames.replace(&mut access, render(guard)) {
                Err(error) if error.is_absence() => {
                    // One is gone: which, only a try tells. It may also be that the kernel took chains away with their
                    // interfaces, which the first try has found out.
                    done.missing = missing(&mut access, &there)?;
                    there.retain(|interface| !done.missing.contains(&interface.name));
                    tables.frames.replace(&mut access, render(&Guard { interfaces: &there, ..*guard }))?
                }
                result => result?,
            };
        }
        if hooks.bridges {
            done.operations += tables.groups.replace(&mut access, guard::groups(&there, guard.own))?;
        }
        done.bridges = bridges?;
        Ok(done)
    }

    /// Makes the frames of the bridges that guarded interfaces are ports of pass the firewall. Others may have changed
    /// that since.
    pub(super) fn filter_bridges_of_pods(&mut self) -> Result<Bridges, NftError> {
        filter_bridges(&mut self.links, &self.guard.ports).map_err(NftError::Bridges)
    }

    /// What the last rules of the chains that drop have counted.
    pub(super) fn read_guard_drops(&mut self) -> Result<GuardDrops, NftError> {
        let mut drops = GuardDrops::default();
        let groups_in = if self.features.guard.bridges { TableFamily::Bridge } else { TableFamily::Netdev };
        let chains = [
            (TableFamily::Netdev, guard::WRONG_SOURCE, &mut drops.wrong_source),
            (TableFamily::Netdev, guard::SOURCE_ROUTE, &mut drops.source_routes),
            (groups_in, guard::FOR_A_GROUP, &mut drops.groups),
            (TableFamily::Inet, TUNNELS_REFUSE, &mut drops.tunnels),
        ];
        for (family, chain, count) in chains {
            let table = TableRef { family, name: &self.settings.table };
            let live = match read::read_chain_rules(&mut self.socket, table, &[chain]) {
                Err(error) if error.errno() == Some(Errno::ENOENT) => continue,
                read => read.map_err(|source| NftError::Read { table: table.to_string(), source })?,
            };
            *count = live
                .chains
                .values()
                .flat_map(|chain| &chain.rules)
                .filter_map(|rule| rule.count)
                .next_back()
                .unwrap_or_default();
        }
        Ok(drops)
    }

    fn guard_access(&mut self) -> (&mut GuardTables, Access<'_>) {
        let Nft { guard, socket, settings, .. } = self;
        (guard, Access { socket, name: &settings.table, patience: settings.patience })
    }
}

/// The interfaces that no chain can be hooked to. Each is tried in a table of its own, which goes in the same
/// transaction.
fn missing(access: &mut Access<'_>, interfaces: &[PodInterface]) -> Result<Vec<String>, NftError> {
    let name = format!("{}-try", access.name);
    let mut missing = Vec::new();
    for interface in interfaces {
        let mut session =
            Session { socket: access.socket, table: TableRef { family: TableFamily::Netdev, name: &name } };
        let alone = Guard { interfaces: std::slice::from_ref(interface), own: &[], log_group: 0 };
        let (table, nothing) = (guard::frames(&alone), Table::default());
        let mut batch = Batch::new(session.table);
        batch.add_table(OWNER, NOTE);
        Change::between(&nothing, &table).write(&mut batch);
        batch.delete_table();
        match session.commit(batch) {
            Ok(()) => {}
            Err(error) if error.is_absence() => missing.push(interface.name.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

impl NftError {
    /// True if the kernel refused since something that is named does not exist.
    fn is_absence(&self) -> bool {
        let absent = [Errno::ENOENT, Errno::ENODEV];
        matches!(self, Self::Rejected { source, .. } if source.errno().is_some_and(|errno| absent.contains(&errno)))
    }
}

#[cfg(all(test, feature = "system"))]
mod system_tests;
