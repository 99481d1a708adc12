//! The limit of open files bounds the ports that upstreams are asked from. It is of the whole process, so the one test
//! here is alone in it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/stub.rs"]
mod stub;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeSet;
use stub::{Client, Upstream, plain, query, serve, settings};

/// Asks so often, one after the other. Gives how many ports the questions came from.
fn ports(questions: u16) -> usize {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for number in 0..questions {
        assert!(client.ask(&query(number, "example.com")).is_some());
    }
    upstream.ports.lock().unwrap().iter().map(|(port, _)| *port).collect::<BTreeSet<_>>().len()
}

#[test]
fn the_soft_limit_of_open_files_is_raised_for_ports() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard >= 1_024, "this machine allows {hard} files");
    setrlimit(Resource::RLIMIT_NOFILE, 200, hard).unwrap();
    assert_eq!(ports(200), 50, "a quarter of the files");
    namewall_dns::allow_more_files();
    assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    assert_eq!(ports(200), 200, "a port each");
}
