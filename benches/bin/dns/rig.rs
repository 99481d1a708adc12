//! A network namespace with a forwarder, its upstream, and whoever asks it.
//!
//! Forwarders run on one core, all that asks and answers them on another. All
//! rigs are up at once, and those that are not asked sleep: so they can be
//! measured in turn.

use crate::datagrams;
use crate::forwarder::{Forwarder, LISTEN, Programs, UPSTREAM};
use crate::load::{Load, Outcome};
use crate::process::{Process, own_drops};
use crate::upstream::Upstream;
use crate::wire::{Asked, Kind, LONGEST};
use anyhow::{Context, Result, bail, ensure};
use namewall_dataplane::netlink::{Family, Messages, Socket};
use namewall_dataplane::nft::put_table;
use namewall_dataplane::nft::rule::{Action, Rule, Test};
use namewall_dataplane::nft::table::{Fallback, Hook, HookKind, Point, Table};
use namewall_sandbox::Namespace;
use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, sched_setaffinity, setns};
use nix::unistd::Pid;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Every node of a cluster tracks connections, whoever forwards its DNS.
fn stateful() -> Table {
    let mut table = Table::default();
    for (name, point) in [("input", Point::Input), ("output", Point::Output)] {
        let chain = table.chains.entry(name.to_owned()).or_default();
        chain.hook =
            Some(Hook { point, device: None, priority: 0, kind: HookKind::Filter, fallback: Fallback::Accept });
        chain.rules = vec![Rule::new([Test::Established], Action::Accept)];
    }
    table
}

/// How long a forwarder may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const REPEAT: Duration = Duration::from_millis(100);
/// How long a process may take to take over, and how long the last one has to begin.
const SUCCESSION_TIMEOUT: Duration = Duration::from_secs(60);
const SUCCESSION: Duration = Duration::from_secs(2);
/// What namewall says when it serves.
const RUNNING: &str = "running";

#[derive(Debug)]
pub(crate) struct Rig {
    process: Option<Process>,
    upstream: Upstream,
    namespace: Namespace,
    /// Questions so far.
    asked: u64,
    /// How the process was started, and on which cores.
    command: Option<Command>,
    cores: CpuSet,
    folder: Folder,
}

/// What became of questions while processes took over from each other.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct TakenOver {
    pub(crate) sent: u64,
    /// Those that failed among them.
    pub(crate) lost: u64,
    pub(crate) failed: u64,
    pub(crate) longest_ms: f64,
}

/// The same command once more.
fn copied(command: &Command) -> Command {
    let mut copy = Command::new(command.get_program());
    copy.args(command.get_args());
    for (name, value) in command.get_envs() {
        copy.env(name, value.unwrap_or_default());
    }
    copy
}

/// Waits for something while a process goes on.
fn wait_for(process: &mut Process, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(process.ended()?.is_none(), "a process that was to take over has ended");
        ensure!(start.elapsed() < SUCCESSION_TIMEOUT, "a process does not take over");
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// What a load did to a forwarder.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// Of the process.
    pub(crate) cpu: Duration,
    /// Datagrams that its sockets had no room for.
    pub(crate) drops: u64,
    /// Those the harness's own sockets had no room for: nobody's fault but its own.
    pub(crate) own_drops: u64,
}

impl Rig {
    pub(crate) fn start(forwarder: Forwarder, programs: &Programs, cores: &Cores) -> Result<Self> {
        let namespace = Namespace::create()?;
        enter(&namespace)?;
        bring_up_loopback()?;
        put_table("stateful", &stateful())?;
        let upstream = Upstream::listen(UPSTREAM)?;
        let folder = Folder::create()?;
        let log = folder.0.join("log");
        let command = forwarder.command(programs, &folder.0)?;
        let process = match &command {
            // A process runs where its parent did.
            Some(command) => Some(cores.of(forwarder, || Process::start(command, &log))??),
            None => None,
        };
        let cores = *cores.set_of(forwarder);
        let mut rig = Self { process, upstream, namespace, asked: 0, command, cores, folder };
        rig.wait_until_ready().with_context(|| last_words(&log))?;
        Ok(rig)
    }

    fn address(&self) -> SocketAddrV4 {
        if self.process.is_some() { LISTEN } else { UPSTREAM }
    }

    /// It is when it has answered a question of each kind, rightly.
    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        for (id, kind) in [(1, Kind::A), (2, Kind::Aaaa)] {
            let asked = Asked { number: 0, kind };
            let mut query = Vec::new();
            asked.write(id, &mut query);
            while !self.answers(&query, asked)? {
                if let Some(status) = self.process.as_mut().map(Process::ended).transpose()?.flatten() {
                    bail!("it ended before it answered, with {status}");
                }
                ensure!(start.elapsed() < START_TIMEOUT, "it did not answer within {} s", START_TIMEOUT.as_secs());
            }
        }
        Ok(())
    }

    fn answers(&mut self, query: &[u8], asked: Asked) -> Result<bool> {
        // A new socket each time: that nobody listened yet is told to the next who uses it.
        let socket = datagrams::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        socket.send_to(query, self.address())?;
        let start = Instant::now();
        while start.elapsed() < REPEAT {
            self.upstream.serve()?;
            let mut answer = [0; LONGEST];
            if let Ok(length) = socket.recv(&mut answer) {
                return Ok(answer[..2] == query[..2] && asked.is_answered_by(&answer[..length]));
            }
            sleep(Duration::from_micros(200));
        }
        Ok(false)
    }

    pub(crate) fn run(&mut self, load: Load) -> Result<Measured> {
        enter(&self.namespace)?;
        let before = (self.cpu_time()?, self.drops()?, own_drops()?);
        let outcome = load.run(self.address(), &mut self.upstream, &mut self.asked)?;
        let after = (self.cpu_time()?, self.drops()?, own_drops()?);
        Ok(Measured {
            outcome,
            cpu: after.0.saturating_sub(before.0),
            // A socket that was closed meanwhile took its count along.
            drops: after.1.saturating_sub(before.1),
            own_drops: after.2.saturating_sub(before.2),
        })
    }

    /// Runs loads one after the other while one process after the other takes over from the one before, so many times.
    /// Gives what became of the questions.
    pub(crate) fn run_while_taken_over(&mut self, load: Load, times: usize) -> Result<TakenOver> {
        enter(&self.namespace)?;
        let (mut all, is_over, may_end) = (TakenOver::default(), AtomicBool::new(false), AtomicBool::new(false));
        let (command, folder, cores) = (self.successor()?, self.folder.0.clone(), self.cores);
        let mut process = self.process.take();
        std::thread::scope(|scope| -> Result<()> {
            // It has this thread's namespace. What it starts ends with it, so it waits until the load is over.
            let successors = scope.spawn(|| -> Result<()> {
                sched_setaffinity(Pid::from_raw(0), &cores)?;
                for number in 0..times {
                    let log = folder.join(format!("log-{number}"));
                    let mut next = Process::start(&command, &log)?;
                    if let Some(mut before) = process.take() {
                        wait_for(&mut next, || Ok(before.ended()?.is_some()))?;
                    }
                    // Only then can another take over from it.
                    wait_for(&mut next, || Ok(fs::read_to_string(&log)?.contains(RUNNING)))?;
                    process = Some(next);
                }
                // Until the last one serves, too.
                std::thread::sleep(SUCCESSION);
                is_over.store(true, Ordering::SeqCst);
                while !may_end.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(2));
                }
                Ok(())
            });
            let mut outcome = Ok(());
            while outcome.is_ok() && !is_over.load(Ordering::SeqCst) && !successors.is_finished() {
                outcome = load.run(LISTEN, &mut self.upstream, &mut self.asked).map(|outcome| {
                    all.sent += outcome.sent;
                    all.lost += outcome.lost();
                    all.failed += outcome.failed;
                    all.longest_ms = all.longest_ms.max(outcome.quantile(1.0) / 1e3);
                });
            }
            may_end.store(true, Ordering::SeqCst);
            outcome?;
            successors.join().map_err(|_| anyhow::anyhow!("the thread of successors panicked"))?
        })?;
        ensure!(is_over.load(Ordering::SeqCst), "a process did not take over");
        Ok(all)
    }

    /// Runs a load while the process is killed and started again.
    pub(crate) fn run_while_killed(&mut self, load: Load) -> Result<Outcome> {
        enter(&self.namespace)?;
        let command = self.command.as_ref().map(copied).context("nobody to kill")?;
        let (log, is_over) = (self.folder.0.join("log-killed"), AtomicBool::new(false));
        let (before, cores) = (self.process.take(), self.cores);
        std::thread::scope(|scope| {
            // What this thread starts ends with it, so it waits until the load is over.
            let restart = scope.spawn(|| -> Result<()> {
                sched_setaffinity(Pid::from_raw(0), &cores)?;
                sleep(load.lasts / 4);
                // It is killed, and its end is waited for.
                drop(before);
                let _next = Process::start(&command, &log)?;
                while !is_over.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(2));
                }
                Ok(())
            });
            let outcome = load.run(LISTEN, &mut self.upstream, &mut self.asked);
            is_over.store(true, Ordering::SeqCst);
            restart.join().map_err(|_| anyhow::anyhow!("the thread that kills panicked"))??;
            outcome
        })
    }

    /// The command of a process that takes over.
    fn successor(&self) -> Result<Command> {
        let mut command = self.command.as_ref().map(copied).context("nobody to take over from")?;
        command.arg("--take-over");
        Ok(command)
    }

    fn cpu_time(&self) -> Result<Duration> {
        self.process.as_ref().map_or(Ok(Duration::ZERO), Process::cpu_time)
    }

    fn drops(&self) -> Result<u64> {
        self.process.as_ref().map_or(Ok(0), Process::drops)
    }

    pub(crate) fn memory(&self) -> Result<f64> {
        self.process.as_ref().map_or(Ok(0.0), Process::memory)
    }

    pub(crate) fn peak_memory(&self) -> Result<f64> {
        self.process.as_ref().map_or(Ok(0.0), Process::peak_memory)
    }
}

/// This thread itself, not one aside: what it starts ends with it.
fn enter(namespace: &Namespace) -> Result<()> {
    setns(namespace, CloneFlags::CLONE_NEWNET).context("cannot enter a network namespace")
}

fn bring_up_loopback() -> Result<()> {
    const NEW_LINK: u16 = 16;
    const LOOPBACK: u32 = 1;
    const UP: u32 = 1;
    let fixed: Vec<u8> = [0, LOOPBACK, UP, UP].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut request = Messages::new();
    request.begin(NEW_LINK, 0, &fixed);
    request.acknowledge();
    Ok(Socket::open(Family::NetlinkRoute)?.commit(&request)?)
}

/// The end of a log, where there is one.
fn last_words(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    last.map_or_else(|| "it said nothing".to_owned(), |line| format!("it said: {}", line.trim()))
}

/// Where configuration is; some look at it again from time to time.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self> {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), FOLDERS.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("namewall-bench-dns-{process}-{number}"));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // At worst a small file stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One for forwarders, one for everything else here.
#[derive(Debug)]
pub(crate) struct Cores {
    own: CpuSet,
    forwarders: CpuSet,
    all: CpuSet,
}

impl Cores {
    pub(crate) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(Pid::this())?;
        let all: Vec<usize> = (0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true)).collect();
        let [own, .., forwarders] = all[..] else {
            bail!("two cores are needed: one for forwarders, one for the load")
        };
        let only = |core| -> Result<CpuSet> {
            let mut set = CpuSet::new();
            set.set(core)?;
            Ok(set)
        };
        let cores = Self { own: only(own)?, forwarders: only(forwarders)?, all: allowed };
        sched_setaffinity(Pid::this(), &cores.own)?;
        Ok(cores)
    }

    fn set_of(&self, forwarder: Forwarder) -> &CpuSet {
        if forwarder.is_on_all_cores() { &self.all } else { &self.forwarders }
    }

    /// Does something on the cores of a forwarder.
    fn of<T>(&self, forwarder: Forwarder, work: impl FnOnce() -> T) -> Result<T> {
        // The calling thread, not the process.
        let this = Pid::from_raw(0);
        sched_setaffinity(this, self.set_of(forwarder))?;
        let done = work();
        sched_setaffinity(this, &self.own)?;
        Ok(done)
    }
}
