//! What happens in a simulation, as a hash: two runs are the same if their hashes are.

use crate::{Clock, ManualClock};
use std::sync::{Mutex, PoisonError};

/// A hash over lines, each with its time.
#[derive(Debug)]
pub struct Trace {
    clock: ManualClock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// FNV-1a: the same on every machine and with every compiler.
    hash: u64,
    lines: u64,
}

impl Trace {
    pub(super) fn new(clock: ManualClock) -> Self {
        Self { clock, state: Mutex::new(State { hash: 0xcbf2_9ce4_8422_2325, lines: 0 }) }
    }

    pub fn add(&self, line: &str) {
        let now = self.clock.now().0.as_nanos();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in format!("{now} {line}\n").bytes() {
            state.hash = (state.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.lines += 1;
    }

    pub fn hash(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).hash
    }

    pub fn lines(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lines
    }
}
