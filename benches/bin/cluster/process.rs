//! A process that ends with whoever holds it, and what it used.

use anyhow::{Context, Result};
use namewall_bench::figures::{cpu_time, kilobytes};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// What it says goes to the file.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = File::create(log).context("cannot write its log")?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?))
    }

    fn path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.0.id())
    }

    /// What is resident, in MB: now, and at most so far.
    pub(crate) fn memory(&self) -> [f64; 2] {
        ["VmRSS:", "VmHWM:"].map(|name| kilobytes(&self.path("status"), name) / 1024.0)
    }

    /// CPU time of all its threads.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        Ok(cpu_time(self.0.id())?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
