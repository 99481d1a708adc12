//! What `explain --live` says of connections that were cut.

use super::answer::Answer;
use anyhow::Result;
use namewall_agent::CutConnection;
use namewall_policy::Flow;
use std::io::Write;

/// Connections like the one in the question that were cut lately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cuts {
    pub(crate) connections: usize,
    /// Since the last one was cut.
    pub(crate) seconds_ago: Option<u64>,
}

impl Answer<'_> {
    pub(crate) fn cuts(&self, recent: &[CutConnection]) -> Cuts {
        let flows: Vec<&Flow> = self.routes.iter().flat_map(|route| &route.stories).map(|story| &story.flow).collect();
        // Where no port was asked for, every port counts.
        let is_any_port = self.open.is_some();
        let is_meant = |cut: &&CutConnection| {
            flows.iter().any(|flow| {
                let ends = (flow.from.address, flow.to.address) == (Some(cut.source), Some(cut.destination.ip()));
                ends && (is_any_port || (flow.protocol, flow.port) == (cut.protocol, cut.destination.port()))
            })
        };
        let mut meant = recent.iter().filter(is_meant).peekable();
        let seconds_ago = meant.peek().map(|last| self.world.now.since(last.when).as_secs());
        Cuts { connections: meant.count(), seconds_ago }
    }
}

impl Cuts {
    pub(crate) fn print(self, out: &mut impl Write) -> Result<()> {
        let Some(seconds) = self.seconds_ago else { return Ok(()) };
        let count = self.connections;
        let connections = if count == 1 { "1 connection was" } else { &format!("{count} connections were") };
        writeln!(out, "\n{connections} cut between these ends, the last {seconds} s ago (S3.4)")?;
        Ok(())
    }
}
