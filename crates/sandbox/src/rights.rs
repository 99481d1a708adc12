//! The rights a sandbox needs: root's, or those over a user namespace of one's own.

use crate::error::Error;
use crate::netns::Namespace;
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::{fs, io};

#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    #[error("a user namespace must be entered before the first thread is started")]
    Threads,
    #[error("this system allows no user namespace ({errno}): {advice}")]
    Forbidden { errno: Errno, advice: &'static str },
    #[error("cannot enter a user namespace: {0}")]
    Enter(#[source] Errno),
    #[error("cannot write {path}: {source}{}", forbidden_by_apparmor())]
    Map { path: &'static str, source: io::Error },
    #[error("{source}{}", forbidden_by_apparmor())]
    Namespaces { source: Error },
}

const RUN_AS_ROOT: &str = "run as root";
const RAISE_MAXIMUM: &str = "set the sysctl user.max_user_namespaces above 0, or run as root";
const ALLOW_CLONE: &str = "set the sysctl kernel.unprivileged_userns_clone to 1, or run as root";
const APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Whatever it takes to make network namespaces: nothing where the process may
/// already, else a user namespace, which must be entered before the first thread.
pub fn ensure_rights() -> Result<(), RightsError> {
    // To make one and see would take a thread, and the kernel may still count it after its end.
    if !has_capabilities() {
        enter_user_namespace()?;
    }
    Namespace::create().map(drop).map_err(|source| RightsError::Namespaces { source })
}

/// Enters a new user namespace, in which this user is root, and a new network
/// namespace. The process must have one thread only.
pub fn enter_user_namespace() -> Result<(), RightsError> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(explain)?;
    // Without this the group may not be mapped: it could be given up to pass a rule that denies it.
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {user} 1"))?;
    write("/proc/self/gid_map", &format!("0 {group} 1"))
}

/// To administer the system (it makes namespaces) and the network, and to open raw sockets.
fn has_capabilities() -> bool {
    const NEEDED: u64 = 1 << 21 | 1 << 12 | 1 << 13;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & NEEDED == NEEDED)
}

fn explain(errno: Errno) -> RightsError {
    match errno {
        Errno::EINVAL => RightsError::Threads,
        Errno::ENOSPC => RightsError::Forbidden { errno, advice: RAISE_MAXIMUM },
        Errno::EPERM | Errno::EACCES => {
            let advice = if is("/proc/sys/kernel/unprivileged_userns_clone", "0") { ALLOW_CLONE } else { RUN_AS_ROOT };
            RightsError::Forbidden { errno, advice }
        }
        errno => RightsError::Enter(errno),
    }
}

/// AppArmor lets the namespace be made, and takes every right in it away.
fn forbidden_by_apparmor() -> &'static str {
    if is(APPARMOR, "1") {
        "; set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or run as root"
    } else {
        ""
    }
}

fn is(path: &str, value: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
}

fn write(path: &'static str, text: &str) -> Result<(), RightsError> {
    fs::write(path, text).map_err(|source| RightsError::Map { path, source })
}
