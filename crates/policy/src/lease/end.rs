//! When leases end, in few bytes: a table has hundreds of thousands of them.

use super::Instant;
use std::time::Duration;

/// A number of 64 bits that fits between smaller ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Halves {
    high: u32,
    low: u32,
}

impl From<u64> for Halves {
    fn from(number: u64) -> Self {
        Self { high: (number >> 32) as u32, low: number as u32 }
    }
}

impl From<Halves> for u64 {
    fn from(Halves { high, low }: Halves) -> Self {
        Self::from(high) << 32 | Self::from(low)
    }
}

/// A moment to the nanosecond. One that is more than 584 years away is never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment(Halves);

impl From<Instant> for Moment {
    fn from(at: Instant) -> Self {
        Self(u64::try_from(at.0.as_nanos()).unwrap_or(u64::MAX).into())
    }
}

impl From<Moment> for Instant {
    fn from(at: Moment) -> Self {
        match u64::from(at.0) {
            u64::MAX => Self(Duration::MAX),
            nanos => Self(Duration::from_nanos(nanos)),
        }
    }
}

/// The number of a grant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Grant(Halves);

impl From<u64> for Grant {
    fn from(number: u64) -> Self {
        Self(number.into())
    }
}

impl From<Grant> for u64 {
    fn from(grant: Grant) -> Self {
        grant.0.into()
    }
}

/// When a lease ends. Of those that end at once, the one that was granted first is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LeaseEnd {
    pub(super) expiry: Moment,
    pub(super) grant: Grant,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_as_exact_as_the_instant_it_was_made_of() {
        let instants =
            [0, 1, 1 << 32, u64::from(u32::MAX), u64::MAX - 1].map(|nanos| Instant(Duration::from_nanos(nanos)));
        for (at, one) in instants.into_iter().enumerate() {
            assert_eq!(Instant::from(Moment::from(one)), one);
            for (other_at, other) in instants.into_iter().enumerate() {
                assert_eq!(Moment::from(one).cmp(&other.into()), one.cmp(&other), "{at} and {other_at}");
            }
        }
        assert_eq!(Instant::from(Moment::from(Instant(Duration::MAX))), Instant(Duration::MAX));
        assert!(Moment::from(Instant(Duration::MAX)) > Moment::from(instants[4]));
        assert_eq!(u64::from(Grant::from(u64::MAX / 3)), u64::MAX / 3);
    }
}
