//! `namewall rules`: what the kernel would be told, and with `--live` what it was told.

mod live;

use crate::cli::Rules;
use crate::input::Loaded;
use crate::output;
use anyhow::{Context, Result};
use namewall_dataplane::render::{Ids, Scope, render};
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run(args: &Rules) -> Result<ExitCode> {
    if args.live {
        return live::run(args);
    }
    let loaded = load(args)?;
    loaded.report_errors();
    let node = match &args.node {
        Some(name) => Some(loaded.snapshot.node_named(name).with_context(|| {
            let names: Vec<&str> = loaded.snapshot.nodes.iter().map(|node| &*node.name).collect();
            format!("there is no node {name} in the input; there are {}", names.join(", "))
        })?),
        None => None,
    };
    let scope = Scope { node, ..Scope::default() };
    let rendered = render(&loaded.program, &scope, &Ids::default());
    let mut out = output::stdout();
    let printed = write!(out, "table inet namewall {{\n{}}}\n", rendered.table).and_then(|()| out.flush());
    output::unless_closed(printed.map_err(Into::into))?;
    Ok(loaded.unread.exit(ExitCode::SUCCESS))
}

fn load(args: &Rules) -> Result<Loaded> {
    Ok(Loaded::from_paths(&args.paths, &args.reading.settings)?.with(args.reading.lenient))
}
