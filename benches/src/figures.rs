//! What was measured, as numbers: `figure NAME VALUE` lines, which
//! `scripts/bench` holds against the goals.

use std::time::{Duration, Instant};
use std::{fs, io};

/// Says a figure.
pub fn figure(name: &str, value: f64) {
    println!("figure {name} {value:.4}");
}

/// The value below which this share of all is; not a number for none.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = action();
    (result, start.elapsed())
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// What is in use, in MB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// This process's.
    pub process: f64,
    /// The kernel's own, for all of the machine: of use only as a difference.
    pub kernel: f64,
}

impl Memory {
    pub fn now() -> Self {
        let kernel = ["Slab:", "Percpu:", "VmallocUsed:"].map(|name| kilobytes("/proc/meminfo", name));
        Self { process: kilobytes("/proc/self/status", "VmRSS:") / 1024.0, kernel: kernel.iter().sum::<f64>() / 1024.0 }
    }

    /// Since then.
    pub fn since(then: Self) -> Self {
        let now = Self::now();
        Self { process: now.process - then.process, kernel: now.kernel - then.kernel }
    }
}

/// CPU time of all threads of a process. To the nanosecond, unlike `stat`'s; softirqs that its sends caused are in it.
pub fn cpu_time(process: u32) -> io::Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may have ended meanwhile.
        let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        nanoseconds += text.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// What a file of `/proc` says of it; not a number if it does not.
pub fn kilobytes(path: &str, name: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&values, share)), [0.0, 50.0, 99.0, 100.0]);
        assert!(median(&[]).is_nan());
    }
}
