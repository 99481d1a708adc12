//! What one row may open to one column, and how that is shown.

use namewall_policy::port::Traffic;
use std::fmt;

/// A cell of a chart.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Cell {
    /// What is open whatever else is the case.
    pub(crate) open: Traffic,
    /// What is open or closed by what is not known; never a part of `open`.
    pub(crate) maybe: Traffic,
    /// What `maybe` depends on.
    pub(crate) conditions: Vec<String>,
    /// `open` is not open for all that the row and the column stand for.
    pub(crate) in_part: bool,
    /// Pods on the network of a node open everything to the pods of that node (S1).
    pub(crate) own_node: bool,
    /// There is nothing to say: a pod to itself, or a pair that was not asked for.
    pub(crate) moot: bool,
    /// Of pairs of namespaces: how many of their pairs of workloads are open.
    pub(crate) pairs: Option<Pairs>,
    /// More to read, a line each: what is open to which addresses outside.
    pub(crate) details: Vec<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pairs {
    pub(crate) open: usize,
    pub(crate) depends: usize,
    pub(crate) all: usize,
}

/// The three answers, by the sign that every format has for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    Open,
    Closed,
    Depends,
}

impl Sign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Open => "+",
            Self::Closed => "·",
            Self::Depends => "?",
        }
    }
}

/// How a cell is coloured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fill {
    Moot,
    Nothing,
    Some,
    Everything,
    Depends,
}

impl Fill {
    /// Its name in style sheets.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Moot => "moot",
            Self::Nothing => "none",
            Self::Some => "some",
            Self::Everything => "all",
            Self::Depends => "depends",
        }
    }
}

impl Cell {
    pub(crate) fn of(open: Traffic) -> Self {
        Self { open, ..Self::default() }
    }

    pub(crate) fn moot() -> Self {
        Self { moot: true, ..Self::default() }
    }

    pub(crate) fn sign(&self) -> Sign {
        if !self.open.is_none() {
            Sign::Open
        } else if !self.maybe.is_none() {
            Sign::Depends
        } else {
            Sign::Closed
        }
    }

    pub(crate) fn fill(&self) -> Fill {
        match self.sign() {
            _ if self.moot => Fill::Moot,
            Sign::Closed => Fill::Nothing,
            Sign::Depends => Fill::Depends,
            Sign::Open if self.open.is_all() && !self.in_part => Fill::Everything,
            Sign::Open => Fill::Some,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.moot {
            return f.write_str("not asked");
        }
        match self.sign() {
            Sign::Depends => write!(f, "depends: {}", self.maybe)?,
            _ if self.maybe.is_none() => write!(f, "{}", self.open)?,
            _ => write!(f, "{}; depends: {}", self.open, self.maybe)?,
        }
        let conditions = self.conditions.join("; ");
        // What is open to one address may depend on something for another.
        let is_mixed = self.maybe.is_none();
        if !conditions.is_empty() && !is_mixed {
            write!(f, " ({conditions})")?;
        }
        match self.pairs {
            Some(Pairs { open, all, .. }) if self.in_part => write!(f, ", in {open} of {all} pairs")?,
            None if self.in_part => f.write_str(", in part")?,
            _ => {}
        }
        if !conditions.is_empty() && is_mixed {
            write!(f, "; some of it depends ({conditions})")?;
        }
        if self.own_node {
            f.write_str("; everything on its own node")?;
        }
        Ok(())
    }
}
