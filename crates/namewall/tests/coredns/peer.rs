//! A real CoreDNS.

use crate::ask::{Question, try_to_ask};
use crate::process::{Folder, TEST_TIMEOUT};
use namewall_testbed::{Process, peer};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// CoreDNS with a Corefile, which ends with the test.
pub(crate) struct CoreDns {
    folder: Folder,
    process: Process,
}

impl CoreDns {
    /// Starts it, and waits until it answers at a port.
    pub(crate) fn start(folder: Folder, port: u16) -> Self {
        let log = std::fs::File::create(folder.path("coredns.log")).unwrap();
        let child = Command::new(peer("coredns-full"))
            .args(["-conf", "Corefile"])
            .current_dir(folder.path(""))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut coredns = Self { folder, process: Process::owned(child) };
        let began = Instant::now();
        while try_once(port).is_none() {
            let log = std::fs::read_to_string(coredns.folder.path("coredns.log")).unwrap_or_default();
            assert!(coredns.process.is_alive() && began.elapsed() < TEST_TIMEOUT * 2, "CoreDNS does not serve:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        coredns
    }
}

/// Whether a server listens: a port where nobody does refuses at once.
fn try_once(port: u16) -> Option<()> {
    std::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).ok()?;
    try_to_ask(port, &Question::new("A is.anybody.there")).map(drop)
}
