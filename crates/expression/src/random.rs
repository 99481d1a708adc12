//! Numbers nobody can guess well. They choose a share of the questions; nothing is kept secret by them.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// Every thread has its own, and so none waits.
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

/// A number from 0, up to and without 1.
pub(crate) fn random() -> f64 {
    // Splitmix64: a step, and the step well stirred.
    let step = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(step);
    let mut bits = step;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // As many bits as a fraction has.
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
