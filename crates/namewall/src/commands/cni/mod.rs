//! `namewall cni`: puts the CNI plugin into a node's container runtime and takes
//! it out again. The plugin itself is this binary, started by the runtime with
//! `CNI_COMMAND` in its environment; what it does is in `namewall-cni`.

mod withdraw;

use super::signals::SystemSignals;
use crate::cli::{Cni, CniCommand, CniFolders, CniInstall};
use crate::output;
use anyhow::{Context, Result, bail};
use namewall_agent::{Signal, Signals};
use namewall_cni::environment::COMMAND;
use namewall_cni::install::{self, Chained, Folders};
use namewall_cni::sandboxes::{FILE, Runtime, Sandboxes};
use namewall_cni::{Agent, Attachment, NAME, Passed, RECORDS, Records, SOCKET, pass_sockets, plugin, pod_sockets};
use namewall_dataplane::netlink::LinkNotices;
use namewall_dataplane::nft;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often the runtime's configuration is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often the container runtime is asked for its pods: when interfaces change, and anyway by and by.
const ASK_RUNTIME_AT_MOST_EVERY: Duration = Duration::from_secs(1);
const ASK_RUNTIME_AT_LEAST_EVERY: Duration = Duration::from_secs(30);
const RUNTIME_ANSWERS_IN: Duration = Duration::from_secs(10);
const AGENT_ANSWERS_IN: Duration = Duration::from_secs(2);
/// Where `kubectl debug node/…` has the node's files.
const ROOT_OF_NODE: &str = "/host";

/// Whether a container runtime has started this process as its plugin.
pub(crate) fn is_called() -> bool {
    std::env::var_os(COMMAND).is_some() && std::env::args_os().len() == 1
}

/// The plugin. It is run for every pod, so nothing of the command line is read.
pub(crate) fn play() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match plugin::run(variable, &mut input, &mut output, &mut std::io::stderr().lock()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

pub(crate) fn run(args: &Cni) -> Result<ExitCode> {
    match &args.command {
        CniCommand::Install(args) => install(args),
        CniCommand::Withdraw(args) => withdraw::run(args),
        CniCommand::Uninstall(args) => {
            let mut removed = args.folders.folders().remove()?;
            if !args.keep_records {
                removed.extend(install::remove_records(Path::new("/"))?);
            }
            say_removed(&removed)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl CniFolders {
    fn folders(&self) -> Folders {
        Folders { plugins: self.bin_dir.clone(), configurations: self.conf_dir.clone() }
    }
}

/// What was done about our tables in the network namespaces of pods.
#[derive(Debug, Default)]
pub(crate) struct RemovedFromPods {
    /// The pods that had some.
    pub(crate) pods: Vec<String>,
    /// Where they stay, and why.
    pub(crate) failures: Vec<String>,
}

/// Takes our tables out of the network namespaces of pods that records name: those of this process' runtime folder, the
/// usual ones, and those of the node whose files are below /host. A namespace that is gone, or that has no tables of
/// ours, is passed over.
pub(crate) fn remove_from_pods(table: &str, runtime: &Path) -> RemovedFromPods {
    let mut removed = RemovedFromPods::default();
    let usual = Path::new(RECORDS);
    let folders: BTreeSet<PathBuf> = [runtime.join("attachments"), usual.to_owned()].into();
    let at_root = folders.iter().map(|folder| (Path::new("/"), folder.as_path()));
    for (root, folder) in at_root.chain([(Path::new(ROOT_OF_NODE), usual)]) {
        // The link /var/run would lead out of the root.
        let below = |path: &Path| match path.strip_prefix("/var/run") {
            Ok(rest) => root.join("run").join(rest),
            Err(_) => root.join(path.strip_prefix("/").unwrap_or(path)),
        };
        let attachments = match Records::new(below(folder)).load() {
            Ok((attachments, unreadable)) => {
                removed.failures.extend(unreadable.iter().map(ToString::to_string));
                attachments
            }
            Err(error) => {
                removed.failures.push(format!("{error}: {}", cause(&error)));
                continue;
            }
        };
        for one in attachments.into_iter().filter(Attachment::is_own) {
            let (pod, netns) = (format!("{}/{}", one.namespace, one.name), below(&one.netns));
            if !netns.exists() {
                continue;
            }
            let done = pod_sockets(&netns).map_err(anyhow::Error::from).and_then(|mut sockets| {
                nft::uninstall_inside(&mut sockets, table, nft::RELEASE_TIMEOUT).map_err(anyhow::Error::from)
            });
            match done {
                Ok(true) => removed.pods.push(pod),
                Ok(false) => {}
                Err(error) => removed.failures.push(format!("{pod}: {error:#}")),
            }
        }
    }
    removed
}

/// Takes the plugin out of this machine, or out of the node whose files are here. Returns what was removed.
pub(crate) fn uninstall() -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for root in ["/", ROOT_OF_NODE].map(Path::new) {
        removed.extend(Folders::usual(root).remove()?);
        removed.extend(install::remove_records(root)?);
    }
    Ok(removed)
}

pub(crate) fn say_removed(removed: &[PathBuf]) -> Result<()> {
    let mut out = output::stdout();
    for path in removed {
        writeln!(out, "removed {}", path.display())?;
    }
    Ok(out.flush()?)
}

fn install(args: &CniInstall) -> Result<ExitCode> {
    args.logging.start()?;
    let signals = SystemSignals::take()?;
    let (folders, plugin) = (args.folders.folders(), plugin_settings(args));
    let binary = std::env::current_exe().context("cannot find the binary of this process")?;
    let length = std::fs::metadata(&binary).context("cannot read the binary of this process")?.len();
    follow_runtime(args)?;
    if args.watch {
        follow_agent(args)?;
    }
    let (began, mut told, mut is_copied) = (Instant::now(), String::new(), false);
    loop {
        // The binary goes first: a configuration without it would let no pod start.
        let copied = match is_copied && folders.has_plugin(length) {
            true => Ok(()),
            false => folders.copy_plugin(&binary),
        };
        is_copied = copied.is_ok();
        let chained = copied.and_then(|()| folders.chain(&plugin));
        let (is_good, now) = match &chained {
            Ok(Chained::Written { original, file } | Chained::Kept { original, file }) => {
                (true, format!("{} is used in place of {}", file.display(), original.display()))
            }
            Ok(Chained::ByHand(path)) => (true, format!("{} has the plugin already", path.display())),
            Ok(Chained::Nothing) => {
                (false, format!("there is no configuration in {}", args.folders.conf_dir.display()))
            }
            Err(error) => (false, format!("{:#}", anyhow::anyhow!("{error}: {}", cause(error)))),
        };
        // Said once: a configuration that comes soon is no trouble.
        let is_late = began.elapsed() >= args.wait.0;
        if now != told && (is_good || is_late) {
            match is_good {
                true => info!("{now}"),
                false => warn!("{now}; pods are known by their addresses alone, and may lose their first packets"),
            }
            told.clone_from(&now);
        }
        match (is_good, args.watch) {
            (true, false) => return Ok(ExitCode::SUCCESS),
            (false, false) if is_late => bail!("{now}"),
            _ => {}
        }
        if signals.wait(LOOK_EVERY) == Some(Signal::Stop) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Asks the container runtime for its pods, in a thread that ends with the process, and writes down what it says.
fn follow_runtime(args: &CniInstall) -> Result<()> {
    let Some(socket) = args.runtime_socket.clone() else { return Ok(()) };
    let runtime = Runtime { socket, namespaces: args.netns_dir.clone() };
    // Beside the agent's socket, where the agent looks for it.
    let agent = args.socket.clone().unwrap_or_else(|| SOCKET.into());
    let file = agent.with_file_name(FILE);
    let mut notices = LinkNotices::open().context("cannot follow the interfaces of this machine")?;
    let follow = move || {
        let mut known = Sandboxes::read(&file);
        loop {
            let found = Sandboxes::find(&runtime, RUNTIME_ANSWERS_IN).or_else(known.clone());
            if known.as_ref() != Some(&found) {
                match &found.error {
                    Some(error) => warn!("{error}; the interfaces of pods from before the CNI plugin may not be known"),
                    None => info!(pods = found.pods.len(), "the container runtime has said which pods run"),
                }
                if let Err(error) = found.write(&file) {
                    warn!("cannot write {}: {error}", file.display());
                }
            }
            known = Some(found);
            let asked = Instant::now();
            std::thread::sleep(ASK_RUNTIME_AT_MOST_EVERY);
            while !notices.have_come() && asked.elapsed() < ASK_RUNTIME_AT_LEAST_EVERY {
                std::thread::sleep(Duration::from_millis(250));
            }
        }
    };
    std::thread::Builder::new().name("runtime".to_owned()).spawn(follow).context("cannot start a thread")?;
    Ok(())
}

/// Passes sockets of pods' network namespaces to an agent that lacks them, in a thread that ends with the process. The
/// plugin has passed some to the agent that ran when a pod started.
fn follow_agent(args: &CniInstall) -> Result<()> {
    let agent = Agent::at(args.socket.clone().unwrap_or_else(|| SOCKET.into()));
    let namespaces = args.netns_dir.clone();
    let follow = move || {
        let mut told = Passed::default();
        loop {
            // An agent that is away, or of an earlier version, is asked again.
            if let Ok(passed) = pass_sockets(&agent, &namespaces, AGENT_ANSWERS_IN) {
                if passed.namespaces > 0 {
                    info!(namespaces = passed.namespaces, "the agent can reach the network namespaces of pods again");
                }
                for failure in passed.failures.iter().filter(|failure| !told.failures.contains(failure)) {
                    warn!("{failure}; policies of second interfaces stay as they were in that pod");
                }
                told = passed;
            }
            std::thread::sleep(ASK_RUNTIME_AT_MOST_EVERY);
        }
    };
    std::thread::Builder::new().name("sockets".to_owned()).spawn(follow).context("cannot start a thread")?;
    Ok(())
}

fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

/// What the configuration says to the plugin; usual settings are left out.
fn plugin_settings(args: &CniInstall) -> Value {
    let mut settings = json!({"type": NAME, "whenAgentAway": args.when_agent_away.word()});
    if let Some(seconds) = args.timeout {
        settings["timeoutSeconds"] = seconds.into();
    }
    if let Some(socket) = &args.socket {
        settings["socket"] = socket.display().to_string().into();
    }
    if let Some(records) = &args.records {
        settings["records"] = records.display().to_string().into();
    }
    settings
}
