//! How long things take, in CoreDNS' buckets: a quarter of a millisecond, twice that, and so on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bucket's bound, in nanoseconds.
const FIRST: u64 = 250_000;
/// Buckets with a bound.
const BOUNDED: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// How many were in each bucket and in none before; the last is without a bound.
    buckets: [AtomicU64; BOUNDED + 1],
    nanoseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn add(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanoseconds)].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Each bound in seconds with how many took no longer; the last is how many there were.
    pub(super) fn sums(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let mut sum = 0;
        self.buckets.iter().enumerate().map(move |(at, count)| {
            sum += count.load(Ordering::Relaxed);
            let bound = (at < BOUNDED).then(|| (FIRST << at) as f64 / 1e9);
            (bound, sum)
        })
    }

    pub(super) fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// The first whose bound is not less.
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
    fn sums_grow_up_to_all_there_were() {
        let histogram = Histogram::default();
        for milliseconds in [0, 1, 3, 10_000] {
            histogram.add(Duration::from_millis(milliseconds));
        }
        let sums: Vec<(Option<f64>, u64)> = histogram.sums().collect();
        assert_eq!((sums[0], sums[2]), ((Some(0.00025), 1), (Some(0.001), 2)));
        assert_eq!((sums[4], sums[15], sums[16]), ((Some(0.004), 3), (Some(8.192), 3), (None, 4)));
        assert!((histogram.seconds() - 10.004).abs() < 1e-9);
    }
}
