//! One file a command.

pub(crate) mod audit_paths;
pub(crate) mod check;
pub(crate) mod cni;
mod controller;
pub(crate) mod crds;
mod diff;
mod dns;
mod doctor;
pub(crate) mod explain;
mod http;
pub(crate) mod matrix;
pub(crate) mod policies;
mod rules;
mod run;
mod sandbox;
mod signals;
mod test;
mod uninstall;

pub(crate) use doctor::{Doctor, HELP as DOCTOR_HELP};
pub(crate) use http::HttpAddress;
pub(crate) use run::{Block, DnsServer, Nat64Prefix, Options as RunOptions, Time, print_leases};

use crate::cli::{Cli, Command};
use crate::output;
use anyhow::{Result, bail};
use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Matrix(args) => matrix::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Test(args) => test::execute(&args),
        Command::Policies(args) => policies::run(&args),
        Command::AuditPaths(args) => audit_paths::run(&args),
        Command::Rules(args) => rules::run(&args),
        Command::Sandbox(args) => sandbox::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Agent(args) => run::agent(&args),
        Command::Controller(args) => controller::run(&args),
        Command::Dns(args) => dns::run(&args),
        Command::Status(args) => run::status(&args),
        Command::Leases(args) => run::leases(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Cni(args) => cni::run(&args),
        Command::Crds(args) => crds::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "namewall", &mut script);
            print_bytes(&script)
        }
        Command::Man { command } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(described(command.as_deref())?).render(&mut page)?;
            print_bytes(&page)
        }
    }
}

/// The command as clap describes it, under the name its page has.
fn described(name: Option<&str>) -> Result<clap::Command> {
    let mut whole = Cli::command();
    whole.build();
    let Some(name) = name else { return Ok(whole) };
    let Some(command) = whole.find_subcommand(name) else {
        let known: Vec<&str> = whole.get_subcommands().map(clap::Command::get_name).collect();
        bail!("there is no command {name}; there are {}", known.join(", "));
    };
    Ok(command.clone().display_name(format!("namewall-{name}")))
}

fn print_bytes(bytes: &[u8]) -> Result<ExitCode> {
    let mut out = output::stdout();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The namespace of the pod this is; elsewhere the one that everything of namewall's is in.
fn own_namespace() -> String {
    let text = std::fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace").unwrap_or_default();
    Some(text.trim()).filter(|name| !name.is_empty()).unwrap_or("namewall").to_owned()
}
