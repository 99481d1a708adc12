//! Taking namewall out of the kernel.

use super::batch::Batch;
use super::error::{NftError, refused_at_all};
use super::kernel::{NOTE, open_socket};
use super::{owner, read};
use std::time::Duration;

/// Removes the table and all that is in it. False if there was none.
///
/// While a process owns the table, this waits for its release for as long as `patience`, and calls `waits` once with
/// the reason.
pub fn uninstall(table: &str, patience: Duration, waits: &mut dyn FnMut(&NftError)) -> Result<bool, NftError> {
    let mut socket = open_socket()?;
    match read::table_note(&mut socket, table).map_err(refused_at_all)? {
        None => return Ok(false),
        Some(note) if note != NOTE => return Err(NftError::Foreign(table.to_owned())),
        Some(_) => {}
    }
    owner::retry_while_owned(patience, waits, || {
        let mut batch = Batch::new(table);
        batch.delete_table();
        socket.commit(&batch.finish()).map_err(|source| owner::refusal(&mut socket, table, source))
    })?;
    Ok(true)
}
