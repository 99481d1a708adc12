//! How many different things there were, without keeping them: HyperLogLog (Flajolet and others, 2007).

/// A power of two.
const REGISTERS: usize = 128;
/// Bits of a hash that choose its register.
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();

/// A set of hashes of which only an estimate of the size is kept, in 128 bytes. Its standard error is
/// 1.04/√128, 9.2 %; that of sets of up to some forty is 7 %.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sketch {
    /// For each part of the hashes: the most zeros that one of them begins with, and one more.
    registers: [u8; REGISTERS],
}

impl Default for Sketch {
    fn default() -> Self {
        Self { registers: [0; REGISTERS] }
    }
}

impl Sketch {
    /// Adds a hash. Returns false if that changes nothing.
    pub(crate) fn add(&mut self, hash: u64) -> bool {
        let at = (hash >> (u64::BITS - INDEX_BITS)) as usize;
        let zeros = (hash << INDEX_BITS).leading_zeros().min(u64::BITS - INDEX_BITS) as u8 + 1;
        let Some(register) = self.registers.get_mut(at).filter(|register| **register < zeros) else { return false };
        *register = zeros;
        true
    }

    /// About how many different hashes are in this set or the other.
    pub(crate) fn count_with(&self, other: &Self) -> u64 {
        let registers = REGISTERS as f64;
        let (mut sum, mut empty) = (0.0, 0_u32);
        for (own, others) in self.registers.iter().zip(&other.registers) {
            let most = *own.max(others);
            empty += u32::from(most == 0);
            sum += 0.5_f64.powi(most.into());
        }
        let estimate = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        // While registers are empty, their number says more.
        let estimate = match empty {
            1.. if estimate <= 2.5 * registers => registers * (registers / f64::from(empty)).ln(),
            _ => estimate,
        };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    /// The sets `from..to` of one of many experiments.
    fn set(experiment: u32, numbers: std::ops::Range<u32>) -> Sketch {
        let hashes = BuildHasherDefault::<DefaultHasher>::default();
        let mut sketch = Sketch::default();
        numbers.for_each(|number| _ = sketch.add(hashes.hash_one((experiment, number))));
        sketch
    }

    #[test]
    fn the_error_is_the_one_that_is_stated() {
        for (size, largest) in
            [(1, 0.01), (10, 0.08), (40, 0.08), (100, 0.09), (400, 0.11), (1_000, 0.1), (20_000, 0.1)]
        {
            let errors = (0..200).map(|experiment| {
                let told = set(experiment, 0..size).count_with(&Sketch::default());
                (told as f64 - f64::from(size)) / f64::from(size)
            });
            let errors: Vec<f64> = errors.collect();
            let mean = errors.iter().sum::<f64>() / 200.0;
            let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / 200.0).sqrt();
            assert!(mean.abs() < 0.05, "{size}: {mean} on average");
            assert!(deviation < largest, "{size}: a standard error of {deviation}");
        }
    }

    #[test]
    fn what_is_in_both_counts_once() {
        let (a, b) = (set(1, 0..30), set(1, 20..40));
        let told = a.count_with(&b);
        assert!((38..=42).contains(&told), "{told}");
        assert_eq!(a.count_with(&b), b.count_with(&a));
        assert_eq!(Sketch::default().count_with(&Sketch::default()), 0);
    }

    #[test]
    fn what_was_there_changes_nothing() {
        let mut sketch = set(2, 0..1_000);
        let before = sketch.clone();
        let hashes = BuildHasherDefault::<DefaultHasher>::default();
        assert!((0..1_000).all(|number| !sketch.add(hashes.hash_one((2_u32, number)))));
        assert_eq!(sketch, before);
        assert!(Sketch::default().add(0) && Sketch::default().add(u64::MAX));
    }
}
