//! What the process uses, over time.

use std::fmt;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Since the process started.
    age: Duration,
    resident_mb: f64,
    handles: f64,
}

/// The samples of all processes, one after another.
#[derive(Default, Debug)]
pub(crate) struct Resources {
    samples: Vec<Sample>,
}

/// More than this, and something is kept that should not be.
const MOST_RESIDENT_MB: f64 = 200.0;
const MOST_HANDLES: f64 = 6000.0;
/// By how much the median of the last third may be above that of the first: processes of either are not equally old.
const MOST_GROWTH: f64 = 1.5;

impl Resources {
    /// Notes what a process that started then uses now.
    pub(crate) fn sample(&mut self, process: u32, started: Instant) {
        let Some(resident_mb) = resident_mb(process) else { return };
        let Ok(handles) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return };
        self.samples.push(Sample { age: started.elapsed(), resident_mb, handles: handles.count() as f64 });
    }

    /// Panics if the process used more than it should.
    pub(crate) fn check(&self) {
        let most = |value: fn(&Sample) -> f64| self.samples.iter().map(value).fold(0.0, f64::max);
        assert!(most(|one| one.resident_mb) < MOST_RESIDENT_MB, "too much memory: {self}");
        assert!(most(|one| one.handles) < MOST_HANDLES, "too many open files: {self}");
        let [first, last] = self.thirds(|one| one.resident_mb);
        assert!(last <= first * MOST_GROWTH + 8.0, "memory grows: {self}");
        let [first, last] = self.thirds(|one| one.handles);
        assert!(last <= first * MOST_GROWTH + 16.0, "open files grow: {self}");
    }

    /// The median of a value in the first and in the last third of the run.
    fn thirds(&self, value: fn(&Sample) -> f64) -> [f64; 2] {
        let third = self.samples.len() / 3;
        [&self.samples[..third], &self.samples[self.samples.len() - third..]].map(|samples| {
            let mut values: Vec<f64> = samples.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or_default()
        })
    }

    /// By how much a value grows per minute of a process's life (least squares).
    fn slope(&self, value: fn(&Sample) -> f64) -> f64 {
        let count = self.samples.len() as f64;
        let minutes = |one: &Sample| one.age.as_secs_f64() / 60.0;
        let (sum_x, sum_y) = self.samples.iter().fold((0.0, 0.0), |(x, y), one| (x + minutes(one), y + value(one)));
        let (mean_x, mean_y) = (sum_x / count, sum_y / count);
        let (mut above, mut below) = (0.0, 0.0);
        for one in &self.samples {
            above += (minutes(one) - mean_x) * (value(one) - mean_y);
            below += (minutes(one) - mean_x).powi(2);
        }
        if below > 0.0 { above / below } else { 0.0 }
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.samples.last().map_or((0.0, 0.0), |one| (one.resident_mb, one.handles));
        let (memory, handles) = (self.slope(|one| one.resident_mb), self.slope(|one| one.handles));
        let [[first_memory, last_memory], [first_handles, last_handles]] =
            [self.thirds(|one| one.resident_mb), self.thirds(|one| one.handles)];
        write!(
            f,
            "memory {:.0} MB ({memory:+.2} MB/min; {first_memory:.0} in the first third, {last_memory:.0} in the last), \
             open files {:.0} ({handles:+.2}/min; {first_handles:.0}, {last_handles:.0})",
            last.0, last.1
        )
    }
}

fn resident_mb(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}
