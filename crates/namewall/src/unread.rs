//! What of the input could not be read: one value, which every command prints,
//! carries in its JSON and shows in its exit code (S10.2).

use crate::output;
use anyhow::Result;
use clap::Args;
use namewall_policy::{Finding, Severity};
use serde_json::{Value, json};
use std::io::Write;
use std::process::ExitCode;

/// What to do about it.
#[derive(Args, Clone, Copy, Default, Debug)]
pub(crate) struct Lenient {
    /// Exit as if everything could be read; what could not be is printed all the same
    #[arg(long)]
    pub(crate) lenient: bool,
}

/// The errors of reading. What they speak of is closed, or missing.
#[derive(Default, Debug)]
pub(crate) struct Unread {
    findings: Vec<Finding>,
    /// Files with objects that are not read.
    skipped: Vec<Finding>,
    lenient: bool,
}

/// The exit code where a part of the input could not be read.
const CANNOT_READ: u8 = 2;

impl Unread {
    pub(crate) fn of<'f>(findings: impl IntoIterator<Item = &'f Finding>) -> Self {
        let mut unread = Self::default();
        for finding in findings {
            if finding.severity == Severity::Error {
                unread.findings.push(finding.clone());
            } else if finding.code == "skipped-objects" {
                unread.skipped.push(finding.clone());
            }
        }
        unread
    }

    #[must_use]
    pub(crate) fn with(self, Lenient { lenient }: Lenient) -> Self {
        Self { lenient, ..self }
    }

    #[must_use]
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.findings.extend_from_slice(&other.findings);
        self.skipped.extend_from_slice(&other.skipped);
        self
    }

    /// Prints it on standard error.
    pub(crate) fn report(&self) {
        const SHOWN: usize = 5;
        for finding in self.findings.iter().take(SHOWN).chain(&self.skipped) {
            output::print_finding(&mut anstream::stderr(), finding).ok();
        }
        let more = self.findings.len().saturating_sub(SHOWN);
        if more > 0 {
            output::note(&format!("… and {more} errors more; `namewall check` lists them all"));
        }
    }

    pub(crate) fn has(&self, finding: &Finding) -> bool {
        self.findings.contains(finding)
    }

    pub(crate) fn json(&self) -> Value {
        self.findings.iter().map(output::finding_json).collect()
    }

    /// The exit code, given what it would be if everything could be read.
    pub(crate) fn exit(&self, code: ExitCode) -> ExitCode {
        if self.findings.is_empty() || self.lenient { code } else { ExitCode::from(CANNOT_READ) }
    }

    /// `-o json2`: the list that `-o json` is, in an object beside what could not be read.
    pub(crate) fn wrap<W: Write>(
        &self,
        out: &mut W,
        name: &str,
        list: impl FnOnce(&mut W) -> Result<()>,
    ) -> Result<()> {
        write!(out, "{{\"{name}\": ")?;
        list(out)?;
        writeln!(out, ", {}: {}}}", json!("unread"), self.json())?;
        Ok(())
    }
}
