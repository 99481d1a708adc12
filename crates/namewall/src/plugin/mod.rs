//! `kubectl namewall`: the questions that the offline commands answer, of the
//! cluster that kubectl speaks to. kubectl finds it by the name of the program,
//! `kubectl-namewall`, which is the binary under another name.
//!
//! Here is what can be typed; `live` reads the cluster, `leases` says what is
//! open by name in it. What is answered, and how it looks, is the commands' own.

mod leases;
mod live;

use crate::cli::{AuditPaths, Check, Leases, Matrix, Policies, Question};
use crate::commands;
use crate::input::Origin;
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use live::LiveCluster;
pub(crate) use live::read_cluster;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

const NAME: &str = "kubectl-namewall";

/// Who may talk to whom in a cluster that lives, and why.
///
/// Reads every network policy of the cluster through its API server and changes
/// nothing. Names are open as the statuses of DNSNameResolvers say; what only an
/// agent has learned is told by `namewall leases` on its node.
#[derive(Parser, Debug)]
#[command(name = "kubectl namewall", bin_name = "kubectl namewall", version, max_term_width = 100)]
#[command(arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Plugin {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes are those of the same command of namewall; 2 where the cluster cannot be read.";

#[derive(Subcommand, Debug)]
enum Command {
    /// May this workload open this connection, and why?
    #[command(after_help = "Examples:\n  \
        kubectl namewall explain --from shop/web --to shop/db:5432\n  \
        kubectl namewall explain --from shop/api --to api.payments.example:443 --expect allow")]
    Explain(LiveQuestion<Question>),
    /// Who may reach whom: every pair of workloads, and the outside
    #[command(after_help = "Example:\n  kubectl namewall matrix --focus shop/web -o svg > web.svg")]
    Matrix(Matrix<LiveCluster>),
    /// Which policies apply to a workload, in the order they are asked
    #[command(after_help = "Example:\n  kubectl namewall policies shop/web")]
    Policies(Policies<LiveCluster>),
    /// Every way to a destination, and what closes it
    #[command(after_help = "Example:\n  kubectl namewall audit-paths metadata")]
    AuditPaths(AuditPaths<LiveCluster>),
    /// Which addresses are open by name now: through which name and rule, and until when
    #[command(after_help = "Example:\n  kubectl namewall leases example.com")]
    Leases(LiveQuestion<Leases>),
    /// Validate the cluster's policies against every published limit, and lint them
    #[command(after_help = "Example:\n  kubectl namewall check -o json")]
    Check(Check<LiveCluster>),
}

/// What is asked, of which cluster.
#[derive(Args, Debug)]
struct LiveQuestion<A: Args> {
    #[command(flatten)]
    asked: A,
    #[command(flatten)]
    cluster: LiveCluster,
}

/// Whether this is what kubectl has called.
pub(crate) fn is_called(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == NAME)
}

pub(crate) fn run(plugin: Plugin) -> Result<ExitCode> {
    match plugin.command {
        Command::Explain(args) => commands::explain::answer(&args.asked, args.cluster.load()?),
        Command::Matrix(args) => commands::matrix::run(&args),
        Command::Policies(args) => commands::policies::run(&args),
        Command::AuditPaths(args) => commands::audit_paths::run(&args),
        Command::Leases(args) => leases::run(&args.asked, &args.cluster),
        Command::Check(args) => commands::check::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn all_that_can_be_typed_is_sound() {
        Plugin::command().debug_assert();
    }

    #[test]
    fn the_name_it_is_called_by_decides() {
        assert!(is_called(Some(OsStr::new("/usr/local/bin/kubectl-namewall"))));
        assert!(!is_called(Some(OsStr::new("namewall"))));
        assert!(!is_called(None));
    }
}
