//! Taking namewall out of the kernel.

use super::batch::Batch;
use super::error::NftError;
use super::inside::CLOSED_TABLE;
use super::kernel::open_socket;
use super::owner;
use super::session::Session;
use super::table::{TableFamily, TableRef};
use crate::netlink::{PodSockets, Socket};
use std::time::Duration;

/// Removes our tables of this name and all that is in them. False if there was none.
///
/// While a process owns a table, this waits for its release for as long as `patience`, and calls `waits` once with
/// the reason.
pub fn uninstall(table: &str, patience: Duration, waits: &mut dyn FnMut(&NftError)) -> Result<bool, NftError> {
    remove(&mut open_socket()?, table, patience, waits)
}

/// The same inside a pod's network namespace, with what closes second interfaces until an agent comes.
pub fn uninstall_inside(sockets: &mut PodSockets, table: &str, patience: Duration) -> Result<bool, NftError> {
    let was_there = remove(&mut sockets.netfilter, table, patience, &mut |_| {})?;
    let was_closed = remove(&mut sockets.netfilter, CLOSED_TABLE, patience, &mut |_| {})?;
    Ok(was_there || was_closed)
}

pub(super) fn remove(
    socket: &mut Socket,
    table: &str,
    patience: Duration,
    waits: &mut dyn FnMut(&NftError),
) -> Result<bool, NftError> {
    let mut found = false;
    for family in [TableFamily::Inet, TableFamily::Netdev, TableFamily::Bridge] {
        let mut session = Session { socket: &mut *socket, table: TableRef { family, name: table } };
        if !session.exists()? {
            continue;
        }
        found = true;
        owner::retry_while_owned(patience, waits, || {
            let mut batch = Batch::new(session.table);
            batch.delete_table();
            session.commit(batch)
        })?;
    }
    Ok(found)
}
