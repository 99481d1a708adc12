//! What may be opened, where the input leaves something open.

use crate::port::Traffic;
use std::fmt;

/// Connections that are open whatever the unknowns turn out to be, and those
/// that are open in some case (S10.5). Where all is known the two are equal.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Reachable {
    /// Open in every case.
    pub open: Traffic,
    /// Open in at least one case; never less than `open`.
    pub possible: Traffic,
}

impl Reachable {
    pub fn exactly(traffic: Traffic) -> Self {
        Self { open: traffic.clone(), possible: traffic }
    }

    pub fn all() -> Self {
        Self::exactly(Traffic::all())
    }

    /// Over every case that may turn out.
    pub(crate) fn over(cases: impl Iterator<Item = Traffic>) -> Self {
        let join = |all: Self, more: Self| Self {
            open: all.open.intersect(&more.open),
            possible: all.possible.union(&more.possible),
        };
        cases.map(Self::exactly).reduce(join).unwrap_or_default()
    }

    /// Whether nothing can be open.
    pub fn is_none(&self) -> bool {
        self.possible.is_none()
    }

    /// Whether nothing depends on what the input leaves open.
    pub fn is_certain(&self) -> bool {
        self.open == self.possible
    }

    /// What is open in some cases and closed in others.
    pub fn depends(&self) -> Traffic {
        self.possible.subtract(&self.open)
    }

    pub fn union(&self, other: &Self) -> Self {
        Self { open: self.open.union(&other.open), possible: self.possible.union(&other.possible) }
    }

    pub fn intersect(&self, other: &Self) -> Self {
        Self { open: self.open.intersect(&other.open), possible: self.possible.intersect(&other.possible) }
    }

    /// Only this much of it.
    pub fn limit(&self, to: &Traffic) -> Self {
        Self { open: self.open.intersect(to), possible: self.possible.intersect(to) }
    }
}

/// `TCP 80; depends: TCP 443`.
impl fmt::Display for Reachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_certain() {
            return write!(f, "{}", self.open);
        }
        if !self.open.is_none() {
            write!(f, "{}; ", self.open)?;
        }
        write!(f, "depends: {}", self.depends())
    }
}
