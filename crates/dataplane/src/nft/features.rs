//! What a kernel must be able to do, tried out before anything is built on it.
//! An older one takes our messages and does something else: there a lease that
//! is renewed ends all the same. A version's number says little of what a
//! distribution has put into its kernel: it is only shown in the error.

use super::batch::Batch;
use super::change::Change;
use super::error::{NftError, refused_at_all};
use super::read;
use super::rule::{Action, End, Rule, TCP, Test};
use super::set::{self, Element, Field, Holds, Key, Lifetime, Passing, SetSpec, Transient, Value, Version};
use super::table::{Table, TableFamily, TableRef};
use super::wire::table::{OWNER, PERSIST};
use crate::guard::{self, Guard, PodInterface};
use crate::netlink::{self, Family, Socket};
use nix::errno::Errno;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{Ipv4Addr, Ipv6Addr};
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
    /// It takes the tables of the guard.
    pub(super) guard: GuardHooks,
    /// A map may lead to counters. Without it no look-ups are joined.
    pub(super) joins: bool,
}

/// What a kernel has for the guard of pods' interfaces. Both are options of its build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GuardHooks {
    /// Tables for the frames that come in by an interface, with all that their rules look at: extension headers and
    /// options among it. Without them only the address tells the pod.
    pub(super) frames: bool,
    /// Tables for the frames that a bridge forwards. Without them groups are kept from pods where frames leave for them.
    pub(super) bridges: bool,
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
    let joins = try_joined(&mut socket, &name)?;
    let (egress_hook, guard) = (try_egress(&mut socket, &name)?, try_guard(&mut socket, &name)?);
    Ok(Features { resets, egress_hook, guard, joins })
}

/// Whether the kernel takes the tables of the guard, at the loopback interface. Each goes in the transaction that it
/// comes in.
fn try_guard(socket: &mut Socket, name: &str) -> Result<GuardHooks, NftError> {
    // Of both kinds, so that every test of every rule is in the table.
    let (known, shared) = (at_loopback(false), at_loopback(true));
    let mut frames = true;
    for interface in [known, shared] {
        let guard = Guard { interfaces: &[interface], own: &[], log_group: 0 };
        frames &= takes_table(socket, TableRef { family: TableFamily::Netdev, name }, &guard::frames(&guard))?;
    }
    let groups = guard::groups(&[at_loopback(false)], &[]);
    let bridges = takes_table(socket, TableRef { family: TableFamily::Bridge, name }, &groups)?;
    Ok(GuardHooks { frames, bridges })
}

/// The loopback interface as if a pod of both versions of IP were behind it.
fn at_loopback(is_shared: bool) -> PodInterface {
    PodInterface {
        name: "lo".to_owned(),
        index: 1,
        hardware: None,
        addresses: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        extra: Vec::new(),
        is_shared,
        hears_groups: false,
    }
}

/// Whether the kernel takes the table for frames that are sent, with and without a test for routes. It is tried at the
/// loopback interface, and goes in the transaction that it comes in.
fn try_egress(socket: &mut Socket, name: &str) -> Result<EgressHook, NftError> {
    let mut takes = |tells_routed: bool| {
        let table = guard::sent_frames(&[at_loopback(false)], 0, tells_routed);
        takes_table(socket, TableRef { family: TableFamily::Netdev, name }, &table)
    };
    let tells_routed = takes(true)?;
    Ok(EgressHook { is_there: tells_routed || takes(false)?, tells_routed })
}

/// Whether the kernel takes a map to counters, and a rule that asks it.
fn try_joined(socket: &mut Socket, name: &str) -> Result<bool, NftError> {
    let version = Version::V4;
    let mut table = Table::default();
    table.counters.insert(TRIED.to_owned(), ABOUT.to_owned());
    let spec = SetSpec::new(set::JOINED[version], &[Field::Number, Field::Address(version)], Holds::Counters);
    let key = Key::default().number(1).address(Ipv4Addr::LOCALHOST.into());
    table.set(spec).insert(Element::mapped(key, Value::counter(TRIED.to_owned())));
    table.add_rule(TRIED, Rule::new([Test::Joined { end: End::Source, version, number: 1 }], Action::Return));
    takes_table(socket, name.into(), &table)
}

/// Whether the kernel takes a table. It goes in the transaction that it comes in.
fn takes_table(socket: &mut Socket, name: TableRef<'_>, table: &Table) -> Result<bool, NftError> {
    let nothing = Table::default();
    let mut batch = Batch::new(name);
    batch.add_table(OWNER, ABOUT);
    Change::between(&nothing, table).write(&mut batch);
    batch.delete_table();
    match socket.commit(&batch.finish()) {
        Ok(()) => Ok(true),
        Err(error) => match error.errno() {
            // The kernel has no such hook or expression, or not in this family of tables.
            Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(false),
            _ => Err(refused_at_all(error)),
        },
    }
}

/// Whether the kernel takes a rule with this action. It goes in the transaction that it comes in.
fn try_rule(socket: &mut Socket, name: &str, action: Action) -> Result<bool, NftError> {
    let mut table = Table::default();
    table.add_rule(TRIED, Rule::new([Test::Protocol(TCP)], action));
    takes_table(socket, name.into(), &table)
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
    fn s1_9_the_tables_of_the_guard_are_tried_and_leave_nothing() {
        crate::nft::isolated(|| {
            let mut socket = Socket::open(Family::NetlinkNetFilter).unwrap();
            assert_eq!(try_guard(&mut socket, "tried").unwrap(), GuardHooks { frames: true, bridges: true });
            let listed = std::process::Command::new("nft").args(["list", "tables"]).output().expect("nft runs");
            assert_eq!(String::from_utf8_lossy(&listed.stdout), "");
            let frames = guard::frames(&Guard { interfaces: &[at_loopback(false)], own: &[], log_group: 0 });
            let bridge = TableRef { family: TableFamily::Bridge, name: "tried" };
            assert!(!takes_table(&mut socket, bridge, &frames).unwrap(), "bridge tables have no such hook");
        });
    }

    #[cfg(feature = "system")]
    #[test]
    fn a_map_to_counters_is_tried_and_leaves_nothing() {
        crate::nft::isolated(|| {
            let mut socket = Socket::open(Family::NetlinkNetFilter).unwrap();
            assert!(try_joined(&mut socket, "tried").unwrap());
            assert_eq!(read::table_note(&mut socket, "tried").unwrap(), None);
            let mut table = Table::default();
            let spec = SetSpec::new(set::JOINED.0, &[Field::Number], Holds::Counters);
            table.set(spec).insert(Element::mapped(Key::default().number(1), Value::counter("nowhere".to_owned())));
            assert!(!takes_table(&mut socket, "tried".into(), &table).unwrap());
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
