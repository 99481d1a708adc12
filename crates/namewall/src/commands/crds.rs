//! `namewall crds`.

use super::print_bytes;
use crate::cli::{Crds, CrdsFormat};
use anyhow::Result;
use namewall_kubernetes::crds;
use std::process::ExitCode;

pub(crate) fn run(args: &Crds) -> Result<ExitCode> {
    let mut definitions = crds::definitions();
    if !args.only.is_empty() {
        definitions.retain(|definition| args.only.iter().any(|kind| kind.eq_ignore_ascii_case(definition.kind.name)));
    }
    let text = match args.output {
        CrdsFormat::Yaml => crds::to_yaml(&definitions)?,
        CrdsFormat::Json => format!("{:#}\n", crds::to_list(&definitions)),
    };
    print_bytes(text.as_bytes())
}

/// The kinds that `--only` accepts.
pub(crate) fn names() -> Vec<&'static str> {
    crds::kinds().into_iter().map(|kind| kind.name).collect()
}
