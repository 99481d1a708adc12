//! The seam to DNS: names are ordered, and what came of them is fetched later.
//! `threads` asks real servers; a test has its own.

use namewall_dns::wire::{Rcode, RecordType};
use namewall_dns::{AskError, LookupAnswer};
use namewall_kubernetes::Outcome;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

/// Looks names up, many at the same time.
pub trait Lookups: Debug + Send {
    /// Begins to look a name up. Waits for nothing.
    fn order(&mut self, order: Order);

    /// The lookups that have ended since this was last asked.
    fn take_done(&mut self) -> Vec<Done>;
}

/// A name, and whom to ask for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub name: String,
    pub servers: Vec<SocketAddr>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    pub name: String,
    /// None: the name exists and has no address, which changes nothing.
    pub outcome: Option<Outcome>,
}

/// All addresses that any of the servers knows; a failure only if none knows any.
pub fn look_up(
    order: &Order,
    ask: impl Fn(SocketAddr, RecordType) -> Result<LookupAnswer, AskError>,
) -> Option<Outcome> {
    let (mut found, mut failure) = (Vec::new(), None);
    for &server in &order.servers {
        for kind in [RecordType::A, RecordType::AAAA] {
            match ask(server, kind) {
                Ok(told) if told.rcode == Rcode::NO_ERROR => {
                    let seconds = |ttl: Duration| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX);
                    found.extend(told.addresses.iter().map(|one| (one.address, seconds(one.ttl))));
                }
                Ok(told) => failure = Some(told.rcode.to_string()),
                Err(error) => {
                    failure = Some(reason(&error).to_owned());
                    // The other family would be waited for as long.
                    break;
                }
            }
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
        Order { name: "a.example.com.".to_owned(), servers: (0..servers).map(server).collect() }
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
    fn a_silent_server_is_asked_for_one_family_only() {
        let asked = Cell::new(0);
        let outcome = look_up(&order(2), |server, _| {
            asked.set(asked.get() + 1);
            Err(AskError::Silence(server))
        });
        assert_eq!((outcome, asked.get()), (Some(Outcome::Failed("Timeout".to_owned())), 2));
    }
}
