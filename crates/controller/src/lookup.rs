//! Asks resolvers for names, many at the same time.

use namewall_dns::wire::{Rcode, RecordType};
use namewall_dns::{AskError, ask};
use namewall_kubernetes::Outcome;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Names that are asked for at the same time; most of it is waiting.
const AT_ONCE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(5);

/// A name, and whom to ask for it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) servers: Vec<SocketAddr>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) name: String,
    /// None: the name exists and has no address, which changes nothing.
    pub(crate) outcome: Option<Outcome>,
}

/// Threads that ask.
#[derive(Debug)]
pub(crate) struct Lookups {
    orders: Sender<Order>,
    done: Receiver<Done>,
}

impl Lookups {
    pub(crate) fn start() -> io::Result<Self> {
        let ((orders, taken), (finished, done)) = (channel::<Order>(), channel());
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..AT_ONCE {
            let (taken, finished) = (taken.clone(), finished.clone());
            let work = move || {
                loop {
                    let order = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Order { name, servers }) = order else { return };
                    let outcome = look_up(&name, &servers);
                    if finished.send(Done { name, outcome }).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("lookup".to_owned()).spawn(work)?;
        }
        Ok(Self { orders, done })
    }

    pub(crate) fn order(&self, order: Order) {
        // Nobody to take it means that all of it has ended.
        let _ = self.orders.send(order);
    }

    pub(crate) fn done(&self) -> impl Iterator<Item = Done> {
        self.done.try_iter()
    }
}

/// All addresses that any of the servers knows; a failure only if none knows any.
fn look_up(name: &str, servers: &[SocketAddr]) -> Option<Outcome> {
    let (mut found, mut failure) = (Vec::new(), None);
    for &server in servers {
        for kind in [RecordType::A, RecordType::AAAA] {
            match ask(server, name, kind, PATIENCE) {
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
