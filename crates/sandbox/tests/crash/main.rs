//! An agent that is killed, again and again, while it changes its node's table
//! as fast as it can: no probe may ever see what neither the old Program nor
//! the new one says, and no connection that all of them allow may break.
//!
//! The agent is this test itself, started again. It goes round a **round** of
//! Programs, two or all of three, and says which it has applied. As long as
//! only B and C are gone round, what A alone allows must be silent, and what
//! both of them allow must be open.
//!
//! `SECONDS=600 cargo test -p namewall-sandbox --test crash` runs for longer.

mod agent;
#[path = "../common/mod.rs"]
mod common;
#[path = "../random/policy.rs"]
mod policy;
mod programs;
mod watch;
#[path = "../random/world.rs"]
mod world;

use agent::{Agent, Round};
use namewall_dataplane::nft::{RELEASE_TIMEOUT, uninstall};
use namewall_sandbox::{Sandbox, ensure_rights};
use namewall_testbed::{Dice, give_up};
use programs::{NODE, Programs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use watch::{Seen, Watch};
use world::World;

const SECONDS: u64 = 15;
/// So many lives of an agent, one after another, go round the same Programs.
const LIVES: usize = 8;
const LONGEST_LIFE_MS: usize = 100;
const UPDATES: usize = 200;
const KILLS: usize = 40;
/// Whoever has not come to as many by now does not go on at all.
const LONGEST: Duration = Duration::from_secs(600);

fn main() {
    if agent::is_one() {
        return agent::run();
    }
    ensure_rights().unwrap_or_else(|error| give_up(error));
    let seconds = std::env::var("SECONDS").map_or(SECONDS, |text| text.parse().expect("SECONDS is a number"));
    let programs = Programs::new();
    let snapshot = &programs.all[0].snapshot;
    let sandbox = Sandbox::build(snapshot, &World::outside(), &mut |_| {}).expect("a sandbox");
    let mut watch = Watch::new(sandbox, &programs);
    let node = watch.sandbox.node(NODE).expect("the node is there").clone();
    common::forget_soon(&node);
    let (stop, has_enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let rounds = agent::Rounds::default();
    // Every Program's names are leased before anything is expected of them.
    let mut first = Agent::start(&node, Round::ALL, &rounds);
    first.wait_for(2 * programs.all.len());
    watch.connect();
    let (seen, kills, updates) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch.run(&rounds, &stop, &has_enough));
        let stop = StopAtTheEnd(&stop);
        let mut lives = Lives { dice: Dice::new(seconds), kills: 0, updates: first.kill() };
        let start = Instant::now();
        // A busy machine takes longer to come to as many.
        let enough =
            |lives: &Lives| lives.updates >= UPDATES && lives.kills >= KILLS && has_enough.load(Ordering::Relaxed);
        let time = |lives: &Lives| if enough(lives) { Duration::from_secs(seconds) } else { LONGEST };
        while start.elapsed() < time(&lives) && !watcher.is_finished() {
            let round = lives.dice.pick(&Round::WITH_SEVERAL);
            (0..LIVES).for_each(|_| lives.live(|| Agent::start(&node, round, &rounds)));
        }
        drop(stop);
        (watcher.join().expect("the watcher ends well"), lives.kills, lives.updates)
    });
    println!("{updates} updates, {kills} kills; {seen}");
    assert!(updates >= UPDATES && kills >= KILLS, "too few of them to tell anything");
    seen.is_worth_its_time();
    let remove = || uninstall(programs::TABLE, RELEASE_TIMEOUT, &mut |_| {});
    let gone = node.enter(|| (remove(), remove())).expect("the node is entered");
    assert!(matches!(gone, (Ok(true), Ok(false))), "the table is removed, and then it is gone: {gone:?}");
    println!("test killed_agents_leave_no_gap_and_no_hole ... ok");
}

/// Also where it ends badly, so that nobody waits for the watcher for ever.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Lives {
    dice: Dice,
    kills: usize,
    updates: usize,
}

impl Lives {
    /// Some end before they have done anything, some while they adopt what the last one left.
    fn live(&mut self, start: impl FnOnce() -> Agent) {
        let mut agent = start();
        if self.dice.chance(70) {
            agent.wait_for(1);
        }
        thread::sleep(Duration::from_millis(self.dice.within(0..LONGEST_LIFE_MS) as u64));
        self.updates += agent.kill();
        self.kills += 1;
    }
}

impl Seen {
    fn is_worth_its_time(&self) {
        assert!(self.is_enough() && self.connections >= 4, "too little was seen: {self}");
        // Seen once in dozens of runs. If it were common, something else would be wrong.
        assert!(self.in_parts * 1000 <= self.silent, "too many packets met two Programs: {self}");
    }
}
