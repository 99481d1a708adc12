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
}

/// The addresses of a name with their TTLs in seconds, none if it exists without any; or why it failed, in a word.
pub type Found = Result<Vec<(IpAddr, u32)>, String>;

/// The failure that is an answer: the name does not exist. After all others nothing is known of the name.
pub const NO_SUCH_NAME: &str = "NXDOMAIN";

/// All addresses that any of the servers knows; a failure only if none knows any. A server that does not answer, or
/// that says that it cannot, is replaced by a spare one.
pub fn look_up(order: &Order, ask: impl Fn(SocketAddr, RecordType) -> Result<LookupAnswer, AskError>) -> Found {
    if order.servers.is_empty() {
        return Err("NoResolver".to_owned());
    }
    let (mut found, mut failure) = (Vec::new(), None);
    let (mut servers, mut spare) = (order.servers.iter().copied().collect::<VecDeque<_>>(), order.spare.iter());
    while let Some(server) = servers.pop_front() {
        for kind in [RecordType::A, RecordType::AAAA] {
            let why = match ask(server, kind) {
                Ok(told) if told.rcode == Rcode::NO_ERROR => {
                    let seconds = |ttl: Duration| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
                    found.extend(told.addresses.iter().map(|one| (one.address, seconds(one.ttl))));
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
    match failure {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(found),
    }
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
        assert_eq!(outcome, Ok(vec![([192, 0, 2, 1].into(), 30)]));
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
            assert_eq!(outcome, expected, "{rcode:?}");
        }
    }

    #[test]
    fn a_silent_server_is_asked_for_one_family_only() {
        let asked = Cell::new(0);
        let outcome = look_up(&order(2), |server, _| {
            asked.set(asked.get() + 1);
            Err(AskError::Silence(server))
        });
        assert_eq!((outcome, asked.get()), (Err("Timeout".to_owned()), 2));
    }
}
