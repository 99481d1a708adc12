//! The owner of a table: the netlink socket that may change it, and the process
//! that holds that socket.
//!
//! The kernel releases a table when the last file descriptor of the socket is
//! closed. That may be a moment after the process that opened it has ended or
//! dropped it: a killed process closes its files on its way out, and a child
//! between fork and exec has a copy of each. So a change that meets an owner is
//! tried again for a while.

use super::error::NftError;
use super::read;
use super::table::TableRef;
use crate::netlink::{self, Socket};
use nix::errno::Errno;
use std::fmt;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(25);
/// `NETLINK_NETFILTER`, as /proc/net/netlink has it.
const NETFILTER: &str = "12";

/// Who may still hold a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The address of the owning socket. The kernel gives the first socket of a process the process's id.
    port: u32,
    /// The processes that have it open, as far as this one can see them.
    processes: Vec<(u32, String)>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return write!(
                f,
                "netlink port {}, of a process that cannot be seen here: it may be in a container",
                self.port
            );
        }
        let names: Vec<String> = self.processes.iter().map(|(id, name)| format!("{name} with PID {id}")).collect();
        f.write_str(&names.join(", "))
    }
}

impl Owner {
    fn of(port: u32) -> Self {
        // Not /proc/net: that is the network namespace of the first thread.
        let sockets = fs::read_to_string("/proc/thread-self/net/netlink").unwrap_or_default();
        let inode = sockets.lines().find_map(|line| inode_of(line, port));
        let mut processes = inode.map(processes_with).unwrap_or_default();
        processes.sort_unstable();
        Self { port, processes }
    }
}

/// The inode of the netfilter socket with this port, from a line of /proc/net/netlink.
fn inode_of(line: &str, port: u32) -> Option<&str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, protocol, found, .., inode] = fields[..] else { return None };
    (protocol == NETFILTER && found.parse() == Ok(port)).then_some(inode)
}

fn processes_with(inode: &str) -> Vec<(u32, String)> {
    let socket = format!("socket:[{inode}]");
    let has_it = |process: &Path| {
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target.as_os_str() == socket.as_str())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = processes.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = || fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        has_it(&entry.path()).then(|| (id, name().trim().to_owned()))
    });
    found.collect()
}

/// Why the kernel refused a change with EPERM, which it says to both who has no right and who is not the owner.
pub(super) fn forbidden(socket: &mut Socket, table: TableRef<'_>) -> NftError {
    match read::table_owner(socket, table) {
        Ok(Some(port)) => NftError::Owned { table: table.to_string(), owner: Owner::of(port) },
        _ => NftError::Rights,
    }
}

/// A refusal of a change to a table.
pub(super) fn refusal(socket: &mut Socket, table: TableRef<'_>, source: netlink::Error) -> NftError {
    match source.errno() {
        Some(Errno::EPERM) => forbidden(socket, table),
        _ => NftError::Rejected { table: table.to_string(), source },
    }
}

/// Repeats a change while the table has another owner, for as long as `patience`. `waits` is called before the
/// first repetition.
pub(super) fn retry_while_owned<T>(
    patience: Duration,
    waits: &mut dyn FnMut(&NftError),
    mut change: impl FnMut() -> Result<T, NftError>,
) -> Result<T, NftError> {
    let began = Instant::now();
    let mut refusals = 0;
    loop {
        let error = match change() {
            Err(error @ NftError::Owned { .. }) if began.elapsed() < patience => error,
            // Or the owner was released between the refusal and the look for it.
            Err(error @ NftError::Rights) if refusals == 0 => error,
            done => return done,
        };
        if refusals == 0 && matches!(error, NftError::Owned { .. }) {
            waits(&error);
        }
        refusals += 1;
        sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKETS: &str = "\
sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
00000000d1c5cfd4 0   4711       00000000 0        0        0     2        0        1001
00000000a9b1c5d2 12  4711       00000000 0        0        0     2        0        1002
00000000b0c1d5e2 12  3221225470 00000000 0        0        0     2        0        1003
";

    fn owned() -> NftError {
        NftError::Owned { table: "namewall".to_owned(), owner: Owner { port: 1, processes: Vec::new() } }
    }

    #[test]
    fn the_owning_socket_is_found_by_its_protocol_and_port() {
        let inode = |port| SOCKETS.lines().find_map(|line| inode_of(line, port));
        assert_eq!((inode(4711), inode(3_221_225_470), inode(1)), (Some("1002"), Some("1003"), None));
    }

    #[test]
    fn the_error_says_who_may_still_hold_the_table() {
        let seen = Owner { port: 4711, processes: vec![(4711, "namewall".to_owned()), (4712, "sh".to_owned())] };
        assert_eq!(seen.to_string(), "namewall with PID 4711, sh with PID 4712");
        assert!(owned().to_string().contains("netlink port 1"), "{}", owned());
    }

    #[test]
    fn a_change_is_repeated_until_the_owner_is_released() {
        let (mut left, mut told) = (3, 0);
        let done = retry_while_owned(Duration::MAX, &mut |_| told += 1, || {
            left -= 1;
            if left == 0 { Ok(()) } else { Err(owned()) }
        });
        assert!(done.is_ok());
        assert_eq!((left, told), (0, 1));
    }

    #[test]
    fn without_patience_an_owner_is_an_error_at_once() {
        let mut tried = 0;
        let done: Result<(), _> = retry_while_owned(Duration::ZERO, &mut |_| unreachable!("it does not wait"), || {
            tried += 1;
            Err(owned())
        });
        assert!(matches!(done, Err(NftError::Owned { .. })));
        assert_eq!(tried, 1);
    }

    #[test]
    fn an_owner_that_is_gone_when_looked_for_is_no_lack_of_rights() {
        let mut tried = 0;
        let mut attempt = |succeeds: bool| {
            tried += 1;
            if succeeds && tried > 1 { Ok(()) } else { Err(NftError::Rights) }
        };
        assert!(retry_while_owned(Duration::ZERO, &mut |_| {}, || attempt(true)).is_ok());
        assert!(retry_while_owned(Duration::ZERO, &mut |_| {}, || attempt(false)).is_err());
    }
}
