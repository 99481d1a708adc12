//! Metrics of the process, as every Go program has them: dashboards for CoreDNS look at these. They are read from `/proc`
//! at a scrape; what cannot be read is left out.

use namewall_telemetry::{Export, Exposition, Metric};
use std::fmt;

const CPU: Metric = Metric::counter("process_cpu_seconds_total", "Time on processors, in seconds.");
const OPEN_FILES: Metric = Metric::gauge("process_open_fds", "Open file descriptors.");
const MOST_FILES: Metric = Metric::gauge("process_max_fds", "File descriptors that may be open.");
const VIRTUAL: Metric = Metric::gauge("process_virtual_memory_bytes", "Virtual memory, in bytes.");
const MOST_VIRTUAL: Metric =
    Metric::gauge("process_virtual_memory_max_bytes", "Virtual memory that there may be, in bytes.");
const RESIDENT: Metric = Metric::gauge("process_resident_memory_bytes", "Resident memory, in bytes.");
const STARTED: Metric = Metric::gauge("process_start_time_seconds", "When the process started, in seconds since 1970.");

/// All of them.
pub(super) const METRICS: [&Metric; 7] = [&CPU, &OPEN_FILES, &MOST_FILES, &VIRTUAL, &MOST_VIRTUAL, &RESIDENT, &STARTED];

/// Ticks of a second in `/proc/self/stat`: USER_HZ, which is a part of the kernel's interface.
const TICKS: f64 = 100.0;
/// Bytes of a page, where the kernel does not say it otherwise.
const KIB: f64 = 1_024.0;

/// This process.
#[derive(Debug)]
pub(crate) struct Process;

impl Export for Process {
    fn export(&self, to: &mut Exposition<'_>) -> fmt::Result {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (stat, status, limits) = (read("/proc/self/stat"), read("/proc/self/status"), read("/proc/self/limits"));
        let files = std::fs::read_dir("/proc/self/fd").map(|entries| entries.count() as f64).ok();
        let memory = |key: &str| status_of(&status, key).map(|kib| kib * KIB);
        let samples = [
            (&CPU, ticks(&stat, [11, 12])),
            (&OPEN_FILES, files),
            (&MOST_FILES, limit(&limits, "Max open files")),
            (&VIRTUAL, memory("VmSize:")),
            (&MOST_VIRTUAL, limit(&limits, "Max address space")),
            (&RESIDENT, memory("VmRSS:")),
            (&STARTED, started(&stat, &read("/proc/stat"))),
        ];
        samples.into_iter().try_for_each(|(metric, value)| match value {
            Some(value) => to.value(metric, value),
            None => to.family(metric).map(drop),
        })
    }
}

/// A sum of fields after the name of the program, which may have spaces and parentheses in it.
fn ticks<const N: usize>(stat: &str, fields: [usize; N]) -> Option<f64> {
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    fields.iter().map(|at| words.get(*at)?.parse::<f64>().ok()).sum::<Option<f64>>().map(|ticks| ticks / TICKS)
}

/// When the process started: some time after the machine did.
fn started(stat: &str, of_machine: &str) -> Option<f64> {
    let machine: f64 = of_machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(machine + ticks(stat, [19])?)
}

fn status_of(status: &str, key: &str) -> Option<f64> {
    let row = status.lines().find_map(|line| line.strip_prefix(key))?;
    row.split_whitespace().next()?.parse().ok()
}

/// A soft limit; without one the largest number there is, as in Go.
fn limit(limits: &str, row: &str) -> Option<f64> {
    let row = limits.lines().find_map(|line| line.strip_prefix(row))?;
    match row.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        word => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 9 0 12345 100 7 18446744073709551615";
        assert_eq!(ticks(stat, [11, 12]), Some(2.0));
        assert_eq!(started(stat, "cpu 1 2\nbtime 1000\n"), Some(1_123.45));
        assert_eq!(status_of("Name:\tx\nVmRSS:\t   12 kB\n", "VmRSS:"), Some(12.0));
        let limits = "Limit   Soft Limit  Hard Limit Units\nMax open files   1024   4096   files\nMax address space  unlimited unlimited bytes\n";
        assert_eq!(limit(limits, "Max open files"), Some(1_024.0));
        assert_eq!(limit(limits, "Max address space"), Some(u64::MAX as f64));
        assert_eq!((ticks("", [1]), limit("", "Max open files"), status_of("", "VmRSS:")), (None, None, None));
    }
}
