//! Lookups by threads that ask DNS servers and wait for them.

use super::{Done, LOOKUP_TIMEOUT, Lookups, Order, look_up};
use crate::{AskError, ask};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one server is waited for, so that there is time for another.
const SERVER_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Threads that ask. They start when there is something to ask.
#[derive(Debug)]
pub struct LookupThreads {
    orders: Sender<Order>,
    /// What every thread takes orders from, and where it puts what came of them.
    taken: Arc<Mutex<Receiver<Order>>>,
    finished: Sender<Done>,
    done: Receiver<Done>,
    most: usize,
    started: usize,
    under_way: usize,
}

impl LookupThreads {
    /// At most that many names are asked for at the same time; most of it is waiting.
    pub fn new(most: usize) -> Self {
        let ((orders, taken), (finished, done)) = (channel(), channel());
        Self { orders, taken: Arc::new(Mutex::new(taken)), finished, done, most, started: 0, under_way: 0 }
    }

    fn start_one(&self) -> io::Result<()> {
        let (taken, finished) = (self.taken.clone(), self.finished.clone());
        let work = move || {
            loop {
                let order = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(order) = order else { return };
                let done = look_up(&order, by_deadline(&order.name, Instant::now() + LOOKUP_TIMEOUT));
                if finished.send(done).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("lookup".to_owned()).spawn(work).map(drop)
    }
}

/// Asks servers until a time, each for a part of it.
fn by_deadline(
    name: &str,
    until: Instant,
) -> impl Fn(std::net::SocketAddr, crate::wire::RecordType) -> Result<crate::LookupAnswer, AskError> {
    move |server, kind| {
        let left = until.saturating_duration_since(Instant::now()).min(SERVER_TIMEOUT);
        if left.is_zero() { Err(AskError::Silence(server)) } else { ask(server, name, kind, left) }
    }
}

impl Lookups for LookupThreads {
    fn order(&mut self, order: Order) {
        self.under_way += 1;
        if self.started < self.most.min(self.under_way) && self.start_one().is_ok() {
            self.started += 1;
        }
        if self.started == 0 {
            // No thread can be started: that is a lookup that failed.
            self.finished.send(Done::failed(order.name, "NoThread")).ok();
            return;
        }
        // Threads take orders for as long as this is there.
        self.orders.send(order).ok();
    }

    fn take_done(&mut self) -> Vec<Done> {
        let done: Vec<Done> = self.done.try_iter().collect();
        self.under_way = self.under_way.saturating_sub(done.len());
        done
    }
}
