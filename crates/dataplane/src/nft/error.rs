//! What can go wrong between us and nftables.

use super::features::Lacking;
use super::owner::Owner;
use crate::netlink;
use nix::errno::Errno;

#[derive(Debug, thiserror::Error)]
pub enum NftError {
    #[error("cannot talk to nftables")]
    Socket(#[source] netlink::Error),
    #[error("no right to change nftables; run as root, or with the capability NET_ADMIN")]
    Rights,
    #[error(
        "this kernel has no nftables, or not enough of it: load nf_tables and nf_conntrack, on Linux 6.12 or newer"
    )]
    NoNftables(#[source] netlink::Error),
    #[error("this kernel ({release}) is too old: it cannot {lacking}; nothing was changed. Use Linux 6.12 or newer")]
    TooOld { lacking: Lacking, release: String },
    #[error("there is a table {0} that namewall did not make; name another with --table, or remove it")]
    Foreign(String),
    #[error("the table {table} belongs to a namewall that is running ({owner}); stop that one first")]
    Owned { table: String, owner: Owner },
    #[error("cannot read the table {table} back")]
    Read {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("cannot read or cut connections")]
    Connections(#[source] netlink::Error),
    #[error("cannot read the bridges that pods are on, or have their frames pass the firewall")]
    Bridges(#[source] netlink::Error),
    #[error("cannot receive what the kernel logs")]
    Denials(#[source] netlink::Error),
    #[error("the kernel did not say whether it took the change to table {table}; the next change reads the table")]
    Unanswered {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("the kernel did not take the change to table {table}; nothing was changed")]
    Rejected {
        table: String,
        #[source]
        source: netlink::Error,
    },
    #[error("the kernel took the change to table {table}, but has something else: {what}")]
    Differs { table: String, what: String },
    #[error("what table {table} holds is not known; the next change reads it")]
    Unknown { table: String },
}

impl NftError {
    /// True if the kernel's table is still what we took it for. A missing or a surplus object says otherwise.
    pub(super) fn leaves_all_as_it_was(&self) -> bool {
        let drifted = [Errno::ENOENT, Errno::EEXIST, Errno::EBUSY];
        match self {
            Self::Rejected { source, .. } => source.errno().is_none_or(|errno| !drifted.contains(&errno)),
            Self::Owned { .. } | Self::Rights => true,
            _ => false,
        }
    }
}

/// An error of the first request, which tells most about the machine.
pub(super) fn refused_at_all(error: netlink::Error) -> NftError {
    match error.errno() {
        Some(Errno::EPERM | Errno::EACCES) => NftError::Rights,
        Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT) => NftError::NoNftables(error),
        _ => NftError::Socket(error),
    }
}
