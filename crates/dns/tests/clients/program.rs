//! Running a client, and what it must have been told.

use crate::stub::{Recorder, Upstream, serve, settings};
use crate::zone;
use namewall_dns::{Server, Settings};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

/// Runs it, and gives what it printed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let place = if program.contains('/') { program.into() } else { namewall_testbed::program(program) };
    let output = Command::new(place).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{said}{complaint}", output.status);
    said
}

/// Options that dig and kdig write alike.
pub(crate) const ALIKE: [&[&str]; 7] =
    [&[], &["+tcp"], &["+noedns"], &["+norec"], &["+bufsize=512"], &["+bufsize=4096"], &["+dnssec"]];

/// The server with an upstream that has the [`zone`].
pub(crate) struct Fixture {
    pub(crate) server: Server<Recorder>,
    recorder: Arc<Recorder>,
    _upstream: Upstream,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1:0")
    }

    pub(crate) fn at(listen: &str) -> Self {
        let upstream = zone::upstream();
        let listen: SocketAddr = listen.parse().unwrap();
        // Clients are started and the machine may be busy: no hurry.
        let try_timeout = std::time::Duration::from_secs(2);
        let recorder = Arc::new(Recorder::default());
        let settings = Settings { listen: vec![listen.into()], try_timeout, ..settings(&[&upstream]) };
        Self { server: serve(settings, recorder.clone()), recorder, _upstream: upstream }
    }

    pub(crate) fn port(&self) -> String {
        self.server.addresses()[0].port().to_string()
    }

    /// The addresses in a text, each of which must have been learned.
    pub(crate) fn addresses(&self, text: &str) -> HashSet<IpAddr> {
        let shown: HashSet<IpAddr> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let learned: HashSet<IpAddr> = self.recorder.addresses().into_iter().collect();
        assert!(shown.is_subset(&learned), "{:?} were not learned", shown.difference(&learned));
        shown
    }
}

/// What `www.shop.example` has.
pub(crate) fn of_www() -> HashSet<IpAddr> {
    ["192.0.2.1", "192.0.2.2", "2001:db8::1"].iter().map(|text| text.parse().unwrap()).collect()
}

pub(crate) fn only_v4(addresses: HashSet<IpAddr>) -> HashSet<IpAddr> {
    addresses.into_iter().filter(IpAddr::is_ipv4).collect()
}
