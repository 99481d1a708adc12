//! Ways to upstreams.

use super::settings::{self, Order, Way};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A route of the settings, with its upstreams by their numbers. Queries under way keep theirs when the
/// settings change.
#[derive(Debug, Default)]
pub(super) struct Route {
    pub(super) upstreams: Vec<usize>,
    pub(super) order: Order,
    pub(super) way: Way,
    next: AtomicUsize,
}

impl Route {
    /// Those in this order.
    pub(super) fn to(upstreams: Vec<usize>) -> Self {
        Self { upstreams, ..Self::default() }
    }

    pub(super) fn new(settings: &settings::Route, upstreams: Vec<usize>) -> Self {
        Self { upstreams, order: settings.order, way: settings.way, next: AtomicUsize::new(0) }
    }

    /// Where the next query begins; `random` is any number.
    pub(super) fn first(&self, random: impl FnOnce() -> usize) -> usize {
        match self.order {
            Order::Sequential => 0,
            Order::RoundRobin => self.next.fetch_add(1, Ordering::Relaxed),
            Order::Random => random(),
        }
    }
}
