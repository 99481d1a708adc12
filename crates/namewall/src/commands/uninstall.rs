//! `namewall uninstall`.

use super::cni;
use super::run::{running, state_folder};
use super::sandbox::runtime_folder;
use crate::cli::Uninstall;
use crate::output;
use anyhow::{Context, Result};
use namewall_agent::StorageSettings;
use namewall_dataplane::nft;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Removes what is stored for the table, wherever a process has said that it is. If nothing was found, this is where it
/// should have been.
fn remove_state(args: &Uninstall, out: &mut impl Write) -> Result<Option<PathBuf>> {
    let storage = |folder: PathBuf| StorageSettings { folder, table: args.table.clone() };
    let usual = state_folder()?;
    let note = storage(usual.clone()).note(&runtime_folder()?);
    let noted = std::fs::read_to_string(&note).ok().map(PathBuf::from);
    let mut folders: Vec<PathBuf> = args.state_dir.iter().cloned().chain(noted).chain([usual.clone()]).collect();
    // In a debugging pod the node's files are below /host.
    let of_host = |folder: &PathBuf| Path::new("/host").join(folder.strip_prefix("/").unwrap_or(folder));
    folders.extend(folders.iter().map(of_host).collect::<Vec<_>>());
    let mut has_found = false;
    for file in folders.into_iter().flat_map(|folder| storage(folder).files()) {
        match std::fs::remove_file(&file) {
            Ok(()) => {
                has_found = true;
                writeln!(out, "removed {}", file.display())?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot remove {}", file.display())),
        }
    }
    std::fs::remove_file(&note).ok();
    Ok((!has_found).then(|| args.state_dir.clone().unwrap_or(usual)))
}

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
    let in_pods = cni::remove_from_pods(&args.table, &runtime_folder()?);
    for pod in in_pods.pods {
        writeln!(out, "removed the tables {} from the network namespace of {pod}", args.table)?;
    }
    for failure in &in_pods.failures {
        output::note(&format!("tables may stay in the network namespace of a pod: {failure}"));
    }
    let left = remove_state(args, &mut out)?;
    // Who names a folder expects something in it.
    if (removed || args.state_dir.is_some())
        && let Some(folder) = left
    {
        writeln!(
            out,
            "found no stored state of table {} in {}; if it was kept elsewhere, remove it there with --state-dir",
            args.table,
            folder.display()
        )?;
    }
    out.flush()?;
    // An agent that runs, with another table, has its plugin.
    if running().is_err() {
        cni::say_removed(&cni::uninstall()?)?;
    }
    Ok(if in_pods.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
