//! Programs that tests need besides ours: those of the system, and those that
//! `scripts/peers` builds. They are only looked up, never built or installed: a
//! test may be in a namespace without a network.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Ends this process with one line. A panic would bury it in a stack trace, once for each test.
pub fn give_up(what: impl Display) -> ! {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    // Not with eprintln!, which a test harness captures.
    let _ = writeln!(std::io::stderr(), "\nsystem test: {what}");
    std::process::exit(1);
}

/// Where a program of the system is.
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Not every user has the last two in the path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    found.unwrap_or_else(|| give_up(format_args!("`{name}` is missing; run scripts/prepare as root")))
}

/// Where a program is that `scripts/peers/NAME` builds.
pub fn peer(name: &str) -> PathBuf {
    peer_programs(name, &[])
}

/// The same, of a script that builds several: the folder they are in.
pub(crate) fn peer_programs(name: &str, wanted: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers").join(name);
    let told = Command::new(&script).arg("--where").args(wanted).output();
    let told = told.ok().filter(|told| told.status.success()).map(|told| told.stdout);
    let place = told.map(|path| PathBuf::from(String::from_utf8_lossy(&path).trim()));
    place
        .filter(|place| place.exists())
        .unwrap_or_else(|| give_up(format_args!("{name} is not built; run scripts/prepare peers")))
}
