//! The DNS of the world outside: servers, and the zones that all of them know.
//!
//! Pure: a query's bytes go in, the replies' bytes come out, with the time each
//! takes and where it comes from. Whoever has sockets sends them; whoever has
//! none reads them. `name`, `record` and `message` are the words, `write` makes
//! bytes of them; `server` is how servers misbehave, `owner` what a name has,
//! `respond` answers, and `file` reads the `dns:` of a topology. `witness`
//! reads answers as a client and as S6.1 do. No recursion and no cache: every
//! server answers for every name there is.

mod file;
mod message;
mod name;
mod owner;
mod record;
mod respond;
mod server;
mod witness;
mod write;

pub(crate) use file::{read, read_changes};
pub use message::{Malformed, Message, Question};
pub use name::{Name, NameError};
pub use owner::{Alias, Exact, Owner, RecordSet};
pub use record::{Data, Rcode, Record, RecordType};
pub use server::{FORGED_V4, FORGED_V6, Server, Spoof, Transport};
pub use witness::{Leasable, ReadsAnswers, Witness};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The servers and what they know. It moves on with every query: addresses
/// rotate, and queries are counted.
#[derive(Clone, Default, Debug)]
pub struct Zones {
    servers: Vec<(IpAddr, Server)>,
    owners: BTreeMap<Name, Owner>,
}

/// Something a server sends, in the order it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// After the query.
    pub delay: Duration,
    pub bytes: Vec<u8>,
    pub sender: Sender,
}

/// Where a reply seems to come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The address and port that were asked.
    Server,
    /// Another port of that address.
    OtherPort,
    /// [`FORGED_V4`] or [`FORGED_V6`], at the port that was asked.
    OtherAddress,
}

impl Zones {
    /// In the order they were written; the first is asked unless another is named.
    pub fn servers(&self) -> impl Iterator<Item = (IpAddr, &Server)> {
        self.servers.iter().map(|(address, server)| (*address, server))
    }

    pub fn default_server(&self) -> Option<IpAddr> {
        self.servers.first().map(|(address, _)| *address)
    }

    /// How many queries a server got, answered or not.
    pub fn queries(&self, server: IpAddr) -> u64 {
        self.servers().find(|(address, _)| *address == server).map_or(0, |(_, server)| server.queries)
    }

    /// Puts records in the place of an owner's; None takes the name away.
    pub fn replace(&mut self, name: Name, owner: Option<Owner>) {
        match owner {
            Some(owner) => self.owners.insert(name, owner),
            None => self.owners.remove(&name),
        };
    }

    /// Every address the zones speak of.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.owners.values().flat_map(Owner::addresses)
    }
}
