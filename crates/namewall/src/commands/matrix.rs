//! `namewall matrix`.
use crate::cli::Matrix;
use anyhow::Result;
use std::process::ExitCode;
pub(crate) fn run(_args: &Matrix) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
