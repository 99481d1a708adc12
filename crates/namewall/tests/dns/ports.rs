//! Ports that nobody has.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those the kernel gives to who asks for any: whatever other sockets come meanwhile, none takes it.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// A port that is free for UDP and TCP at both loopback addresses, and is nobody else's in this process.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::SeqCst);
        // Processes that run at the same time begin far from each other.
        let port = (FIRST + std::process::id().wrapping_mul(7_919).wrapping_add(next) % COUNT) as u16;
        let is_free = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            && UdpSocket::bind((Ipv6Addr::LOCALHOST, port)).is_ok()
            && TcpListener::bind((Ipv6Addr::LOCALHOST, port)).is_ok();
        if is_free {
            return port;
        }
    }
}
