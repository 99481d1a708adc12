//! What a question costs through namewall's forwarder, beside dnsdist, unbound
//! and CoreDNS as plain forwarders: CPU time, latency, how many without loss,
//! memory.
//!
//! `wire` is the little DNS it takes, `upstream` answers and `load` asks;
//! `copier` does nothing but forward, `forwarder` says how each is started, `rules` what judges questions where something does, `process` what it used, `rig` puts them
//! together in a namespace, `cases` are those measured, and `parts` what is
//! measured of them. Figures are held against goals by `scripts/bench`.

mod cases;
mod copier;
mod datagrams;
mod forwarder;
mod load;
mod parts;
mod process;
mod rig;
mod rules;
mod upstream;
mod wire;

use anyhow::{Result, ensure};
use cases::{CASES, Case, Seat};
use clap::{Parser, ValueEnum};
use forwarder::Programs;
use namewall_bench::figures::figure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parts::{FULL, QUICK};
use rig::Cores;

/// Measures what questions cost; says `figure NAME VALUE` lines
#[derive(Parser)]
struct Args {
    /// Half a minute of it, to see that all of it works; fails if answers of namewall are missing or wrong
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Only these cases, by the names of their figures
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// Be the forwarder that only copies
    #[arg(long, hide = true)]
    copy: bool,
    #[command(flatten)]
    programs: Programs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Part {
    /// CPU time a question
    Cpu,
    /// How long answers take
    Latency,
    /// How many questions a second without loss
    Rate,
    /// A long load of many names, then a light one
    Endurance,
    /// A name for every question
    Flood,
    /// Processes that take over from each other
    TakeOvers,
    /// A process that is killed
    Kill,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.copy {
        return copier::serve();
    }
    namewall_sandbox::ensure_rights()?;
    raise_limit_of_files();
    let cores = Cores::choose()?;
    let sizes = if args.quick { QUICK } else { FULL };
    let chosen = |case: &&Case| args.cases.is_empty() || args.cases.iter().any(|name| name == case.name);
    let cases: Vec<Case> = CASES.iter().filter(chosen).copied().collect();
    ensure!(!cases.is_empty(), "no such case; there are {}", CASES.map(|case| case.name).join(", "));
    let does = |part| args.parts.is_empty() || args.parts.contains(&part);

    let mut seats = cases::seats(&cases, &args.programs, &cores);
    if does(Part::Cpu) {
        parts::cpu(&mut seats, &sizes)?;
    }
    if does(Part::Latency) {
        parts::latency(&mut seats, &sizes)?;
    }
    if does(Part::Rate) {
        parts::rate(&mut seats, &sizes)?;
    }
    parts::totals(&seats)?;
    let faulty = seats.iter().filter(|seat| is_at_fault(seat)).map(|seat| seat.case.name).collect::<Vec<_>>();
    drop(seats);
    // Each of these with forwarders that have seen nothing yet.
    if does(Part::Endurance) {
        parts::endurance(|name| cases::seats(&named(&cases, name), &args.programs, &cores).pop(), &sizes)?;
    }
    if does(Part::Flood) {
        let usual = |name: &str| named(&cases, name).into_iter().map(Case::as_it_is).collect::<Vec<_>>();
        parts::flood(|name| cases::seats(&usual(name), &args.programs, &cores).pop(), &sizes)?;
    }
    if does(Part::TakeOvers) {
        parts::take_overs(|name| cases::seats(&named(&cases, name), &args.programs, &cores).pop(), &sizes)?;
    }
    if does(Part::Kill) {
        parts::kill(|name| cases::seats(&named(&cases, name), &args.programs, &cores).pop(), &sizes)?;
    }
    ensure!(!args.quick || faulty.is_empty(), "answers were lost or wrong: {}", faulty.join(", "));
    figure("dns_done", 1.0);
    Ok(())
}

fn named(cases: &[Case], name: &str) -> Vec<Case> {
    cases.iter().filter(|case| case.name == name).copied().collect()
}

/// Peers lose what they lose.
fn is_at_fault(seat: &Seat) -> bool {
    (seat.case.is_ours() || seat.case.name == "upstream") && seat.lost + seat.wrong > 0
}

/// As far as it goes without asking: unbound has a socket for every question that waits.
fn raise_limit_of_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
