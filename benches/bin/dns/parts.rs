//! What is measured of every forwarder.
//!
//! All take turns, and a figure is a median over rounds; a ratio is taken
//! within a round, since what disturbs the machine disturbs neighbours alike.

use crate::cases::{Seat, in_turn};
use crate::load::{Load, Names};
use crate::rig::{Measured, TakenOver};
use crate::wire::Answers;
use anyhow::Result;
use namewall_bench::figures::{figure, median};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// More than anybody bears: each does as much as it can.
    cpu: Rounds,
    cpu_light: Rounds,
    latency: Rounds,
    /// Each round is a search.
    rate: Rounds,
    /// Halvings of a search.
    halvings: usize,
    endurance: Duration,
    steady: Rounds,
    flood: Duration,
    take_overs: usize,
    /// So long is asked while the process is killed and comes back.
    kill: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Rounds {
    count: usize,
    rate: u32,
    lasts: Duration,
}

pub(crate) const FULL: Sizes = Sizes {
    cpu: Rounds { count: 5, rate: 100_000, lasts: Duration::from_secs(4) },
    cpu_light: Rounds { count: 3, rate: 10_000, lasts: Duration::from_secs(6) },
    // Many short ones: a stall of the machine is in few of them.
    latency: Rounds { count: 48, rate: 5_000, lasts: Duration::from_millis(500) },
    rate: Rounds { count: 3, rate: 4_000, lasts: Duration::from_millis(1_500) },
    halvings: 4,
    endurance: Duration::from_secs(60),
    steady: Rounds { count: 40, rate: 5_000, lasts: Duration::from_millis(1_500) },
    flood: Duration::from_secs(50),
    take_overs: 100,
    kill: Duration::from_secs(10),
};

/// At rates that a busy machine bears, too.
pub(crate) const QUICK: Sizes = Sizes {
    cpu: Rounds { count: 1, rate: 4_000, lasts: Duration::from_millis(500) },
    cpu_light: Rounds { count: 1, rate: 2_000, lasts: Duration::from_millis(500) },
    latency: Rounds { count: 2, rate: 1_000, lasts: Duration::from_millis(200) },
    rate: Rounds { count: 1, rate: 8_000, lasts: Duration::from_millis(100) },
    halvings: 1,
    endurance: Duration::from_secs(1),
    steady: Rounds { count: 2, rate: 1_000, lasts: Duration::from_millis(500) },
    flood: Duration::from_secs(1),
    take_overs: 2,
    kill: Duration::from_secs(3),
};

const LATENCIES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("longest", 1.0)];
/// Of all questions.
const BEARABLE_LOSS: f64 = 0.0001;
/// More than anybody's.
const HIGHEST_RATE: u32 = 1 << 20;
const HEAVY: u32 = 20_000;
const STALL_MS: f64 = 10.0;
const TAKE_OVER_ROUNDS: usize = 3;
/// Names with two addresses each: more than are asked of a node, and as many as the kernel's own clean-up
/// was seen to stumble over.
const MANY: u32 = 140_000;

/// With all the load it can bear, and with little. With little most of it is what sleeping and waking
/// cost, of which two systems differ by how long they let questions wait for each other.
pub(crate) fn cpu(seats: &mut [Seat], sizes: &Sizes) -> Result<()> {
    let a_question = |measured: &Measured| measured.cpu.as_secs_f64() * 1e6 / measured.outcome.answered as f64;
    let Rounds { count, rate, lasts } = sizes.cpu;
    let full = in_turn(seats, count, |seat| seat.try_load(rate, lasts))?;
    // Silence is what no socket had room for; SERVFAIL is an answer that was there and came to nothing.
    let failed = |measured: &Measured| measured.outcome.failed as f64 / measured.outcome.sent as f64;
    tell(seats, "cpu_failed_share", &of_each(&full, failed));
    let full = of_each(&full, a_question);
    let Rounds { count, rate, lasts } = sizes.cpu_light;
    let light = in_turn(seats, count, |seat| Ok(a_question(&seat.bear(rate, lasts)?)))?;
    for (what, measured) in [("cpu", full), ("cpu_light", light)] {
        tell(seats, what, &measured);
        ratios(seats, what, &measured);
    }
    Ok(())
}

pub(crate) fn latency(seats: &mut [Seat], sizes: &Sizes) -> Result<()> {
    let Rounds { count, rate, lasts } = sizes.latency;
    let one = |seat: &mut Seat| -> Result<[f64; 4]> {
        let outcome = seat.bear(rate, lasts)?.outcome;
        Ok(LATENCIES.map(|(_, share)| outcome.quantile(share)))
    };
    let measured = in_turn(seats, count, one)?;
    for (at, (name, _)) in LATENCIES.iter().enumerate() {
        let values: Vec<Vec<f64>> =
            measured.iter().map(|rounds| rounds.iter().map(|latencies| latencies[at]).collect()).collect();
        tell(seats, name, &values);
        ratios(seats, name, &values);
        let Some(without) = of(seats, &values, "namewall_off") else { continue };
        for (case, figure_of) in [("namewall", "adds"), ("namewall_fresh", "adds_fresh")] {
            let Some(with) = of(seats, &values, case) else { continue };
            let added: Vec<f64> = with.iter().zip(without).map(|(with, without)| with - without).collect();
            figure(&format!("dns_learning_{figure_of}_{name}"), median(&added));
        }
    }
    Ok(())
}

pub(crate) fn rate(seats: &mut [Seat], sizes: &Sizes) -> Result<()> {
    let one = |seat: &mut Seat| -> Result<f64> {
        // Those tell of single answers; so many more names would only tell of memory.
        if seat.case.is_aliased() || seat.case.is_fresh() { Ok(f64::NAN) } else { highest_rate(seat, sizes) }
    };
    let measured = in_turn(seats, sizes.rate.count, one)?;
    tell(seats, "rate", &measured);
    ratios(seats, "rate", &measured);
    Ok(())
}

/// Doubled until it is too much, then halved between.
fn highest_rate(seat: &mut Seat, sizes: &Sizes) -> Result<f64> {
    let (mut low, mut high) = (0, sizes.rate.rate);
    while high <= HIGHEST_RATE && bears(seat, high, sizes.rate.lasts)? {
        low = high;
        high *= 2;
    }
    for _ in 0..sizes.halvings {
        // The same ratio on both sides, as far as there is one.
        let middle = if low == 0 { high / 2 } else { (f64::from(low) * f64::from(high)).sqrt() as u32 };
        if bears(seat, middle, sizes.rate.lasts)? { low = middle } else { high = middle }
    }
    Ok(f64::from(low))
}

/// A second try is for what the machine did meanwhile.
fn bears(seat: &mut Seat, rate: u32, lasts: Duration) -> Result<bool> {
    for _ in 0..2 {
        let outcome = seat.try_load(rate, lasts)?.outcome;
        let is_sent_in_time = outcome.took < lasts.mul_f64(1.03);
        if is_sent_in_time && (outcome.lost() as f64) < outcome.sent as f64 * BEARABLE_LOSS {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What came together over all loads that everyone should bear.
pub(crate) fn totals(seats: &[Seat]) -> Result<()> {
    for seat in seats {
        let name = seat.case.name;
        figure(&format!("dns_sent_{name}"), seat.sent as f64);
        figure(&format!("dns_lost_{name}"), seat.lost as f64);
        figure(&format!("dns_failed_{name}"), seat.failed as f64);
        figure(&format!("dns_wrong_{name}"), seat.wrong as f64);
        figure(&format!("dns_drops_{name}"), seat.drops as f64);
        figure(&format!("dns_away_{name}"), seat.away.as_secs_f64() / seat.took.as_secs_f64());
        figure(&format!("dns_memory_{name}"), seat.rig.peak_memory()?);
    }
    Ok(())
}

/// Many names at a high rate, then at a rate at which nobody should ever have to wait.
pub(crate) fn endurance(mut seat: impl FnMut(&str) -> Option<Seat>, sizes: &Sizes) -> Result<()> {
    let answers = Answers { ttl: 600, aliased: false };
    let fill = Load { rate: HEAVY, lasts: sizes.endurance, names: Names::Known(MANY), answers, is_patient: false };
    let Some(mut ours) = seat("namewall") else { return Ok(()) };
    let Measured { outcome, drops, .. } = ours.rig.run(fill)?;
    figure("dns_endurance_addresses", outcome.sent.min(2 * u64::from(MANY)) as f64);
    figure("dns_endurance_lost", outcome.lost() as f64);
    figure("dns_endurance_failed", outcome.failed as f64);
    figure("dns_endurance_wrong", outcome.wrong as f64);
    figure("dns_endurance_drops", drops as f64);
    figure("dns_endurance_longest_ms", outcome.quantile(1.0) / 1e3);
    let mut seats = vec![ours];
    seats.extend(seat("dnsdist"));
    let Rounds { count, rate, lasts } = sizes.steady;
    let light = Load { rate, lasts, names: Names::Random(MANY), answers, is_patient: false };
    steady(&mut seats, count, light)
}

/// A virtual machine is itself away for more than ten milliseconds now and then. What a server does of its
/// own accord it does however quiet the machine is; so it takes turns with a peer that learns nothing, and
/// the waits of both are told: of a usual turn, and how many turns had a long one.
fn steady(seats: &mut [Seat], turns: usize, load: Load) -> Result<()> {
    let measured = in_turn(seats, turns, |seat| Ok(seat.rig.run(load)?.outcome.quantile(1.0) / 1e3))?;
    for (seat, longest) in seats.iter().zip(&measured) {
        let name = seat.case.name;
        let stalls = longest.iter().filter(|longest| **longest > STALL_MS).count();
        figure(&format!("dns_steady_longest_{name}_ms"), median(longest));
        figure(&format!("dns_steady_stalls_{name}"), stalls as f64 / turns as f64);
    }
    ratios(seats, "steady_longest", &measured);
    Ok(())
}

/// A million addresses, or as many as there is time for, that are worth nothing any more soon after.
pub(crate) fn flood(mut seat: impl FnMut(&str) -> Option<Seat>, sizes: &Sizes) -> Result<()> {
    let Some(mut seat) = seat("namewall_fresh") else { return Ok(()) };
    let answers = Answers { ttl: 5, aliased: false };
    let half = Load { rate: HEAVY, lasts: sizes.flood / 2, names: Names::Fresh, answers, is_patient: false };
    seat.rig.run(half)?;
    let middle = seat.rig.peak_memory()?;
    let outcome = seat.rig.run(half)?.outcome;
    figure("dns_flood_addresses", outcome.sent as f64 * 2.0);
    figure("dns_flood_peak", seat.rig.peak_memory()?);
    figure("dns_flood_growth", seat.rig.peak_memory()? / middle);
    figure("dns_flood_left", seat.rig.memory()?);
    Ok(())
}

/// One process after the other takes over while questions come at a rate that nobody should notice it at. Of several
/// rounds the counts are sums, and the longest wait is a median: in one of them the machine itself may be away.
pub(crate) fn take_overs(mut seat: impl FnMut(&str) -> Option<Seat>, sizes: &Sizes) -> Result<()> {
    let times = sizes.take_overs.div_ceil(TAKE_OVER_ROUNDS);
    let (mut all, mut longest) = (TakenOver::default(), Vec::new());
    for _ in 0..TAKE_OVER_ROUNDS {
        let Some(mut seat) = seat("namewall_two_loops") else { return Ok(()) };
        let load = seat.load(sizes.latency.rate, sizes.steady.lasts);
        let TakenOver { sent, lost, failed, longest_ms } = seat.rig.run_while_taken_over(load, times)?;
        all.sent += sent;
        all.lost += lost;
        all.failed += failed;
        longest.push(longest_ms);
    }
    figure("dns_take_overs", (times * TAKE_OVER_ROUNDS) as f64);
    figure("dns_take_overs_sent", all.sent as f64);
    figure("dns_take_overs_lost", all.lost as f64);
    figure("dns_take_overs_failed", all.failed as f64);
    figure("dns_take_overs_longest_ms", median(&longest));
    Ok(())
}

/// The process is killed, and started again as a supervisor does.
pub(crate) fn kill(mut seat: impl FnMut(&str) -> Option<Seat>, sizes: &Sizes) -> Result<()> {
    let Some(mut seat) = seat("namewall_two_loops") else { return Ok(()) };
    let load = Load { is_patient: true, ..seat.load(sizes.latency.rate, sizes.kill) };
    let outcome = seat.rig.run_while_killed(load)?;
    figure("dns_kill_silence_s", outcome.silence.as_secs_f64());
    figure("dns_kill_lost", outcome.lost() as f64);
    Ok(())
}

/// Something of every round.
fn of_each(measured: &[Vec<Measured>], figure: impl Fn(&Measured) -> f64) -> Vec<Vec<f64>> {
    measured.iter().map(|rounds| rounds.iter().map(&figure).collect()).collect()
}

fn of<'a>(seats: &[Seat], measured: &'a [Vec<f64>], name: &str) -> Option<&'a [f64]> {
    seats.iter().zip(measured).find(|(seat, _)| seat.case.name == name).map(|(_, rounds)| &rounds[..])
}

fn tell(seats: &[Seat], what: &str, measured: &[Vec<f64>]) {
    for (seat, rounds) in seats.iter().zip(measured) {
        if rounds.iter().all(|value| value.is_finite()) {
            figure(&format!("dns_{what}_{}", seat.case.name), median(rounds));
        }
    }
}

/// To every peer's.
fn ratios(seats: &[Seat], what: &str, measured: &[Vec<f64>]) {
    for (seat, ours) in seats.iter().zip(measured).filter(|(seat, _)| seat.case.is_compared()) {
        for peer in seat.case.peers() {
            let Some(theirs) = of(seats, measured, &peer) else { continue };
            let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
            if ratios.iter().all(|ratio| ratio.is_finite()) {
                figure(&format!("dns_{what}_{}_of_{peer}", seat.case.name), median(&ratios));
            }
        }
    }
}
