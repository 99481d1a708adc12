//! `namewall uninstall`.

use super::cni;
use super::run::{running, state_folder};
use crate::cli::Uninstall;
use crate::output;
use anyhow::{Context, Result};
use namewall_agent::StorageSettings;
use namewall_dataplane::nft;
use std::io::{ErrorKind, Write};
use std::path::Path;
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
    for pod in cni::remove_from_pods(&args.table) {
        writeln!(out, "removed the tables {} from the network namespace of {pod}", args.table)?;
    }
    // In a debugging pod the node's files are below /host.
    let folder = state_folder()?;
    for folder in [Path::new("/host").join(folder.strip_prefix("/").unwrap_or(&folder)), folder.clone()] {
        let file = StorageSettings { folder, table: args.table.clone() }.file();
        match std::fs::remove_file(&file) {
            Ok(()) => writeln!(out, "removed {}", file.display())?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot remove {}", file.display())),
        }
    }
    out.flush()?;
    // An agent that runs, with another table, has its plugin.
    if running().is_err() {
        cni::say_removed(&cni::uninstall()?)?;
    }
    Ok(ExitCode::SUCCESS)
}
