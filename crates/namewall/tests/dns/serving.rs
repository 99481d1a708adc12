//! Where it listens, and the end.

use crate::ports::free_port;
use crate::process::{Folder, Serving};
use nix::sys::signal::Signal;
use std::net::{Ipv4Addr, UdpSocket};

fn corefile(port: u16) -> String {
    format!(".:{port} {{\n bind lo\n hosts /no/such/file {{\n 192.0.2.10 www.example\n }}\n}}\n")
}

#[test]
fn it_ends_when_it_is_told_to() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let port = free_port();
        let serving = Serving::start(&corefile(port));
        serving.signal(signal);
        serving.wait_for("namewall::commands::dns: ended", 1);
        let (status, told) = serving.end();
        assert!(status.success(), "{told}");
        // Somebody else can have its port.
        assert!(UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}

#[test]
fn a_port_that_is_taken_is_told() {
    let taken = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let (code, told) = Folder::new(&format!(".:{port} {{\n bind 127.0.0.1\n}}\n")).run(&[]);
    let why = "is another DNS server running there?: Address already in use (os error 98)";
    assert_eq!(told, format!("error: cannot listen at 127.0.0.1:{port}; {why}\n"));
    assert_eq!(code, Some(2));
}

#[test]
fn an_address_that_nobody_here_has_is_told() {
    let (code, told) = Folder::new(".:5300 {\n bind 192.0.2.77\n}\n").run(&[]);
    let why = "no interface of this machine has the address: Cannot assign requested address (os error 99)";
    assert_eq!(told, format!("error: cannot listen at 192.0.2.77:5300; {why}\n"));
    assert_eq!(code, Some(2));
}
