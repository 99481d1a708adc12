//! Machines: each a network namespace and a mount namespace of its own, at one
//! bridge. Whoever makes them has a network, mounts and processes of its own
//! already (`unshare --net --mount --pid`), so that all of it ends with it.

use crate::process::Process;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long namespaces may take on a busy machine.
const NAMESPACES_TIMEOUT: Duration = Duration::from_secs(60);
const BRIDGE: &str = "lan";

/// A network of machines, whose first is this process's own.
#[derive(Debug)]
pub struct Lan(());

impl Lan {
    /// Makes it, with these addresses (and prefixes) for us, of one family or both.
    pub fn new(addresses: &[String]) -> Result<Self> {
        let begin = ["link set lo up".to_owned(), format!("link add {BRIDGE} type bridge")];
        let add = addresses.iter().map(|address| add(address, BRIDGE));
        for arguments in begin.into_iter().chain(add).chain([format!("link set {BRIDGE} up")]) {
            say(Command::new("ip").args(arguments.split(' ')))?;
        }
        Ok(Self(()))
    }

    /// Where addresses of ours that are no machine's own are found: pods'.
    pub fn route(&self, network: &str, via: &str) -> Result<()> {
        say(Command::new("ip").args(["route", "add", network, "via", via])).map(drop)
    }

    /// A machine with these addresses and prefixes. What its programs say goes into this folder.
    pub fn machine(&self, name: &str, addresses: &[String], logs: &Path) -> Result<Machine> {
        let machine = Machine::new(name, logs)?;
        let link = format!("link add {name} type veth peer name eth0 netns {}", machine.keeper.id());
        say(Command::new("ip").args(link.split(' ')))?;
        say(Command::new("ip").args(["link", "set", name, "master", BRIDGE, "up"]))?;
        machine.run("ip", &["link", "set", "lo", "up"])?;
        for address in addresses {
            machine.run("ip", &add(address, "eth0").split(' ').collect::<Vec<_>>())?;
        }
        machine.run("ip", &["link", "set", "eth0", "up"])?;
        Ok(machine)
    }
}

/// Namespaces with processes in them, which end with it.
#[derive(Debug)]
pub struct Machine {
    name: String,
    logs: std::path::PathBuf,
    /// By name.
    processes: Vec<(String, Process)>,
    /// Whom the others enter by.
    keeper: Process,
}

impl Machine {
    fn new(name: &str, logs: &Path) -> Result<Self> {
        let log = logs.join(format!("{name}.keeper.log"));
        let mut keeper = Command::new("unshare");
        keeper.args(["--net", "--mount", "--", "sh", "-c", "echo here; exec sleep infinity"]);
        let keeper = Process::start(keeper, &log)?;
        let began = Instant::now();
        while std::fs::read_to_string(&log)? != "here\n" {
            ensure!(
                began.elapsed() < NAMESPACES_TIMEOUT,
                "no namespaces for {name}: {}",
                std::fs::read_to_string(&log)?
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::remove_file(&log)?;
        Ok(Self { name: name.to_owned(), logs: logs.to_owned(), processes: Vec::new(), keeper })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its programs' logs are.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// A program in it, which is not started yet.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.keeper.id())).args(["--net", "--mount", "--"]).arg(program.as_ref());
        command
    }

    /// What a program says there that comes to a good end.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        say(self.command(program).args(arguments)).with_context(|| format!("on {}", self.name))
    }

    /// The same with lines of a shell.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run("sh", &["-euc", script])
    }

    /// Starts what goes on, and says by which number. What it says is in a log of the machine and this name.
    pub fn start(&mut self, name: &str, command: Command) -> Result<u32> {
        let log = |again: usize| match again {
            0 => self.logs.join(format!("{}.{name}.log", self.name)),
            again => self.logs.join(format!("{}.{name}-{again}.log", self.name)),
        };
        // What an earlier one of that name has said stays.
        let new = (0..).map(log).find(|log| !log.exists()).context("there is no free name")?;
        let process = Process::start(command, &new)?;
        let id = process.id();
        self.processes.push((name.to_owned(), process));
        Ok(id)
    }

    /// Kills what was started under this name.
    pub fn stop(&mut self, name: &str) {
        self.processes.retain(|(known, _)| known != name);
    }
}

/// What `ip` is told. Nobody else has an address of ours: it need not be found out first.
fn add(address: &str, link: &str) -> String {
    let at_once = if address.contains(':') { " nodad" } else { "" };
    format!("address add {address} dev {link}{at_once}")
}

/// What a program says.
fn say(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", complaint.trim());
    Ok(String::from_utf8(output.stdout)?)
}
