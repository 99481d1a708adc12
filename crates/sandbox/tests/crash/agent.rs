//! The agent, from both sides: what it does until it is killed, and who starts
//! and kills it.

use super::programs::{NODE, Programs, TABLE};
use super::world::NOW;
use namewall_dataplane::SingleThreaded;
use namewall_dataplane::nft::{Nft, Settings};
use namewall_dataplane::render::Scope;
use namewall_sandbox::Namespace;
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PLACE: &str = "NAMEWALL_CRASH_NODE";
const ROUND: &str = "NAMEWALL_CRASH_ROUND";

/// After one turn in so many connections are cut.
const CUT: usize = 4;

/// A bit for each Program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round(pub(crate) u8);

impl Round {
    pub(crate) const ALL: Self = Self(0b111);
    pub(crate) const WITH_SEVERAL: [Self; 4] = [Self(0b111), Self(0b110), Self(0b101), Self(0b011)];
}

/// Which Programs may have been in the kernel, one entry after another; the last still may.
#[derive(Clone, Debug)]
pub(crate) struct Rounds(Arc<Mutex<Vec<u8>>>);

impl Default for Rounds {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(vec![0])))
    }
}

impl Rounds {
    fn change(&self, change: impl FnOnce(u8) -> u8) {
        let mut rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = change(rounds.last().copied().unwrap_or_default());
        rounds.push(next);
    }

    /// Where we are, to be asked later what has been since.
    pub(crate) fn now(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() - 1
    }

    pub(crate) fn since(&self, then: usize) -> u8 {
        let rounds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rounds[then..].iter().fold(0, |all, round| all | round)
    }
}

pub(crate) fn is_one() -> bool {
    std::env::var_os(PLACE).is_some()
}

/// Goes round until it is killed, or nobody listens any more.
pub(crate) fn run() {
    let place = std::env::var_os(PLACE).and_then(|path| File::open(path).ok()).expect("the node's namespace");
    let round: u8 = std::env::var(ROUND).ok().and_then(|text| text.parse().ok()).expect("a round");
    setns(place, CloneFlags::CLONE_NEWNET).expect("the node is entered");
    let programs = Programs::new();
    let node = programs.all[0].snapshot.node_named(NODE);
    let scope = Scope { node, ..Scope::default() };
    let nft = Nft::open(Settings { table: TABLE.to_owned(), ..Settings::default() }).expect("nftables");
    let mut nft = SingleThreaded::new(nft, scope);
    let mut said = io::stdout();
    for turn in 0.. {
        for (_, one) in programs.all.iter().enumerate().filter(|(at, _)| round & 1 << at != 0) {
            let applied = nft.replace(&one.program, NOW).expect("the table is changed");
            // To look at every connection takes longer than a change: not after each, so that there are more of them.
            if applied.narrows && turn % CUT == 0 {
                nft.cut(&one.program).expect("connections are cut");
            }
            nft.grant(&programs.leases, NOW).expect("leases are granted");
            if writeln!(said, "applied").and_then(|()| said.flush()).is_err() {
                return;
            }
        }
    }
}

/// How often it has said that it applied a Program.
#[derive(Default, Debug)]
struct Said {
    applied: Mutex<usize>,
    more: Condvar,
}

pub(crate) struct Agent {
    child: Child,
    said: Arc<Said>,
    reader: JoinHandle<()>,
}

impl Agent {
    pub(crate) fn start(node: &Namespace, round: Round, rounds: &Rounds) -> Self {
        // Until it says so, what the last one left may still be there.
        rounds.change(|before| before | round.0);
        let mut command = Command::new("/proc/self/exe");
        command.env(PLACE, node.path()).env(ROUND, round.0.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this test starts itself");
        let lines = BufReader::new(child.stdout.take().expect("its output is ours")).lines();
        let said = Arc::<Said>::default();
        let (told, rounds) = (said.clone(), rounds.clone());
        let reader = thread::spawn(move || {
            for _ in lines.map_while(Result::ok) {
                let mut applied = told.applied.lock().unwrap_or_else(PoisonError::into_inner);
                if *applied == 0 {
                    rounds.change(|_| round.0);
                }
                *applied += 1;
                told.more.notify_all();
            }
        });
        Self { child, said, reader }
    }

    /// Until it has applied so many Programs.
    pub(crate) fn wait_for(&mut self, count: usize) {
        let mut applied = self.said.applied.lock().unwrap_or_else(PoisonError::into_inner);
        while *applied < count {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the agent ended by itself: {status}");
            }
            let waited = self.said.more.wait_timeout(applied, Duration::from_millis(50));
            applied = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many Programs it has applied.
    pub(crate) fn kill(mut self) -> usize {
        if let Ok(Some(status)) = self.child.try_wait() {
            panic!("the agent ended by itself: {status}");
        }
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it has ended");
        self.reader.join().expect("all it said was heard");
        *self.said.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
