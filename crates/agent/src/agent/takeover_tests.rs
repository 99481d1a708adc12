//! What becomes of an agent when another wants to take over, on a data plane in memory.

use super::tests::{Script, Trial};
use super::*;
use namewall_dataplane::memory::Memory;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;

/// A query that is no standard query: it is refused without an upstream.
const NOTIFY: [u8; 17] = [0, 7, 0x20, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1];

fn serves(agent: &Agent<'_, Script, Memory>) -> bool {
    let address = lock(&agent.state).node.dns().expect("it serves DNS").addresses()[0];
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("it is set");
    client.send_to(&NOTIFY, address).expect("it is sent");
    let mut reply = [0; 64];
    client.recv(&mut reply).is_ok_and(|length| length >= 12 && reply[1] == 7)
}

fn asks(agent: &Agent<'_, Script, Memory>, stream: UnixStream, confirms: bool) {
    *agent.successor.lock().expect("nobody panicked") = Some(Successor { stream, confirms });
}

#[test]
fn an_agent_goes_on_if_the_one_that_takes_over_ends_before_it_has_the_sockets() {
    let trial = Trial::new("take-over-ends");
    let mut agent = trial.start(Vec::new()).expect("it starts");
    let before = lock(&agent.state).node.dns().expect("it serves DNS").addresses().to_vec();
    let (stream, other) = UnixStream::pair().expect("a pair");
    drop(other);
    asks(&agent, stream, true);
    assert!(!agent.hand_over().expect("it goes on"));
    let (stream, mut other) = UnixStream::pair().expect("a pair");
    asks(&agent, stream, true);
    // It ends when the first byte is there.
    let ends = thread::spawn(move || other.read_exact(&mut [0]));
    assert!(!agent.hand_over().expect("it goes on"));
    ends.join().expect("it ends well").expect("it was told something");
    assert_eq!(lock(&agent.state).node.dns().expect("it serves DNS").addresses(), before);
    assert!(serves(&agent));
    assert!(trial.control.exists(), "it can be asked");
    assert_eq!(Trial::status(&trial.control)["pid"], std::process::id());
}

#[test]
fn an_agent_ends_when_the_one_that_takes_over_has_the_sockets() {
    let trial = Trial::new("take-over");
    for confirms in [true, false] {
        let mut agent = trial.start(Vec::new()).expect("it starts");
        let (stream, mut other) = UnixStream::pair().expect("a pair");
        if confirms {
            other.write_all(b"taken\n").expect("it is written");
        }
        asks(&agent, stream, confirms);
        assert!(agent.hand_over().expect("it ends"));
        assert!(!trial.control.exists());
        assert!(lock(&agent.state).node.dns().is_none(), "nobody takes questions twice");
    }
}
