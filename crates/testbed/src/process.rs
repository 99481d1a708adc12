//! A process that ends with its owner.

use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[derive(Debug)]
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// What it says goes to the file.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let log = File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Self(command.spawn().with_context(|| format!("cannot start {program}"))?))
    }

    /// Ends this one with its owner.
    pub fn owned(child: Child) -> Self {
        Self(child)
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}
