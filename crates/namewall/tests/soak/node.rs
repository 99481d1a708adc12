//! The node under test: `namewall run` as a process in a sandbox, its files, and
//! the probes that show what it enforces.

use crate::action::{Action, Damage, Interruption, UpstreamFault};
use crate::faults::{Clocks, MemoryLimit, fill_connections, free_connections};
use crate::model::{Expected, Model, PODS, PORT, Pair};
use crate::policy;
use crate::resources::Resources;
use crate::world::disk::Disk;
use crate::world::{NODE, Process, World, lookup};
use namewall_policy::port::Protocol;
use namewall_sandbox::{Connection, Listen, Measured, Probe};
use namewall_scenario::Scenario;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A condition that does not come true in this time never does. Nothing else has a time limit.
const DEADLINE: Duration = Duration::from_secs(90);
/// On a busy machine a packet can be late: a probe that must be open is repeated this often.
const REPEATS: usize = 10;
/// How long a process with too little memory is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const SERVER: &str = "203.0.113.53:53";
const MOST_CONNECTIONS: usize = 12;
/// More than the process ever needs.
const MEMORY_MB: u64 = 256;

/// A connection that stays open, and which of the pairs it belongs to.
struct Kept {
    pair: usize,
    connection: Connection,
}

/// What was tried and seen.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    pub(crate) probes: usize,
    pub(crate) open: usize,
    pub(crate) silent: usize,
    pub(crate) kept: usize,
    pub(crate) cut: usize,
    pub(crate) lookups: usize,
    /// Processes that the kernel killed for want of memory.
    pub(crate) starved: usize,
    /// Packets that met two Programs, one for each direction (security model, 10).
    pub(crate) in_parts: usize,
}

pub(crate) struct Node {
    world: World,
    process: Process,
    disk: Disk,
    memory: MemoryLimit,
    clocks: Clocks,
    started: Instant,
    pairs: Vec<Pair>,
    kept: Vec<Kept>,
    pub(crate) model: Model,
    pub(crate) tally: Tally,
    pub(crate) resources: Resources,
}

impl Node {
    pub(crate) fn start() -> Self {
        let model = Model::new();
        let source = std::env::temp_dir().join(format!("namewall-soak-{}", std::process::id()));
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("cluster.yaml"), policy::cluster(&model.colors)).unwrap();
        std::fs::write(source.join("policies.yaml"), policy::ALWAYS).unwrap();
        std::fs::write(source.join("scenario.yaml"), policy::zones(&model.zones, None)).unwrap();
        let mut world = World::of("soak", &source);
        std::fs::remove_dir_all(&source).unwrap();
        let pods = (0..PODS).map(|pod| policy::address(pod).parse().unwrap());
        let listens: Vec<Listen> =
            pods.map(|address| Listen { address, protocol: Protocol::Tcp, port: PORT }).collect();
        world.sandbox.ensure_listening(&listens).unwrap();
        let (disk, memory) = (Disk::mount(world.folder.join("state")), MemoryLimit::new());
        memory.set(MEMORY_MB);
        world.launcher = memory.launcher();
        let clocks = Clocks::new(world.folder.join("clock"));
        world.environment = vec![("NAMEWALL_TEST_CLOCK", clocks.file().to_owned())];
        let process = spawn(&world, &[]);
        let (pairs, started, kept) = (Model::pairs(), Instant::now(), Vec::new());
        let (tally, resources) = (Tally::default(), Resources::default());
        Self { world, process, disk, memory, clocks, started, pairs, kept, model, tally, resources }
    }

    pub(crate) fn log(&self) -> String {
        self.world.log()
    }

    /// Does it, watches all connections meanwhile, and checks the state that follows.
    pub(crate) fn step(&mut self, action: &Action) {
        let before = self.expected();
        let status = self.status();
        self.begin(action);
        let after = self.expected();
        let during: Vec<Expected> = before.iter().zip(&after).map(|(old, new)| old.while_changing_to(*new)).collect();
        self.wait_for(action, &status, &during);
        self.check(&after);
        self.check_connections(&before, &after);
        self.keep_more(&after);
        self.resources.sample(self.process.id(), self.started);
    }

    fn expected(&self) -> Vec<Expected> {
        self.model.expected(&self.world.folder)
    }

    fn file(&self, slot: usize) -> PathBuf {
        self.world.folder.join(format!("manifests/slot-{slot}.yaml"))
    }

    /// Writes a manifest as careful tools do: all of it at once.
    fn write(&self, file: &PathBuf, text: &str) {
        let new = self.world.folder.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, file).unwrap();
    }

    fn begin(&mut self, action: &Action) {
        match action {
            Action::Apply { slot, policy } => {
                self.write(&self.file(*slot), &policy.manifest(*slot));
                self.model.slots[*slot] = Some(policy.clone());
                self.model.broken.remove(slot);
                self.model.policies_changed();
            }
            Action::Delete { slot } => {
                std::fs::remove_file(self.file(*slot)).unwrap();
                self.model.slots[*slot] = None;
                self.model.broken.remove(slot);
                self.model.policies_changed();
            }
            Action::Damage { slot, damage } => {
                let text = match damage {
                    Damage::NotYaml => "kind: [not, yaml\n",
                    Damage::Emptied => "",
                    Damage::Truncated => "---\n",
                };
                self.write(&self.file(*slot), text);
                self.model.broken.insert(*slot);
            }
            Action::Relabel { pod, color } => {
                self.model.colors[*pod] = color;
                let text = policy::cluster(&self.model.colors);
                self.write(&self.world.folder.join("manifests/cluster.yaml"), &text);
            }
            Action::LookUp { pod, name } => self.look_up(*pod, *name),
            Action::Move { name } => {
                self.model.zones[*name] = 1 - self.model.zones[*name];
                self.serve_names();
            }
            Action::BreakUpstream(fault) => {
                self.model.upstream_fault = Some(*fault);
                self.serve_names();
                // A fault that no question meets shows nothing.
                self.look_up(0, 0);
            }
            Action::RestoreUpstream => {
                self.model.upstream_fault = None;
                self.serve_names();
            }
            Action::Interrupt(how) => self.interrupt(*how),
            Action::FillDisk => {
                self.disk.fill();
                self.model.is_disk_full = true;
            }
            Action::FreeDisk => {
                self.disk.free();
                self.model.is_disk_full = false;
            }
            Action::FillConnections => {
                fill_connections(self.world.sandbox.node(NODE).unwrap());
                self.model.is_table_full = true;
            }
            Action::FreeConnections => {
                free_connections(self.world.sandbox.node(NODE).unwrap());
                self.model.is_table_full = false;
            }
            Action::JumpClocks { monotonic, wall } => {
                self.clocks.jump(*monotonic, *wall);
                self.model.jumped(*monotonic);
            }
        }
    }

    fn serve_names(&mut self) {
        let file = self.world.folder.join("scenario.yaml");
        std::fs::write(&file, policy::zones(&self.model.zones, self.model.upstream_fault)).unwrap();
        std::fs::copy(self.world.folder.join("manifests/cluster.yaml"), self.world.folder.join("cluster.yaml"))
            .unwrap();
        let zones = Scenario::load(&file).unwrap().zones;
        self.world.sandbox.serve_names(&zones).unwrap();
    }

    fn look_up(&mut self, pod: usize, name: usize) {
        let ask = lookup(SERVER, policy::NAMES[name]);
        let once = || self.world.answered(&policy::address(pod), std::slice::from_ref(&ask)) == 1;
        self.tally.lookups += 1;
        let fault = self.model.upstream_fault;
        if matches!(fault, Some(UpstreamFault::Silent | UpstreamFault::Servfail)) {
            assert!(!once(), "an answer without an upstream");
            return;
        }
        if self.model.is_table_full || fault == Some(UpstreamFault::Late) {
            match once() {
                true => self.model.answered(pod, name),
                false => self.model.may_have_asked(pod, name),
            }
            return;
        }
        // An upstream that was silent is asked again when a probe finds it.
        let began = Instant::now();
        while !once() {
            assert!(began.elapsed() < DEADLINE, "{} is never answered", policy::NAMES[name]);
        }
        self.model.answered(pod, name);
    }

    fn interrupt(&mut self, how: Interruption) {
        if let Interruption::Paused { milliseconds } = how {
            self.process.signal(Signal::SIGSTOP);
            thread::sleep(Duration::from_millis(milliseconds));
            self.process.signal(Signal::SIGCONT);
            self.wait_until_alive();
            return;
        }
        self.model.restarted();
        match how {
            Interruption::Paused { .. } => {}
            Interruption::Terminated => self.end(Signal::SIGTERM),
            Interruption::Killed => self.end(Signal::SIGKILL),
            Interruption::Starved { megabytes } => self.starve(megabytes),
            Interruption::TakenOver => {
                self.process = spawn(&self.world, &["--take-over"]);
                self.started = Instant::now();
                return;
            }
        }
        // While nothing runs, what was in force stays so.
        let expected = self.expected();
        self.probe_once(&expected, &expected);
        self.process = spawn(&self.world, &[]);
        self.started = Instant::now();
    }

    /// Starts a process with little memory in place of the one that runs, and ends it if the kernel does not.
    fn starve(&mut self, megabytes: u64) {
        self.end(Signal::SIGKILL);
        self.memory.set(megabytes);
        let arguments = arguments(&self.world);
        let arguments = arguments.iter().map(String::as_str).chain(World::ARGUMENTS).collect::<Vec<_>>();
        self.process = self.world.start_on(NODE, &arguments);
        let began = Instant::now();
        // One that finds hardly a page free may take for ever.
        while !self.process.has_ended() && !self.world.answers(&self.process) && began.elapsed() < PATIENCE {}
        match self.process.has_ended() {
            true => self.tally.starved += 1,
            false => self.end(Signal::SIGKILL),
        }
        self.memory.set(MEMORY_MB);
    }

    /// Waits until the kernel takes pods' questions to the process again: after a long pause it leaves them alone, and
    /// nobody learns what such a question is answered.
    fn wait_until_alive(&self) {
        let is_alive = || {
            let mut list = Command::new("nft");
            list.args(["list", "set", "inet", "namewall", "alive"]);
            let output = self.world.sandbox.node(NODE).unwrap().enter(|| list.output()).unwrap().expect("nft runs");
            String::from_utf8_lossy(&output.stdout).contains("elements")
        };
        let began = Instant::now();
        while !is_alive() {
            assert!(began.elapsed() < DEADLINE, "the kernel is never told that the process lives");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self, signal: Signal) {
        self.process.signal(signal);
        let began = Instant::now();
        while !self.process.has_ended() {
            assert!(began.elapsed() < DEADLINE, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn status(&self) -> Value {
        let began = Instant::now();
        loop {
            let output = self.world.ask(&["status", "-o", "json"]);
            if let Ok(status) = serde_json::from_slice(&output.stdout) {
                return status;
            }
            assert!(began.elapsed() < DEADLINE, "no status: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// Waits until the process has seen the change.
    fn wait_for(&mut self, action: &Action, before: &Value, during: &[Expected]) {
        let is_seen: Box<dyn Fn(&Value) -> bool> = match action {
            Action::Apply { .. } | Action::Delete { .. } | Action::Relabel { .. } => {
                let (changes, is_disk_full) = (before["changes"].as_u64(), self.model.is_disk_full);
                let is_told = move |status: &Value| status["storage"]["failure"].is_string() == is_disk_full;
                Box::new(move |status| status["changes"].as_u64() > changes && is_told(status))
            }
            Action::Damage { slot, .. } => {
                let file = format!("slot-{slot}.yaml");
                Box::new(move |status| status["keptFiles"].to_string().contains(&file))
            }
            Action::FreeDisk => Box::new(|status| status["storage"]["failure"].is_null()),
            Action::LookUp { .. }
            | Action::Move { .. }
            | Action::BreakUpstream(_)
            | Action::RestoreUpstream
            | Action::FillDisk
            | Action::FillConnections
            | Action::FreeConnections
            | Action::JumpClocks { .. }
            | Action::Interrupt(_) => Box::new(|_| true),
        };
        let began = Instant::now();
        loop {
            let status = self.status();
            self.probe_once(during, during);
            if is_seen(&status) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{action:?} is never seen; status: {status:#}");
        }
    }

    fn probe(&mut self, at: &[usize]) -> Vec<Measured> {
        let place = |pair: &Pair| self.world.sandbox.place(pair.from).unwrap();
        let probe = |pair: Pair| Probe { from: place(&pair), to: (pair.to, PORT).into(), protocol: Protocol::Tcp };
        let probes: Vec<Probe> = at.iter().map(|at| probe(self.pairs[*at])).collect();
        self.tally.probes += probes.len();
        self.world.sandbox.probe(&probes).unwrap()
    }

    fn check(&mut self, expected: &[Expected]) {
        self.probe_once(expected, expected);
    }

    /// Every connection that must be silent is; every one that must be open is, at the latest after some repeats.
    fn probe_once(&mut self, expected: &[Expected], again: &[Expected]) {
        let mut waiting: Vec<usize> = (0..self.pairs.len()).collect();
        for _ in 0..REPEATS {
            let measured = self.probe(&waiting);
            let mut repeat = Vec::new();
            for (at, measured) in waiting.into_iter().zip(measured) {
                match (expected[at], measured) {
                    (Expected::Silent, Measured::Open) => {
                        self.tally.in_parts += 1;
                        let second = self.probe(&[at])[0];
                        let Pair { from, to } = self.pairs[at];
                        assert!(
                            second != Measured::Open || again[at] != Expected::Silent,
                            "{from} -> {to}:{PORT} is open, and must not be"
                        );
                    }
                    (Expected::Open, Measured::Open) => self.tally.open += 1,
                    (Expected::Silent, _) => self.tally.silent += 1,
                    (Expected::Open, _) if !self.model.is_table_full => repeat.push(at),
                    (Expected::Open | Expected::Either, _) => {}
                }
            }
            waiting = repeat;
            if waiting.is_empty() {
                return;
            }
        }
        let Pair { from, to } = self.pairs[waiting[0]];
        panic!("{from} -> {to}:{PORT} is not open, and must be");
    }

    /// Connections that are allowed before and after go on; those that are forbidden end.
    fn check_connections(&mut self, before: &[Expected], after: &[Expected]) {
        let mut kept = Vec::new();
        for mut one in std::mem::take(&mut self.kept) {
            let (was, is) = (before[one.pair], after[one.pair]);
            if is == Expected::Silent {
                self.wait_until_cut(&mut one);
                self.tally.cut += 1;
            } else if is == Expected::Open && was == Expected::Open {
                let is_alive = (0..REPEATS).any(|_| one.connection.alive(Duration::from_secs(2)).unwrap());
                let Pair { from, to } = self.pairs[one.pair];
                assert!(is_alive, "the connection {from} -> {to}:{PORT} is lost, and was allowed all the time");
                self.tally.kept += 1;
                kept.push(one);
            }
        }
        self.kept = kept;
    }

    fn wait_until_cut(&self, one: &mut Kept) {
        let began = Instant::now();
        while one.connection.alive(Duration::from_millis(300)).unwrap() {
            let Pair { from, to } = self.pairs[one.pair];
            assert!(began.elapsed() < DEADLINE, "the connection {from} -> {to}:{PORT} is forbidden, and goes on");
        }
    }

    /// Opens some more connections that are to last.
    fn keep_more(&mut self, expected: &[Expected]) {
        let has = |pair: usize| self.kept.iter().any(|one| one.pair == pair);
        let next = (0..self.pairs.len()).filter(|at| expected[*at] == Expected::Open && !has(*at));
        // Not always the same ones.
        let Some(pair) = next.clone().nth(self.tally.lookups % next.count().max(1)) else { return };
        if self.kept.len() >= MOST_CONNECTIONS {
            return;
        }
        let Pair { from, to } = self.pairs[pair];
        let from = self.world.sandbox.place(from).unwrap();
        if let Ok(connection) = self.world.sandbox.connect(&from, (to, PORT).into(), Protocol::Tcp).unwrap() {
            self.kept.push(Kept { pair, connection });
        }
    }
}

/// What the process is started with, besides what every test has.
fn arguments(world: &World) -> [String; 5] {
    let folder = |name: &str| world.folder.join(name).display().to_string();
    ["run".to_owned(), "--manifests".to_owned(), folder("manifests"), "--state-dir".to_owned(), folder("state")]
}

fn spawn(world: &World, more: &[&str]) -> Process {
    let arguments = arguments(world);
    world.spawn(&[&arguments.each_ref().map(String::as_str)[..], more].concat())
}
