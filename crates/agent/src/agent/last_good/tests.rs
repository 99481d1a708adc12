//! S10.3: files are broken, emptied, cut off and removed at every step of a
//! start, a reload, a take-over and after a kill, and so is the stored state. An
//! error never makes the set of enforced policies smaller.

use super::tests::{assert_samples, config};
use super::*;
use crate::signals::Signal;
use crate::source::{FileSettings, Files, StorageSettings};
use crate::testing::{DB, FakeMachine, NoLookups, PODS, WEB, ip};
use namewall_dataplane::memory::Memory;
use namewall_runtime::ManualClock;
use namewall_telemetry::{Format, Metrics};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;

/// Two policies: nobody reaches db, and nobody reaches web.
const POLICIES: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: db
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: db
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: web
  namespace: shop
spec:
  podSelector:
    matchLabels:
      app: web
";

/// What happens to the file of policies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    Nothing,
    NoYaml,
    NoByte,
    OnlyComments,
    CutAtSeparator,
    CutInALine,
    CutInAKind,
    MisspeltKind,
    Pipe,
    DanglingLink,
    /// The file is gone: its objects are deleted.
    Removed,
    /// The second object is gone from a good file: it is deleted.
    OneObjectRemoved,
}

const DAMAGES: [Damage; 12] = [
    Damage::Nothing,
    Damage::NoYaml,
    Damage::NoByte,
    Damage::OnlyComments,
    Damage::CutAtSeparator,
    Damage::CutInALine,
    Damage::CutInAKind,
    Damage::MisspeltKind,
    Damage::Pipe,
    Damage::DanglingLink,
    Damage::Removed,
    Damage::OneObjectRemoved,
];

impl Damage {
    fn text(self) -> Option<String> {
        let upto = |end: &str| POLICIES[..POLICIES.find(end).expect("it is in it") + end.len()].to_owned();
        Some(match self {
            Self::Nothing => POLICIES.to_owned(),
            Self::NoYaml => "{".to_owned(),
            Self::NoByte => String::new(),
            Self::OnlyComments => "# all of it is gone\n".to_owned(),
            Self::CutAtSeparator => upto("---\n"),
            Self::CutInALine => upto("app: w"),
            Self::CutInAKind => upto("---\napiVersion: networking.k8s.io/v1\nkind: Net"),
            Self::MisspeltKind => POLICIES.replace("kind: NetworkPolicy", "kind: NetworkPolcy"),
            Self::OneObjectRemoved => POLICIES[..POLICIES.find("---").expect("it is in it")].to_owned(),
            Self::Pipe | Self::DanglingLink | Self::Removed => return None,
        })
    }

    /// All at once: a process that looks at the folder meanwhile finds the file as it was or as it becomes.
    fn apply(self, path: &Path) {
        let new = path.with_extension("new");
        match (self.text(), self) {
            // A new file each time: two writes may have one time of change.
            (Some(text), _) => fs::write(&new, text).expect("a file"),
            (None, Self::Pipe) => nix::unistd::mkfifo(&new, nix::sys::stat::Mode::S_IRUSR).expect("a pipe"),
            (None, Self::DanglingLink) => std::os::unix::fs::symlink("nowhere", &new).expect("a link"),
            (None, _) => return fs::remove_file(path).expect("it is there"),
        }
        fs::rename(new, path).expect("it is renamed");
    }

    /// Whether the policies of db and web are to be in force, if both were before.
    fn enforced(self) -> (bool, bool) {
        match self {
            Self::Removed => (false, false),
            Self::OneObjectRemoved => (true, false),
            _ => (true, true),
        }
    }

    fn is_error(self) -> bool {
        !matches!(self, Self::Nothing | Self::Removed | Self::OneObjectRemoved)
    }
}

/// A machine whose kernel, files and state outlive processes.
struct Machine {
    memory: Memory,
    folder: PathBuf,
}

/// What a test does in the turns of the loop, one after the other. Then it ends.
type Turn<'t> = Box<dyn FnOnce() -> Option<Signal> + 't>;

struct Turns<'t>(RefCell<VecDeque<Turn<'t>>>);

impl<'t> Turns<'t> {
    fn new(turns: Vec<Turn<'t>>) -> Self {
        Self(RefCell::new(turns.into()))
    }
}

impl Signals for Turns<'_> {
    fn wait(&self, _time: Duration) -> Option<Signal> {
        let next = self.0.borrow_mut().pop_front();
        next.map_or(Some(Signal::Stop), |turn| turn())
    }
}

impl Machine {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("namewall-last-good-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(folder.join("manifests")).expect("a folder");
        fs::write(folder.join("manifests/pods.yaml"), PODS).expect("a file");
        Self { memory: Memory::default(), folder }
    }

    fn policies(&self) -> PathBuf {
        self.folder.join("manifests/policies.yaml")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state/last-good/namewall")
    }

    fn control(&self, process: &str) -> PathBuf {
        self.folder.join(format!("{process}.sock"))
    }

    fn start<'s>(&self, process: &str, signals: &'s dyn Signals) -> Result<Agent<'s, Files, Memory>, AgentError> {
        self.start_with(process, signals, false)
    }

    fn start_with<'s>(
        &self,
        process: &str,
        signals: &'s dyn Signals,
        take_over: bool,
    ) -> Result<Agent<'s, Files, Memory>, AgentError> {
        let memory = self.memory.clone();
        let storage = StorageSettings { folder: self.folder.join("state"), table: "namewall".to_owned() };
        let settings = FileSettings { storage: Some(storage), ..FileSettings::default() };
        Agent::start(Start {
            source: Files::new(&[self.folder.join("manifests")], settings),
            open: Box::new(move |_| Ok(memory)),
            clock: Arc::new(ManualClock::default()),
            machine: Box::new(FakeMachine::new(&["192.0.2.1"])),
            read_config: Box::new(|| Ok(config())),
            cluster_domain: "cluster.local".parse().expect("a name"),
            control: self.control(process),
            records: self.folder.join("records"),
            history: None,
            take_over,
            explain: Box::new(|_, _| Err("nobody explains".to_owned())),
            health: Health::new("not yet"),
            lookups: Box::new(NoLookups),
            signals,
        })
    }

    /// A process that starts, does something in each turn, and ends.
    fn run(&self, process: &str, turns: Vec<Turn<'_>>) {
        let signals = Turns::new(turns);
        let agent = self.start(process, &signals).expect("it starts");
        agent.run(&signals).expect("it ends");
    }

    /// Policies are enforced by a process that ends.
    fn enforce(&self) {
        Damage::Nothing.apply(&self.policies());
        self.run("first", Vec::new());
        assert_eq!(self.enforced(), (true, true));
        assert!(self.state().exists(), "the state is stored");
    }

    /// Whether the policies of db and web are in force.
    fn enforced(&self) -> (bool, bool) {
        let is_closed = |to: &str| !self.memory.connects(ip("192.0.2.77"), SocketAddr::new(ip(to), 80));
        (is_closed(DB), is_closed(WEB))
    }

    fn status(&self, process: &str) -> Value {
        let running = Running::find(&self.control(process)).expect("it runs");
        running.ask(&serde_json::json!({"status": true})).expect("it answers")
    }

    /// That a damage is known to users while a process runs.
    fn assert_told(&self, process: &str, damage: Damage) {
        let status = self.status(process);
        let kept = status["keptFiles"].as_array().map_or(0, Vec::len);
        let errors = |list: &Value| {
            list.as_array()
                .into_iter()
                .flatten()
                .filter(|one| one.as_str().is_some_and(|one| one.contains("error[")))
                .count()
        };
        assert_eq!(kept, usize::from(damage.is_error()), "{damage:?}: {status:#}");
        assert_eq!(errors(&status["findings"]) > 0, damage.is_error(), "{damage:?}: {status:#}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

fn turn<'t>(act: impl FnOnce() + 't) -> Turn<'t> {
    Box::new(move || {
        act();
        None
    })
}

#[test]
fn s10_3_a_start_keeps_what_was_enforced_for_what_it_cannot_read() {
    for damage in DAMAGES {
        let machine = Machine::new("start");
        machine.enforce();
        damage.apply(&machine.policies());
        machine.run("second", vec![turn(|| machine.assert_told("second", damage))]);
        assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}");
        // And so does the one after it, of which nobody has seen the good file.
        machine.run("third", vec![turn(|| machine.assert_told("third", damage))]);
        assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}, the second time");
    }
}

#[test]
fn s10_3_what_is_kept_is_counted() {
    let machine = Machine::new("counted");
    machine.enforce();
    let signals = Turns::new(Vec::new());
    for (damage, kept) in [(Damage::Nothing, 0), (Damage::NoByte, 1), (Damage::Nothing, 0)] {
        damage.apply(&machine.policies());
        let agent = machine.start("counted", &signals).expect("it starts");
        let text = Metrics::new(vec![Box::new(agent.metrics())]).text(Format::Prometheus);
        assert_samples(&text, &[&format!("namewall_objects_kept {kept}")]);
        agent.run(&signals).expect("it ends");
    }
}

#[test]
fn s10_3_a_reload_keeps_what_was_enforced_for_what_it_cannot_read() {
    for damage in DAMAGES {
        let machine = Machine::new("reload");
        machine.enforce();
        let (path, told) = (machine.policies(), &machine);
        machine.run(
            "second",
            vec![
                turn(|| damage.apply(&path)),
                turn(|| {
                    assert_eq!(told.enforced(), damage.enforced(), "{damage:?}");
                    told.assert_told("second", damage);
                    Damage::Nothing.apply(&path);
                }),
                turn(|| {
                    assert_eq!(told.enforced(), (true, true), "{damage:?} is mended");
                    told.assert_told("second", Damage::Nothing);
                }),
            ],
        );
    }
}

#[test]
fn s10_3_after_a_reload_with_an_error_a_start_still_knows_the_good_version() {
    for damage in DAMAGES {
        let machine = Machine::new("reload-start");
        machine.enforce();
        let path = machine.policies();
        machine.run("second", vec![turn(|| damage.apply(&path)), turn(|| {})]);
        machine.run("third", Vec::new());
        assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}");
    }
}

#[test]
fn s10_3_after_a_kill_a_start_keeps_what_was_enforced() {
    for damage in DAMAGES {
        let machine = Machine::new("kill");
        Damage::Nothing.apply(&machine.policies());
        let signals = Turns::new(Vec::new());
        // It does not end in order: its rules and its control socket stay.
        drop(machine.start("killed", &signals).expect("it starts"));
        damage.apply(&machine.policies());
        machine.run("second", vec![turn(|| machine.assert_told("second", damage))]);
        assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}");
    }
}

#[test]
fn s10_3_after_a_reboot_the_stored_state_is_enforced() {
    for damage in DAMAGES {
        let mut machine = Machine::new("reboot");
        machine.enforce();
        machine.memory = Memory::default();
        damage.apply(&machine.policies());
        machine.run("second", vec![turn(|| machine.assert_told("second", damage))]);
        assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}");
    }
}

#[test]
fn s10_3_a_take_over_keeps_what_was_enforced_for_what_it_cannot_read() {
    for damage in DAMAGES {
        let machine = Machine::new("take-over");
        machine.enforce();
        thread::scope(|scope| {
            let (runs, is_running) = std::sync::mpsc::channel();
            let machine = &machine;
            let old = scope.spawn(move || {
                // Until the other process takes over.
                struct Forever;
                impl Signals for Forever {
                    fn wait(&self, _time: Duration) -> Option<Signal> {
                        thread::yield_now();
                        None
                    }
                }
                let signals = Turns::new(Vec::new());
                let agent = machine.start("process", &signals).expect("it starts");
                runs.send(()).expect("the test waits");
                agent.run(&Forever).expect("it ends")
            });
            is_running.recv().expect("it starts");
            let signals = Turns::new(vec![turn(|| machine.assert_told("process", damage))]);
            // The old process reads the damage as well, or does not get to it.
            damage.apply(&machine.policies());
            let new = machine.start_with("process", &signals, true).expect("it takes over");
            assert_eq!(old.join().expect("it ends well"), Ended::Replaced);
            assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}");
            new.run(&signals).expect("it ends");
            assert_eq!(machine.enforced(), damage.enforced(), "{damage:?}");
        });
    }
}

/// What happens to the stored state.
fn spoil_state(machine: &Machine, how: &str) {
    let state = machine.state();
    let bytes = fs::read(&state).expect("it is there");
    let done = match how {
        "removed" => fs::remove_file(&state),
        "empty" => fs::write(&state, ""),
        "cut off" => fs::write(&state, &bytes[..bytes.len() / 2]),
        _ => fs::write(&state, String::from_utf8_lossy(&bytes).replace("app: db", "app: dc")),
    };
    done.expect("it is ours");
}

#[test]
fn s10_3_a_lost_state_leaves_the_kernel_as_it_is_until_the_files_can_be_read() {
    for how in ["removed", "empty", "cut off", "changed"] {
        for damage in [Damage::NoYaml, Damage::NoByte, Damage::Pipe, Damage::DanglingLink, Damage::CutInAKind] {
            let machine = Machine::new("lost");
            machine.enforce();
            spoil_state(&machine, how);
            damage.apply(&machine.policies());
            let replaced = machine.memory.replaced();
            let held = || {
                assert_eq!(machine.memory.replaced(), replaced, "{how}, {damage:?}: the kernel's rules stay");
                let status = machine.status("second");
                let text = status["held"].as_str().unwrap_or_default();
                assert!(text.contains("policies.yaml") && text.contains("stay as they are"), "{status:#}");
            };
            // The first turns are those of the wait: nothing is enforced, and nothing is stored.
            let mended = || Damage::Nothing.apply(&machine.policies());
            let signals = Turns::new(vec![turn(held), turn(held), turn(mended)]);
            let agent = machine.start("second", &signals).expect("it starts when the file is mended");
            assert_eq!(machine.enforced(), (true, true), "{how}, {damage:?}");
            let told = machine.status("second");
            let findings = told["findings"].as_array().into_iter().flatten();
            assert!(findings.into_iter().any(|one| one.to_string().contains("state-lost")), "{how}: {told:#}");
            agent.run(&signals).expect("it ends");
        }
    }
}

#[test]
fn s10_3_a_start_that_waits_can_be_ended_and_has_stored_nothing() {
    let machine = Machine::new("ended");
    machine.enforce();
    spoil_state(&machine, "removed");
    Damage::NoYaml.apply(&machine.policies());
    let signals = Turns::new(vec![turn(|| {})]);
    let ended = machine.start("second", &signals).err().expect("it ends");
    assert!(matches!(ended, AgentError::Ended), "{ended}");
    assert!(!machine.state().exists() && !machine.control("second").exists());
    assert_eq!(machine.enforced(), (true, true));
}

#[test]
fn s10_3_nobody_takes_over_who_knows_less() {
    let machine = Machine::new("refuses");
    machine.enforce();
    let signals = Turns::new(Vec::new());
    let old = machine.start("process", &signals).expect("it starts");
    spoil_state(&machine, "removed");
    Damage::NoYaml.apply(&machine.policies());
    let refused = machine.start_with("process", &signals, true).err().expect("it knows less");
    assert!(matches!(&refused, AgentError::Gap(why) if why.contains("policies.yaml")), "{refused}");
    assert_eq!(machine.enforced(), (true, true));
    old.run(&signals).expect("it ends");
}

#[test]
fn s10_3_a_lost_state_is_told_of_and_made_anew_when_all_can_be_read() {
    let machine = Machine::new("anew");
    machine.enforce();
    spoil_state(&machine, "cut off");
    machine.run("second", Vec::new());
    Damage::NoYaml.apply(&machine.policies());
    machine.run("third", Vec::new());
    assert_eq!(machine.enforced(), (true, true));
}

#[test]
fn s10_3_without_rules_in_the_kernel_what_cannot_be_read_does_not_stop_the_start() {
    let machine = Machine::new("first-start");
    Damage::NoYaml.apply(&machine.policies());
    machine.run("first", Vec::new());
    assert_eq!(machine.enforced(), (false, false), "nothing is known of them");
}

#[test]
fn s10_3_a_state_directory_that_cannot_be_written_is_told_of_and_stops_nothing() {
    let machine = Machine::new("unwritable");
    Damage::Nothing.apply(&machine.policies());
    // Nobody can make a folder there, not even root.
    fs::write(machine.folder.join("state"), "").expect("a file");
    let is_told = || {
        let status = machine.status("first");
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        let mut failure = status["storage"]["failure"].clone();
        while failure.is_null() && std::time::Instant::now() < deadline {
            thread::yield_now();
            failure = machine.status("first")["storage"]["failure"].clone();
        }
        failure
    };
    let signals = Turns::new(vec![
        turn(|| {}),
        turn(|| {}),
        turn(|| {
            assert_eq!(machine.enforced(), (true, true));
            assert!(is_told().as_str().is_some_and(|text| text.contains("cannot make")));
        }),
    ]);
    let agent = machine.start("first", &signals).expect("it starts");
    agent.run(&signals).expect("it ends");
}

#[test]
fn s10_3_the_state_of_other_manifests_is_not_mixed_in() {
    let machine = Machine::new("other");
    machine.enforce();
    // Another folder, whose file of the same name is wrong.
    let mut other = Machine::new("other-too");
    fs::create_dir_all(other.folder.join("state")).expect("a folder");
    fs::rename(machine.folder.join("state"), other.folder.join("state")).expect("it is moved");
    other.memory = Memory::default();
    Damage::NoYaml.apply(&other.policies());
    other.run("process", Vec::new());
    assert_eq!(other.enforced(), (false, false), "these policies are not of this folder");
}
