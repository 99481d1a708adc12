//! How many bytes messages have, in CoreDNS' buckets.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bounds of the buckets, in bytes.
const BOUNDS: [u32; 14] = [0, 100, 200, 300, 400, 511, 1_023, 2_047, 4_095, 8_291, 16_000, 32_000, 48_000, 64_000];

/// A histogram of sizes. To add one takes two atomic additions.
#[derive(Debug, Default)]
pub struct Sizes {
    /// The number of sizes in each bucket; the last bucket has no bound.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    bytes: AtomicU64,
}

impl Sizes {
    pub fn add(&self, bytes: usize) {
        let at = BOUNDS.partition_point(|bound| (*bound as usize) < bytes);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Each bucket's bound and its number of sizes.
    pub(crate) fn buckets(&self) -> [(f64, u64); BOUNDS.len() + 1] {
        std::array::from_fn(|at| {
            let bound = BOUNDS.get(at).map_or(f64::INFINITY, |bound| f64::from(*bound));
            (bound, self.buckets[at].load(Ordering::Relaxed))
        })
    }

    pub(crate) fn bytes(&self) -> f64 {
        self.bytes.load(Ordering::Relaxed) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_in_its_bucket_and_a_byte_more_in_the_next() {
        let sizes = Sizes::default();
        [0, 1, 100, 101, 511, 512, 64_000, 65_535].into_iter().for_each(|bytes| sizes.add(bytes));
        let used: Vec<(f64, u64)> = sizes.buckets().into_iter().filter(|(_, count)| *count > 0).collect();
        let expected = [(0.0, 1), (100.0, 2), (200.0, 1), (511.0, 1), (1_023.0, 1), (64_000.0, 1), (f64::INFINITY, 1)];
        assert_eq!(used, expected);
        assert_eq!(sizes.bytes(), 130_760.0);
    }
}
