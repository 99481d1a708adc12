//! Lookups by threads that ask DNS servers and wait for them.

use crate::lookup::{Done, LOOKUP_TIMEOUT, Lookups, Order, look_up};
use namewall_dns::{AskError, ask};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names that are asked for at the same time; most of it is waiting.
const AT_ONCE: usize = 64;
/// How long one server is waited for, so that there is time for another.
const SERVER_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Threads that ask.
#[derive(Debug)]
pub struct LookupThreads {
    orders: Sender<Order>,
    done: Receiver<Done>,
}

impl LookupThreads {
    pub fn start() -> io::Result<Self> {
        let ((orders, taken), (finished, done)) = (channel::<Order>(), channel());
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..AT_ONCE {
            let (taken, finished) = (taken.clone(), finished.clone());
            let work = move || {
                loop {
                    let order = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(order) = order else { return };
                    let until = Instant::now() + LOOKUP_TIMEOUT;
                    let outcome = look_up(&order, |server, kind| {
                        let left = until.saturating_duration_since(Instant::now()).min(SERVER_TIMEOUT);
                        if left.is_zero() {
                            Err(AskError::Silence(server))
                        } else {
                            ask(server, &order.name, kind, left)
                        }
                    });
                    if finished.send(Done { name: order.name, outcome }).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("lookup".to_owned()).spawn(work)?;
        }
        Ok(Self { orders, done })
    }
}

impl Lookups for LookupThreads {
    fn order(&mut self, order: Order) {
        // Nobody to take it means that all of it has ended.
        let _ = self.orders.send(order);
    }

    fn take_done(&mut self) -> Vec<Done> {
        self.done.try_iter().collect()
    }
}
