//! `namewall uninstall`.

use super::cni;
use super::run::running;
use crate::cli::Uninstall;
use crate::output;
use anyhow::Result;
use namewall_dataplane::nft;
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run(args: &Uninstall) -> Result<ExitCode> {
    // The kernel may release the table of a process a moment after its end.
    let removed = nft::uninstall(&args.table, nft::RELEASE_TIMEOUT, &mut |reason| {
        output::note(&format!("{reason}; waiting for its end, at most {} s", nft::RELEASE_TIMEOUT.as_secs()));
    })?;
    let mut out = output::stdout();
    match removed {
        true => writeln!(out, "removed table inet {} and all that was in it", args.table)?,
        false => writeln!(out, "there is no table inet {}: nothing to remove", args.table)?,
    }
    out.flush()?;
    // An agent that runs, with another table, has its plugin.
    if running().is_err() {
        cni::say_removed(&cni::uninstall()?)?;
    }
    Ok(ExitCode::SUCCESS)
}
