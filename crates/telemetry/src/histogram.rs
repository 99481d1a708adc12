//! How long things take, in CoreDNS' buckets: a quarter of a millisecond, twice that, and so on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bucket's bound, in nanoseconds.
const FIRST: u64 = 250_000;
/// Buckets with a bound.
const BOUNDED: usize = 16;

/// A histogram of durations. To add one takes two atomic additions.
#[derive(Debug, Default)]
pub struct Durations {
    /// The number of durations in each bucket; the last bucket has no bound.
    buckets: [AtomicU64; BOUNDED + 1],
    nanoseconds: AtomicU64,
}

impl Durations {
    pub fn add(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Each bucket's bound in seconds and its number of durations.
    pub(crate) fn buckets(&self) -> [(f64, u64); BOUNDED + 1] {
        std::array::from_fn(|at| {
            let bound = if at < BOUNDED { (FIRST << at) as f64 / 1e9 } else { f64::INFINITY };
            (bound, self.buckets[at].load(Ordering::Relaxed))
        })
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// The first bucket whose bound is not less.
fn bucket(nanoseconds: u64) -> usize {
    let whole = nanoseconds.saturating_sub(1) / FIRST;
    if whole == 0 { 0 } else { (whole.ilog2() as usize + 1).min(BOUNDED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_in_its_bucket_and_a_moment_more_in_the_next() {
        assert_eq!((bucket(0), bucket(1)), (0, 0));
        for at in 0..BOUNDED {
            let bound = FIRST << at;
            assert_eq!((bucket(bound), bucket(bound + 1)), (at, at + 1), "{bound}");
        }
        assert_eq!(bucket(u64::MAX), BOUNDED);
    }

    #[test]
    fn every_duration_is_in_one_bucket() {
        let durations = Durations::default();
        for milliseconds in [0, 1, 3, 10_000] {
            durations.add(Duration::from_millis(milliseconds));
        }
        let used: Vec<(f64, u64)> = durations.buckets().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(used, [(0.00025, 1), (0.001, 1), (0.004, 1), (f64::INFINITY, 1)]);
        assert!((durations.seconds() - 10.004).abs() < 1e-9);
    }
}
