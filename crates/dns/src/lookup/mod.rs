//! The seam for lookups that we make ourselves: they are ordered, and their
//! results are fetched later. `threads` asks real servers; tests have their own.

mod threads;

pub use threads::LookupThreads;

use crate::wire::{Rcode, RecordType};
use crate::{AskError, LookupAnswer};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a lookup takes at most, all servers together. It is shorter than the grace of an address (S8.4): a failure
/// is noted before the address ends.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Looks names up, many at the same time.
pub trait Lookups: Debug + Send {
    /// Begins to look a name up. Waits for nothing.
    fn order(&mut self, order: Order);

    /// The lookups that have ended since this was last asked.
    fn take_done(&mut self) -> Vec<Done>;
}

/// A name, and which servers are asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub name: String,
    pub servers: Vec<SocketAddr>,
    /// Asked in place of servers that fail, one for each.
    pub spare: Vec<SocketAddr>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub name: String,
    pub found: Found,
    /// True if a server has answered for both families of addresses: an address that is not in `found` is not the
    /// name's any more.
    pub is_whole: bool,
}

impl Done {
    /// A lookup that came to nothing.
    pub fn failed(name: String, why: &str) -> Self {
        Self { name, found: Err(why.to_owned()), is_whole: false }
    }

    /// The addresses that replace all others that the name had. None if the name keeps those that a rule denies (S8.7):
    /// after failures, and after an answer that has no address.
    pub fn replacement(&self) -> Option<&[(IpAddr, u32)]> {
        self.found.as_deref().ok().filter(|found| self.is_whole && !found.is_empty())
    }
}

/// The addresses of a name with their TTLs in seconds, none if it exists without any; or why it failed, in a word.
pub type Found = Result<Vec<(IpAddr, u32)>, String>;

/// The failure that is an answer: the name does not exist. After all others nothing is known of the name.
pub const NO_SUCH_NAME: &str = "NXDOMAIN";

/// All addresses that any of the servers knows; a failure only if none knows any. A server that does not answer, or
/// that says that it cannot, is replaced by a spare one.
pub fn look_up(order: &Order, ask: impl Fn(SocketAddr, RecordType) -> Result<LookupAnswer, AskError>) -> Done {
    let name = order.name.clone();
    if order.servers.is_empty() {
        return Done::failed(name, "NoResolver");
    }
    let (mut found, mut failure, mut is_whole) = (Vec::new(), None, false);
    let (mut servers, mut spare) = (order.servers.iter().copied().collect::<VecDeque<_>>(), order.spare.iter());
    while let Some(server) = servers.pop_front() {
        for kind in [RecordType::A, RecordType::AAAA] {
            let why = match ask(server, kind) {
                Ok(told) if told.rcode == Rcode::NO_ERROR => {
                    let seconds = |ttl: Duration| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
                    found.extend(told.addresses.iter().map(|one| (one.address, seconds(one.ttl))));
                    // The second family of this server.
                    is_whole |= kind == RecordType::AAAA;
                    continue;
                }
                Ok(told) if told.rcode == Rcode::NX_DOMAIN => {
                    // An answer, and the same for the other family.
                    failure = Some(told.rcode.to_string());
                    break;
                }
                Ok(told) => told.rcode.to_string(),
                Err(error) => reason(&error).to_owned(),
            };
            failure = Some(why);
            servers.extend(spare.next());
            // The other family would fail or take as long.
            break;
        }
    }
    let found = match failure {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(found),
    };
    Done { name, found, is_whole }
}

/// A condition's reason: one word.
fn reason(error: &AskError) -> &'static str {
    match error {
        AskError::Name(_) => "BadName",
        AskError::Silence(_) => "Timeout",
        AskError::Broken(..) => "Unreachable",
        AskError::Unreadable(_) => "BadAnswer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Address;
    use std::cell::Cell;

    fn order(servers: u16) -> Order {
        let server = |number: u16| SocketAddr::from(([192, 0, 2, 53], 1000 + number));
        Order { name: "a.example.com.".to_owned(), servers: (0..servers).map(server).collect(), spare: Vec::new() }
    }

    #[test]
    fn one_server_that_knows_is_enough() {
        let outcome = look_up(&order(2), |server, kind| match (server.port(), kind) {
            (1000, _) => Err(AskError::Silence(server)),
            (_, RecordType::A) => {
                let address = Address { address: [192, 0, 2, 1].into(), ttl: Duration::from_secs(30) };
                Ok(LookupAnswer { rcode: Rcode::NO_ERROR, addresses: vec![address] })
            }
            _ => Ok(LookupAnswer { rcode: Rcode::NO_ERROR, addresses: Vec::new() }),
        });
        assert_eq!(outcome.found, Ok(vec![([192, 0, 2, 1].into(), 30)]));
        assert!(outcome.is_whole);
    }

    #[test]
    fn a_server_that_fails_is_replaced_by_a_spare_one() {
        let known = Address { address: [192, 0, 2, 1].into(), ttl: Duration::from_secs(30) };
        for (rcode, expected) in [
            (None, Ok(vec![([192, 0, 2, 1].into(), 30); 2])),
            (Some(Rcode::SERV_FAIL), Ok(vec![([192, 0, 2, 1].into(), 30); 2])),
            (Some(Rcode::NX_DOMAIN), Err(NO_SUCH_NAME.to_owned())),
        ] {
            let mut order = order(1);
            order.spare = vec![([192, 0, 2, 54], 53).into()];
            let outcome = look_up(&order, |server, _| match (server.port(), rcode) {
                (53, _) => Ok(LookupAnswer { rcode: Rcode::NO_ERROR, addresses: vec![known] }),
                (_, Some(rcode)) => Ok(LookupAnswer { rcode, addresses: Vec::new() }),
                (_, None) => Err(AskError::Silence(server)),
            });
            assert_eq!(outcome.found, expected, "{rcode:?}");
        }
    }

    #[test]
    fn a_silent_server_is_asked_for_one_family_only() {
        let asked = Cell::new(0);
        let outcome = look_up(&order(2), |server, _| {
            asked.set(asked.get() + 1);
            Err(AskError::Silence(server))
        });
        assert_eq!((outcome.found, asked.get()), (Err("Timeout".to_owned()), 2));
    }

    #[test]
    fn s8_7_an_answer_for_one_family_does_not_replace_the_addresses_of_the_other() {
        let address = Address { address: [192, 0, 2, 1].into(), ttl: Duration::from_secs(30) };
        let outcome = look_up(&order(1), |server, kind| match kind {
            RecordType::A => Ok(LookupAnswer { rcode: Rcode::NO_ERROR, addresses: vec![address] }),
            _ => Err(AskError::Silence(server)),
        });
        assert_eq!(outcome.found, Ok(vec![([192, 0, 2, 1].into(), 30)]));
        assert_eq!(outcome.replacement(), None);
    }
}
