//! Ways to upstreams.

use super::settings::{self, UpstreamOrder, UpstreamTransport};
use crate::wire::Rcode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A route of the settings, with its upstreams by their numbers. Queries under way keep theirs when the
/// settings change.
#[derive(Debug, Default)]
pub(super) struct Route {
    pub(super) upstreams: Vec<usize>,
    pub(super) order: UpstreamOrder,
    pub(super) way: UpstreamTransport,
    pub(super) failover: Vec<Rcode>,
    pub(super) tries: Option<u8>,
    pub(super) fails_fast: bool,
    most_queries: Option<u32>,
    load: Arc<RouteLoad>,
}

/// What routes of several loops have in common.
#[derive(Debug, Default)]
pub(super) struct RouteLoad {
    under_way: AtomicU32,
    next: AtomicUsize,
}

impl Route {
    /// Those in this order.
    pub(super) fn to(upstreams: Vec<usize>) -> Self {
        Self { upstreams, ..Self::default() }
    }

    pub(super) fn new(settings: &settings::Route, upstreams: Vec<usize>, load: Arc<RouteLoad>) -> Self {
        Self {
            upstreams,
            order: settings.order,
            way: settings.way,
            failover: settings.failover.clone(),
            tries: settings.tries,
            fails_fast: settings.fails_fast,
            most_queries: settings.most_queries,
            load,
        }
    }

    /// Room for one more query, unless there are too many.
    pub(super) fn enter(&self) -> Option<RouteSlot> {
        let before = self.load.under_way.fetch_add(1, Ordering::Relaxed);
        let place = RouteSlot(self.load.clone());
        self.most_queries.is_none_or(|most| before < most).then_some(place)
    }

    /// Where the next query begins; `random` is any number.
    pub(super) fn first(&self, random: impl FnOnce() -> usize) -> usize {
        match self.order {
            UpstreamOrder::Sequential => 0,
            UpstreamOrder::RoundRobin => self.load.next.fetch_add(1, Ordering::Relaxed),
            UpstreamOrder::Random => random(),
        }
    }
}

/// A query's place among those under way by a route, until it is dropped.
#[derive(Debug)]
pub(super) struct RouteSlot(Arc<RouteLoad>);

impl Drop for RouteSlot {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
