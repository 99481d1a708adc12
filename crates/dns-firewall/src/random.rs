//! Numbers that nobody can foresee.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A random number: the standard library's hashers have random keys.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
