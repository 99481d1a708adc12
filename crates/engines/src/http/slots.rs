//! How many questions may be under way.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Room for some questions under way, and for as many that wait. Who finds neither is refused at once:
/// a longer queue would only make answers that nobody waits for any more.
#[derive(Debug)]
pub(crate) struct QueueSlots {
    most: usize,
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Clone, Copy, Default, Debug)]
struct Taken {
    /// Under way.
    working: usize,
    /// Under way or waiting.
    all: usize,
}

/// A slot in the queue, given back when it is dropped, asked or not.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    slots: Arc<QueueSlots>,
    is_working: bool,
}

impl QueueSlots {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), taken: Mutex::default(), freed: Condvar::new() })
    }

    /// A slot, unless all are taken. It never waits.
    pub(crate) fn take(self: &Arc<Self>) -> Option<QueueSlot> {
        let mut taken = self.taken();
        let is_free = taken.all < 2 * self.most;
        is_free.then(|| {
            taken.all += 1;
            QueueSlot { slots: self.clone(), is_working: false }
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueSlot {
    /// Waits for its turn; whether it came in time.
    pub(crate) fn wait(&mut self, until: Instant) -> bool {
        let slots = self.slots.clone();
        let mut taken = slots.taken();
        while taken.working >= slots.most {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            taken = slots.freed.wait_timeout(taken, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.working += 1;
        self.is_working = true;
        true
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.all -= 1;
        if self.is_working {
            taken.working -= 1;
            self.slots.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn as_many_wait_as_work_and_no_more() {
        let slots = QueueSlots::new(2);
        let soon = || Instant::now() + Duration::from_millis(20);
        let mut taken: Vec<QueueSlot> = (0..4).map(|_| slots.take().unwrap()).collect();
        assert!(slots.take().is_none());
        assert!(taken[0].wait(soon()) && taken[1].wait(soon()));
        assert!(!taken[2].wait(soon()));
        // One that was never asked is given back, too.
        drop(taken.pop());
        assert!(slots.take().is_some());
        drop(taken.remove(0));
        assert!(taken[1].wait(soon()));
    }

    #[test]
    fn who_waits_is_woken() {
        let slots = QueueSlots::new(1);
        let mut first = slots.take().unwrap();
        assert!(first.wait(Instant::now()));
        let mut second = slots.take().unwrap();
        let waiting = thread::spawn(move || second.wait(Instant::now() + Duration::from_secs(600)));
        thread::sleep(Duration::from_millis(20));
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
