//! Faults of the machine below the node: a table of connections without room, too
//! little memory, clocks that jump (`world::disk` has a disk without room). All of
//! them are the test's own: a network namespace of the sandbox, a cgroup, and a
//! clock that only builds for tests have.

use namewall_dataplane::netlink::{CREATE, EXCLUSIVE, Error, Family, Messages, Socket};
use namewall_sandbox::Namespace;
use namewall_testbed::give_up;
use nix::errno::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// More entries than this are not made: each takes some 300 bytes of the kernel's memory.
const MOST_ENTRIES: u32 = 1 << 20;
const ENTRIES_AT_ONCE: u32 = 500;
/// Marks the entries, so that they can be removed.
const MARK: u32 = 0x736f_616b;

/// Fills a namespace's table of connections with ones that the kernel does not give up for others. The limit is the
/// machine's (in other namespaces `nf_conntrack_max` can only be read), but each namespace is counted by itself.
pub(crate) fn fill_connections(namespace: &Namespace) {
    let limit = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_max").unwrap();
    let limit: u32 = limit.trim().parse().unwrap();
    if limit > MOST_ENTRIES {
        give_up(format!("net.netfilter.nf_conntrack_max is {limit}; the soak fills at most {MOST_ENTRIES} entries"));
    }
    let mut socket = netfilter(namespace);
    // The kernel's count lags a little: only its refusal shows that there is no room.
    for first in (0..2 * limit).step_by(ENTRIES_AT_ONCE as usize) {
        let mut messages = Messages::new();
        (first..first + ENTRIES_AT_ONCE).for_each(|number| add_entry(&mut messages, number));
        messages.acknowledge();
        match socket.commit(&messages) {
            Ok(()) => {}
            // Some are there from before.
            Err(Error::Refused { errno: Errno::EEXIST, .. }) => {}
            Err(Error::Refused { errno: Errno::ENOMEM, .. }) => return,
            Err(error) => panic!("no entry is made: {error}"),
        }
    }
    panic!("the table of connections is never full");
}

fn add_entry(messages: &mut Messages, number: u32) {
    const NEW: u16 = 1 << 8;
    const UDP: u8 = 17;
    /// SEEN_REPLY, ASSURED and CONFIRMED: an entry that is given up for another is not ASSURED.
    const STATUS: u32 = 1 << 1 | 1 << 2 | 1 << 3;
    let (one, other) = ((0x6440_0000 + (number >> 15), 1 + (number & 0x7fff) as u16), (0x6450_0001_u32, 9_u16));
    messages.begin(NEW, CREATE | EXCLUSIVE, &[2, 0, 0, 0]);
    for (kind, from, to) in [(1, one, other), (2, other, one)] {
        messages.nested(kind, |tuple| {
            tuple.nested(1, |addresses| {
                addresses.u32(1, from.0);
                addresses.u32(2, to.0);
            });
            tuple.nested(2, |protocol| {
                protocol.bytes(1, &[UDP]);
                protocol.u16(2, from.1);
                protocol.u16(3, to.1);
            });
        });
    }
    messages.u32(3, STATUS);
    messages.u32(7, 3600);
    messages.u32(8, MARK);
}

/// Removes what `fill_connections` has made.
pub(crate) fn free_connections(namespace: &Namespace) {
    const DELETE: u16 = 1 << 8 | 2;
    let mut messages = Messages::new();
    messages.begin(DELETE, 0, &[0, 0, 0, 0]);
    messages.u32(8, MARK);
    messages.u32(21, u32::MAX);
    messages.acknowledge();
    netfilter(namespace).commit(&messages).unwrap();
}

fn netfilter(namespace: &Namespace) -> Socket {
    namespace.enter(|| Socket::open(Family::NetlinkNetFilter)).unwrap().unwrap()
}

/// A cgroup with a limit of memory, of version 1 or 2.
pub(crate) struct MemoryLimit {
    folder: PathBuf,
    limit: &'static str,
}

impl MemoryLimit {
    /// A machine without a memory controller is an error.
    pub(crate) fn new() -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let candidates = mounts.filter_map(|fields| match (fields[2], fields[1]) {
            ("cgroup", path) if fields[3].split(',').any(|one| one == "memory") => {
                Some((Path::new(path).to_owned(), "memory.limit_in_bytes"))
            }
            ("cgroup2", path) => Some((Path::new(path).to_owned(), "memory.max")),
            _ => None,
        });
        let mut reasons = Vec::new();
        for (parent, limit) in candidates {
            let folder = parent.join(format!("namewall-soak-{}", std::process::id()));
            // Of version 2 a group's controllers are those that its parent passes on; version 1 has no such file.
            fs::write(parent.join("cgroup.subtree_control"), "+memory").ok();
            match fs::create_dir(&folder) {
                Ok(()) if folder.join(limit).exists() => return Self { folder, limit },
                Ok(()) => reasons.push(format!("{} has no {limit}", folder.display())),
                Err(error) => reasons.push(format!("{}: {error}", folder.display())),
            }
            fs::remove_dir(&folder).ok();
        }
        give_up(format!("the soak needs a cgroup with a memory limit, as root: {reasons:?}"))
    }

    pub(crate) fn set(&self, megabytes: u64) {
        fs::write(self.folder.join(self.limit), (megabytes << 20).to_string()).unwrap();
    }

    /// A command before which a program is put, so that all of it is in the cgroup.
    pub(crate) fn launcher(&self) -> Vec<String> {
        let processes = self.folder.join("cgroup.procs").display().to_string();
        ["sh", "-c", "echo $$ > \"$0\" && exec \"$@\"", &processes].map(str::to_owned).to_vec()
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A process that has just ended may still be counted.
        let has_gone = || fs::remove_dir(&self.folder).is_ok();
        let _ = (0..100).any(|_| {
            has_gone() || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                false
            }
        });
    }
}

/// The clock of the process, as a file says it.
pub(crate) struct Clocks {
    file: PathBuf,
    /// In seconds, as the file has them.
    monotonic: u64,
    wall: i64,
}

impl Clocks {
    pub(crate) fn new(file: PathBuf) -> Self {
        let clocks = Self { file, monotonic: 0, wall: 0 };
        clocks.write();
        clocks
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn jump(&mut self, monotonic: u64, wall: i64) {
        self.monotonic += monotonic;
        self.wall += wall;
        self.write();
    }

    fn write(&self) {
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{} {}", self.monotonic, self.wall)).unwrap();
        fs::rename(&new, &self.file).unwrap();
    }
}
