//! A server outside, and how it misbehaves.

use super::record::Rcode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// What forged answers point to, and where those of a forged source come from.
pub const FORGED_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 66));
pub const FORGED_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 0x66));

/// How a message travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Transport {
    Udp,
    Tcp,
}

/// What is wrong with a forged answer. All else of it is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoof {
    Id,
    /// It comes from another port of the server's address.
    Port,
    /// It repeats another question.
    Question,
    /// It comes from another address.
    Source,
}

/// What a server does beyond answering.
#[derive(Clone, Debug)]
pub struct Server {
    /// Answers take so long.
    pub slow: Duration,
    pub silent: bool,
    /// Every answer is this, and empty.
    pub rcode: Option<Rcode>,
    /// Over UDP every answer is empty and truncated.
    pub truncate: bool,
    /// Nobody listens on the other transport.
    pub only: Option<Transport>,
    /// So many queries go unanswered at first.
    pub drop: u64,
    /// Forged answers that come before the true one.
    pub spoof: Vec<Spoof>,
    /// Answers are no messages.
    pub garbage: bool,
    /// The question comes back in lower case.
    pub wrong_case: bool,
    pub compress: bool,
    /// Queries it got so far.
    pub(crate) queries: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            slow: Duration::ZERO,
            silent: false,
            rcode: None,
            truncate: false,
            only: None,
            drop: 0,
            spoof: Vec::new(),
            garbage: false,
            wrong_case: false,
            compress: true,
            queries: 0,
        }
    }
}

impl Server {
    pub fn listens(&self, transport: Transport) -> bool {
        self.only.is_none_or(|only| only == transport)
    }
}
