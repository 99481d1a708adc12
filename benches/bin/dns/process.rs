//! A process that is measured: what it used, read from `/proc`. It ends with
//! whoever holds it.

use anyhow::{Context, Result};
use namewall_bench::figures::cpu_time;
use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// `setpriv` has the kernel end it with the thread that starts it, whatever that one dies of.
    pub(crate) fn start(command: &Command, log: &Path) -> Result<Self> {
        let log = File::create(log).context("cannot write its log")?;
        let mut tied = Command::new("setpriv");
        tied.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            tied.env(name, value.unwrap_or_default());
        }
        tied.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: tied.spawn().context("cannot run setpriv")? })
    }

    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    fn path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.child.id())
    }

    /// CPU time of all its threads.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        Ok(cpu_time(self.child.id())?)
    }

    /// The most that was resident so far, in MB.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        self.megabytes("VmHWM:")
    }

    pub(crate) fn memory(&self) -> Result<f64> {
        self.megabytes("VmRSS:")
    }

    fn megabytes(&self, name: &str) -> Result<f64> {
        let text = fs::read_to_string(self.path("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)).context("the process has ended")?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes / 1024.0)
    }

    /// Datagrams that its sockets had no room for. This thread must be in its network namespace.
    pub(crate) fn drops(&self) -> Result<u64> {
        drops(Path::new(&self.path("fd")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Datagrams that the sockets of this process in this thread's network namespace had no room for.
pub(crate) fn own_drops() -> Result<u64> {
    drops(Path::new("/proc/self/fd"))
}

fn drops(files: &Path) -> Result<u64> {
    let mut sockets = HashSet::new();
    for file in fs::read_dir(files)? {
        if let Ok(target) = fs::read_link(file?.path())
            && let Some(inode) = target.to_string_lossy().strip_prefix("socket:[")
        {
            sockets.insert(inode.trim_end_matches(']').to_owned());
        }
    }
    let tables = ["udp", "udp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")));
    Ok(tables.into_iter().flatten().map(|table| drops_of(&table, &sockets)).sum())
}

fn drops_of(table: &str, sockets: &HashSet<String>) -> u64 {
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let theirs = lines.filter(|line| line.get(9).is_some_and(|inode| sockets.contains(*inode)));
    theirs.filter_map(|line| line.last()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_sockets_asked_for() {
        let table = "\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  351: 0100007F:14B4 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 2001 2 0000000000000000 17
  352: 0100007F:14B5 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 2002 2 0000000000000000 4
";
        let of = |sockets: &[&str]| drops_of(table, &sockets.iter().map(ToString::to_string).collect());
        assert_eq!([of(&["2001"]), of(&["2001", "2002"]), of(&["3"])], [17, 21, 0]);
    }
}
