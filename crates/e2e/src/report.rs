//! What the run says: a line a step, with the time it took, and what to look at
//! when one fails.

use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// How long something may take to come true on a busy machine, unless somebody says otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// The same, for who waits with kubectl.
pub(crate) const TIMEOUT: &str = "--timeout=300s";
/// What is worth a line.
const LONG: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// One step of the run.
pub(crate) fn step<T>(what: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let done = act();
    let mark = if done.is_ok() { "✓" } else { "✗" };
    println!("{mark} {:6.1} s  {what}", began.elapsed().as_secs_f64());
    done.with_context(|| what.to_owned())
}

/// What is seen comes to be what is expected, or the last that was seen is told.
pub(crate) fn eventually(expected: &str, see: impl Fn() -> Result<Observation>) -> Result<()> {
    within(DEADLINE, expected, see)
}

pub(crate) fn within(patience: Duration, expected: &str, see: impl Fn() -> Result<Observation>) -> Result<()> {
    let began = Instant::now();
    loop {
        let seen = see();
        if matches!(&seen, Ok(seen) if seen.is_good) {
            let took = began.elapsed();
            if took > LONG {
                println!("             {expected}: after {:.1} s", took.as_secs_f64());
            }
            return Ok(());
        }
        if began.elapsed() > patience {
            let what = seen.map_or_else(|error| format!("{error:#}"), |seen| seen.what);
            bail!("expected: {expected}\n     seen: {what}\n    after: {:.0} s", patience.as_secs_f64());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The same, which must be so at once.
pub(crate) fn now(expected: &str, seen: Result<Observation>) -> Result<()> {
    let seen = seen?;
    if !seen.is_good {
        bail!("expected: {expected}\n     seen: {}", seen.what);
    }
    Ok(())
}

/// What was seen, and whether it is as expected.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) is_good: bool,
    pub(crate) what: String,
}

impl Observation {
    pub(crate) fn new(is_good: bool, what: impl Into<String>) -> Self {
        Self { is_good, what: what.into() }
    }
}
