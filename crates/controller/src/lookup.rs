//! The seam to DNS: lookups of names are ordered, and their results are fetched
//! later. `threads` asks real servers; tests have their own.

use namewall_dns::wire::{Rcode, RecordType};
use namewall_dns::{AskError, LookupAnswer};
use namewall_kubernetes::Outcome;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a lookup takes at most, all servers together. It is shorter than the grace of an address (S8.4): a failure
/// is noted before the address is over.
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
    /// None: the name exists and has no address, which changes nothing.
    pub outcome: Option<Outcome>,
}

/// All addresses that any of the servers knows; a failure only if none knows any. A server that does not answer, or
/// that says that it cannot, is replaced by a spare one.
pub fn look_up(
    order: &Order,
    ask: impl Fn(SocketAddr, RecordType) -> Result<LookupAnswer, AskError>,
) -> Option<Outcome> {
    if order.servers.is_empty() {
        return Some(Outcome::Failed("NoResolver".to_owned()));
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
    match (found.is_empty(), failure) {
        (false, _) => Some(Outcome::Found(found)),
        (true, Some(failure)) => Some(Outcome::Failed(failure)),
        (true, None) => None,
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
    use namewall_dns::wire::Address;
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
        assert_eq!(outcome, Some(Outcome::Found(vec![([192, 0, 2, 1].into(), 30)])));
    }

    #[test]
    fn a_server_that_fails_is_replaced_by_a_spare_one() {
        let known = Address { address: [192, 0, 2, 1].into(), ttl: Duration::from_secs(30) };
        for (rcode, expected) in [
            (None, Outcome::Found(vec![([192, 0, 2, 1].into(), 30); 2])),
            (Some(Rcode::SERV_FAIL), Outcome::Found(vec![([192, 0, 2, 1].into(), 30); 2])),
            (Some(Rcode::NX_DOMAIN), Outcome::Failed("NXDOMAIN".to_owned())),
        ] {
            let mut order = order(1);
            order.spare = vec![([192, 0, 2, 54], 53).into()];
            let outcome = look_up(&order, |server, _| match (server.port(), rcode) {
                (53, _) => Ok(LookupAnswer { rcode: Rcode::NO_ERROR, addresses: vec![known] }),
                (_, Some(rcode)) => Ok(LookupAnswer { rcode, addresses: Vec::new() }),
                (_, None) => Err(AskError::Silence(server)),
            });
            assert_eq!(outcome, Some(expected), "{rcode:?}");
        }
    }

    #[test]
    fn a_silent_server_is_asked_for_one_family_only() {
        let asked = Cell::new(0);
        let outcome = look_up(&order(2), |server, _| {
            asked.set(asked.get() + 1);
            Err(AskError::Silence(server))
        });
        assert_eq!((outcome, asked.get()), (Some(Outcome::Failed("Timeout".to_owned())), 2));
    }
}
