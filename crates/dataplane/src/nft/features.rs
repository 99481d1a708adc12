//! What a kernel must be able to do, tried out before anything is built on it.
//! An older one takes our messages and does something else: there a lease that
//! is renewed ends all the same. A version's number says little of what a
//! distribution has put into its kernel: it is only shown in the error.

use super::batch::Batch;
use super::change::Change;
use super::error::{NftError, refused_at_all};
use super::read;
use super::rule::{Action, Rule, TCP, Test};
use super::set::{self, Element, Field, Holds, Key, Lifetime, Passing, SetSpec, Transient, Version};
use super::table::{Chain, Table, TableFamily, TableRef};
use super::wire::table::{OWNER, PERSIST};
use crate::guard::{self, PodInterface};
use crate::netlink::{self, Family, Socket};
use nix::errno::Errno;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::Ipv4Addr;
use std::time::Duration;

/// What a kernel is too old for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lacking {
    /// Linux 6.9 has them.
    PersistentTables,
    /// Linux 6.12 has them.
    RenewedTimeouts,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PersistentTables => "keep a table whose owner has ended, so that all would be open then",
            Self::RenewedTimeouts => "renew the timeout of an element, so that names would close while they are in use",
        })
    }
}

/// What came of trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tried {
    /// What the kernel said to a table that is owned and persistent.
    persistent: Result<(), Errno>,
    /// How long an element has left that had SHORT and was given LONG.
    left: Option<Duration>,
}

/// What the table says of itself while it is there.
const ABOUT: &str = "tries what the kernel can do";
const TRIED: &str = "tried";
const SHORT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(3600);

impl Tried {
    fn lacking(self) -> Option<Lacking> {
        if self.persistent.is_err() {
            return Some(Lacking::PersistentTables);
        }
        self.left.is_none_or(|left| left <= SHORT).then_some(Lacking::RenewedTimeouts)
    }
}

/// What a kernel has that we can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Features {
    /// It answers a TCP packet with a reset. Without it the packets of connections that were cut are dropped.
    pub(super) resets: bool,
    pub(super) egress_hook: EgressHook,
}

/// What a kernel has for frames that an interface sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EgressHook {
    /// Linux 5.16 has it, if it is built in.
    pub(super) is_there: bool,
    /// A rule can tell what the kernel has routed from what a packet socket sends.
    pub(super) tells_routed: bool,
}

/// Fails where the kernel cannot do what we need. Nothing of what is tried stays.
pub(super) fn check() -> Result<Features, NftError> {
    let mut socket = Socket::open(Family::NetlinkNetFilter).map_err(NftError::Socket)?;
    // Nobody else has a table of such a name.
    let name = format!("namewall-try-{:016x}", RandomState::new().build_hasher().finish());
    let persistent = try_table(&mut socket, &name, OWNER | PERSIST)?;
    let left = match persistent {
        Ok(()) => try_renewal(&mut socket, &name).map_err(refused_at_all)?,
        Err(_) => None,
    };
    let lacking = Tried { persistent, left }.lacking();
    if let Some(lacking) = lacking {
        return Err(NftError::TooOld { lacking, release: release() });
    }
    let resets = try_rule(&mut socket, &name, Action::Reset)?;
    Ok(Features { resets, egress_hook: try_egress(&mut socket, &name)? })
}

/// Whether the kernel takes the table for frames that are sent, with and without a test for routes. It is tried at the
/// loopback interface, and goes in the transaction that it comes in.
fn try_egress(socket: &mut Socket, name: &str) -> Result<EgressHook, NftError> {
    let mut takes = |tells_routed: bool| {
        let interface = PodInterface {
            name: "lo".to_owned(),
            index: 1,
            hardware: None,
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            extra: Vec::new(),
            is_shared: false,
            hears_groups: true,
        };
        let (table, nothing) = (guard::sent_frames(&[interface], 0, tells_routed), Table::default());
        let mut batch = Batch::new(TableRef { family: TableFamily::Netdev, name });
        batch.add_table(OWNER, ABOUT);
        Change::between(&nothing, &table).write(&mut batch);
        batch.delete_table();
        match socket.commit(&batch.finish()) {
            Ok(()) => Ok(true),
            Err(error) => match error.errno() {
                Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(false),
                _ => Err(refused_at_all(error)),
            },
        }
    };
    let tells_routed = takes(true)?;
    Ok(EgressHook { is_there: tells_routed || takes(false)?, tells_routed })
}

/// Whether the kernel takes a rule with this action. It goes in the transaction that it comes in.
fn try_rule(socket: &mut Socket, name: &str, action: Action) -> Result<bool, NftError> {
    let mut batch = Batch::new(name);
    batch.add_table(OWNER, ABOUT);
    let rules = vec![Rule::new([Test::Protocol(TCP)], action)];
    let chain = Chain { hook: None, rules, comment: None };
    batch.add_chain(TRIED, &chain);
    batch.add_rules(TRIED, &chain);
    batch.delete_table();
    match socket.commit(&batch.finish()) {
        Ok(()) => Ok(true),
        Err(error) => match error.errno() {
            // The kernel has no such expression, or not in this family of tables.
            Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(false),
            _ => Err(refused_at_all(error)),
        },
    }
}

/// What the kernel says to a table with these flags. It goes in the transaction that it comes in.
fn try_table(socket: &mut Socket, name: &str, flags: u32) -> Result<Result<(), Errno>, NftError> {
    let mut batch = Batch::new(name);
    batch.add_table(flags, ABOUT);
    batch.delete_table();
    match socket.commit(&batch.finish()) {
        Ok(()) => Ok(Ok(())),
        Err(error) => match error.errno() {
            Some(errno @ (Errno::EOPNOTSUPP | Errno::EINVAL)) => Ok(Err(errno)),
            _ => Err(refused_at_all(error)),
        },
    }
}

/// How long a lease has left after it was renewed. Should we be killed before the end, the table goes with its owner.
fn try_renewal(socket: &mut Socket, name: &str) -> Result<Option<Duration>, netlink::Error> {
    let fields = [Field::Number, Field::Number, Field::Address(Version::V4)];
    let key = Key::default().number(0).number(0).address(Ipv4Addr::UNSPECIFIED.into());
    let element = |life| Transient { element: Element::key(key), lifetime: Lifetime(life), note: None };
    let lease = |life| -> Passing { [vec![element(life)], Vec::new()] };
    let mut first = Batch::new(name);
    first.add_table(OWNER, ABOUT);
    first.add_set(&SetSpec::new(set::LEASE[Version::V4], &fields, Holds::Keys).timeout());
    first.add_passing(set::LEASE, &lease(SHORT));
    socket.commit(&first.finish())?;
    let mut renewal = Batch::new(name);
    renewal.add_passing(set::LEASE, &lease(LONG));
    socket.commit(&renewal.finish())?;
    let left = read::read_leases(name)?;
    let mut last = Batch::new(name);
    last.delete_table();
    socket.commit(&last.finish())?;
    Ok(left.first().map(|found| found.left))
}

fn release() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    told.map_or_else(|_| "of unknown version".to_owned(), |release| release.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_lacks_something_is_told_by_what_it_does() {
        let (persistent, left) = (Ok(()), Some(LONG - Duration::from_millis(3)));
        assert_eq!(Tried { persistent, left }.lacking(), None);
        let refused = Err(Errno::EOPNOTSUPP);
        assert_eq!(Tried { persistent: refused, left: None }.lacking(), Some(Lacking::PersistentTables), "before 6.9");
        let ignored = Some(SHORT - Duration::from_millis(3));
        assert_eq!(Tried { persistent, left: ignored }.lacking(), Some(Lacking::RenewedTimeouts), "before 6.12");
        assert_eq!(Tried { persistent, left: None }.lacking(), Some(Lacking::RenewedTimeouts));
    }

    #[test]
    fn what_is_missing_and_what_to_do_are_told() {
        let error = NftError::TooOld { lacking: Lacking::RenewedTimeouts, release: "6.1.0-18-amd64".to_owned() };
        let text = error.to_string();
        for part in ["6.1.0-18-amd64", "renew the timeout", "6.12"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[cfg(feature = "system")]
    #[test]
    fn a_flag_that_the_kernel_does_not_know_is_no_table() {
        crate::nft::isolated(|| {
            const UNKNOWN: u32 = 1 << 20;
            let mut socket = Socket::open(Family::NetlinkNetFilter).unwrap();
            assert_eq!(try_table(&mut socket, "tried", OWNER | UNKNOWN).unwrap(), Err(Errno::EOPNOTSUPP));
            assert_eq!(read::table_note(&mut socket, "tried").unwrap(), None);
            assert_eq!(try_table(&mut socket, "tried", OWNER | PERSIST).unwrap(), Ok(()));
            assert_eq!(read::table_note(&mut socket, "tried").unwrap(), None);
            let left = try_renewal(&mut socket, "tried").unwrap();
            assert!(left.is_some_and(|left| left > SHORT), "{left:?}");
            assert_eq!(read::table_note(&mut socket, "tried").unwrap(), None);
        });
    }

    #[cfg(feature = "system")]
    #[test]
    fn a_rule_that_the_kernel_does_not_take_is_told_and_leaves_nothing() {
        crate::nft::isolated(|| {
            let mut socket = Socket::open(Family::NetlinkNetFilter).unwrap();
            assert!(try_rule(&mut socket, "tried", Action::Reset).unwrap());
            let nowhere = Action::Jump("a chain that is not there".to_owned());
            assert!(!try_rule(&mut socket, "tried", nowhere).unwrap());
            assert_eq!(read::table_note(&mut socket, "tried").unwrap(), None);
        });
    }
}
