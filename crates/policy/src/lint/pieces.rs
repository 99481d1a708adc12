//! Sets cut into pieces by what is matched of each: the arithmetic under
//! [`cover`](super::cover).

use crate::addr::AddrSet;
use crate::bits::BitSet;
use crate::interval::{IntervalSet, Point};
use crate::port::{Protocol, Traffic, usable_ports};
use crate::program::PortSpec;
use std::sync::Arc;

/// Pieces beyond which nothing is claimed.
const MOST_PIECES: usize = 64;

/// Ports that rules match together, for one and the same peer.
#[derive(Clone, Default)]
pub(super) struct Matched {
    numbered: Traffic,
    named: Vec<(Option<Protocol>, Arc<str>)>,
}

impl Matched {
    pub(super) fn add(&mut self, ports: &PortSpec) {
        self.numbered = self.numbered.union(&ports.numbered);
        self.named.extend(ports.named.iter().cloned());
    }

    pub(super) fn holds(&self, wanted: &PortSpec) -> bool {
        wanted.numbered.is_subset(&self.numbered)
            && wanted.named.iter().all(|(protocol, name)| self.holds_name(*protocol, name))
    }

    /// Which number a name has is the destination's affair: only the same name, or every number, is sure.
    fn holds_name(&self, protocol: Option<Protocol>, name: &Arc<str>) -> bool {
        let whole = |protocol| self.numbered.ports(protocol).is_some_and(|ports| usable_ports().is_subset(ports));
        let by_number = match protocol {
            Some(protocol) => whole(protocol),
            None => Protocol::WITH_PORTS.into_iter().all(whole),
        };
        by_number || self.named.iter().any(|(p, n)| n == name && (p.is_none() || *p == protocol))
    }
}

/// A set that can be cut in two.
pub(super) trait Region: Sized {
    fn within(&self, part: &Self) -> Option<Self>;
    fn outside(&self, part: &Self) -> Option<Self>;
}

impl Region for BitSet {
    fn within(&self, part: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.intersect_with(part);
        (!both.is_empty()).then_some(both)
    }

    fn outside(&self, part: &Self) -> Option<Self> {
        let mut rest = self.clone();
        rest.subtract(part);
        (!rest.is_empty()).then_some(rest)
    }
}

impl Region for AddrSet {
    fn within(&self, part: &Self) -> Option<Self> {
        let both = Self { v4: clip(&self.v4, &part.v4), v6: clip(&self.v6, &part.v6) };
        (!both.is_empty()).then_some(both)
    }

    fn outside(&self, part: &Self) -> Option<Self> {
        let rest = self.within(part).map_or_else(|| self.clone(), |both| self.subtract(&both));
        (!rest.is_empty()).then_some(rest)
    }
}

/// The intersection, at the cost of the small set where the other is large.
fn clip<P: Point>(small: &IntervalSet<P>, large: &IntervalSet<P>) -> IntervalSet<P> {
    let mut ranges = Vec::new();
    for &(low, high) in small.ranges() {
        let from = large.ranges().partition_point(|&(_, end)| end < low);
        let meeting = large.ranges()[from..].iter().take_while(|&&(start, _)| start <= high);
        ranges.extend(meeting.map(|&(start, end)| (start.max(low), end.min(high))));
    }
    IntervalSet::from_ranges(ranges)
}

/// Whether every piece of the whole has all wanted ports matched by the parts it is in.
pub(super) fn pieces_held<'p, R: Region + 'p>(
    whole: R,
    wanted: &PortSpec,
    parts: impl Iterator<Item = (&'p R, &'p PortSpec)>,
) -> bool {
    let mut open: Vec<(R, Matched)> = vec![(whole, Matched::default())];
    open.retain(|(piece, _)| piece.within(piece).is_some());
    for (part, ports) in parts {
        if open.is_empty() {
            break;
        }
        let mut still = Vec::new();
        for (piece, mut matched) in open {
            let Some(inside) = piece.within(part) else {
                still.push((piece, matched));
                continue;
            };
            if let Some(outside) = piece.outside(&inside) {
                still.push((outside, matched.clone()));
            }
            matched.add(ports);
            if !matched.holds(wanted) {
                still.push((inside, matched));
            }
        }
        if still.len() > MOST_PIECES {
            return false;
        }
        open = still;
    }
    open.is_empty()
}
