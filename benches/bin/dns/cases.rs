//! What is measured: forwarders, each with the names it is asked for.

use crate::forwarder::{Forwarder, Loops, Programs};
use crate::load::{Load, Names};
use crate::rig::{Cores, Measured, Rig};
use crate::wire::Answers;
use anyhow::{Context, Result};
use std::time::Duration;

/// Few, as the names that a node's pods keep asking for.
const KNOWN: Names = Names::Known(1_000);
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Case {
    /// The name of its figures.
    pub(crate) name: &'static str,
    pub(crate) forwarder: Forwarder,
    names: Names,
    aliased: bool,
}

const LEARNING: Forwarder = Forwarder::Namewall { learning: true, is_large: true, loops: Loops::AsUsual };

const fn looped(loops: u8) -> Forwarder {
    Forwarder::Namewall { learning: true, is_large: true, loops: Loops::OnAllCores(loops) }
}

const fn case(name: &'static str, forwarder: Forwarder) -> Case {
    Case { name, forwarder, names: KNOWN, aliased: false }
}

pub(crate) const CASES: [Case; 18] = [
    case("upstream", Forwarder::Nobody),
    case("copier", Forwarder::Copier),
    case("dnsdist", Forwarder::Dnsdist),
    case("namewall_off", Forwarder::Namewall { learning: false, is_large: true, loops: Loops::AsUsual }),
    case("namewall", LEARNING),
    Case { names: Names::Fresh, ..case("namewall_fresh", LEARNING) },
    // How far two of the same are apart on this machine today.
    case("dnsdist_again", Forwarder::Dnsdist),
    case("unbound", Forwarder::Unbound),
    case("coredns", Forwarder::CoreDns { kubernetes: false }),
    case("coredns_kubernetes", Forwarder::CoreDns { kubernetes: true }),
    Case { aliased: true, ..case("dnsdist_aliased", Forwarder::Dnsdist) },
    Case { aliased: true, ..case("namewall_aliased", LEARNING) },
    case("namewall_rules_10", Forwarder::Firewall { rules: 10 }),
    case("coredns_rules_10", Forwarder::CoreDnsView { rules: 10 }),
    case("namewall_rules_100", Forwarder::Firewall { rules: 100 }),
    case("coredns_rules_100", Forwarder::CoreDnsView { rules: 100 }),
    // On all cores, of which the load has one, too.
    case("namewall_one_loop", looped(1)),
    case("namewall_two_loops", looped(2)),
];

/// Plain forwarders that ratios are taken to.
const PEERS: [&str; 4] = ["dnsdist", "unbound", "coredns", "coredns_kubernetes"];

impl Case {
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.forwarder, Forwarder::Namewall { .. } | Forwarder::Firewall { .. })
    }

    /// The same with no more room than it has unless it is told.
    pub(crate) fn as_it_is(self) -> Self {
        match self.forwarder {
            Forwarder::Namewall { learning, loops, .. } => {
                Self { forwarder: Forwarder::Namewall { learning, is_large: false, loops }, ..self }
            }
            _ => self,
        }
    }

    /// Whether it is held against others.
    pub(crate) fn is_compared(&self) -> bool {
        self.is_ours() || ["copier", "dnsdist_again"].contains(&self.name)
    }

    /// Whom its figures are held against: those who do the same.
    pub(crate) fn peers(&self) -> Vec<String> {
        match self.forwarder {
            Forwarder::Firewall { rules } => vec![format!("coredns_rules_{rules}")],
            _ if self.forwarder.is_on_all_cores() => vec!["namewall_one_loop".to_owned()],
            _ if self.aliased => PEERS.map(|peer| format!("{peer}_aliased")).to_vec(),
            _ => PEERS.map(str::to_owned).to_vec(),
        }
    }

    /// Whether it tells only what aliases cost.
    pub(crate) fn is_aliased(&self) -> bool {
        self.aliased
    }

    /// Whether its forwarder has something new to remember of every answer.
    pub(crate) fn is_fresh(&self) -> bool {
        self.names == Names::Fresh
    }
}

/// A case that is set up.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) case: Case,
    pub(crate) rig: Rig,
    /// Over all loads that everyone should bear.
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
    pub(crate) drops: u64,
    /// How long that took, and how long more because the load's thread was not let run.
    pub(crate) took: Duration,
    pub(crate) away: Duration,
}

impl Seat {
    fn take(case: Case, programs: &Programs, cores: &Cores) -> Result<Self> {
        let rig = Rig::start(case.forwarder, programs, cores)?;
        let (took, away) = (Duration::ZERO, Duration::ZERO);
        let mut seat = Self { case, rig, sent: 0, lost: 0, failed: 0, wrong: 0, drops: 0, took, away };
        // Names are learned, buffers are made, a runtime finds its pace.
        seat.rig.run(seat.load(2_000, WARM_UP))?;
        Ok(seat)
    }

    pub(crate) fn load(&self, rate: u32, lasts: Duration) -> Load {
        let answers = Answers { ttl: 60, aliased: self.case.aliased };
        Load { rate, lasts, names: self.case.names, answers, is_patient: false }
    }

    /// A load that may be too much.
    pub(crate) fn try_load(&mut self, rate: u32, lasts: Duration) -> Result<Measured> {
        let measured = self.rig.run(self.load(rate, lasts)).with_context(|| self.case.name)?;
        if measured.own_drops > 0 {
            eprintln!("{}: {} datagrams were lost by the harness itself", self.case.name, measured.own_drops);
        }
        Ok(measured)
    }

    /// A load that everyone should bear.
    pub(crate) fn bear(&mut self, rate: u32, lasts: Duration) -> Result<Measured> {
        let measured = self.try_load(rate, lasts)?;
        self.sent += measured.outcome.sent;
        self.lost += measured.outcome.lost();
        self.failed += measured.outcome.failed;
        self.wrong += measured.outcome.wrong;
        self.drops += measured.drops;
        self.took += measured.outcome.took;
        self.away += measured.outcome.away;
        Ok(measured)
    }
}

/// Sets up what can be; says of the others why not.
pub(crate) fn seats(cases: &[Case], programs: &Programs, cores: &Cores) -> Vec<Seat> {
    let mut seats = Vec::new();
    for &case in cases {
        match Seat::take(case, programs, cores) {
            Ok(seat) => seats.push(seat),
            Err(error) => eprintln!("{} cannot be compared ({}): {error:#}", case.name, case.forwarder),
        }
    }
    seats
}

/// Measures all in turn, round after round: by seat, by round.
pub(crate) fn in_turn<T>(
    seats: &mut [Seat],
    rounds: usize,
    mut measure: impl FnMut(&mut Seat) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut measured: Vec<Vec<T>> = seats.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for at in 0..seats.len() {
            // Everyone comes after everyone, sooner or later.
            let at = (at + round) % seats.len();
            measured[at].push(measure(&mut seats[at])?);
        }
    }
    Ok(measured)
}
