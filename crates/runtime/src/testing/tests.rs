//! The simulation itself.

use super::*;
use crate::{TimedOut, in_time};

const SECOND: Duration = Duration::from_secs(1);

/// Who ran, in order.
type Log = Arc<Mutex<Vec<String>>>;

fn write(log: &Log, line: impl Into<String>) {
    log.lock().expect("no task panics").push(line.into());
}

/// Three tasks that meet again and again.
fn meetings(seed: u64) -> (Vec<String>, u64) {
    let mut simulation = Simulation::new(seed);
    let (process, log) = (simulation.process(), Log::default());
    for name in ["a", "b", "c"] {
        let (tasks, log) = (process.clone(), log.clone());
        process.spawn(Box::pin(async move {
            for _ in 0..5 {
                tasks.sleep(SECOND).await;
                write(&log, name);
            }
        }));
    }
    simulation.run_for(10 * SECOND);
    let lines = log.lock().expect("no task panics").clone();
    (lines, simulation.trace().hash())
}

#[test]
fn a_seed_decides_who_goes_on_first() {
    assert_eq!(meetings(1), meetings(1));
    assert_eq!(meetings(1).0.len(), 15);
    let orders: std::collections::BTreeSet<Vec<String>> = (0..20).map(|seed| meetings(seed).0).collect();
    assert!(orders.len() > 10, "{} orders", orders.len());
}

#[test]
fn time_passes_only_while_all_sleep() {
    let mut simulation = Simulation::new(1);
    let (process, log, clock) = (simulation.process(), Log::default(), simulation.clock());
    let (tasks, told) = (process.clone(), log.clone());
    process.spawn(Box::pin(async move {
        let quick = in_time(&*tasks, 2 * SECOND, tasks.sleep(SECOND)).await;
        let slow = in_time(&*tasks, 2 * SECOND, tasks.sleep(3 * SECOND)).await;
        write(&told, format!("{quick:?} {slow:?} {:?}", clock.now().0));
    }));
    assert!(simulation.run_until(10 * SECOND, || !log.lock().expect("no task panics").is_empty()));
    let expected = format!("{:?} {:?} 4s", Ok::<(), TimedOut>(()), Err::<(), TimedOut>(TimedOut));
    assert_eq!(*log.lock().expect("no task panics"), [expected]);
}

#[test]
fn a_process_that_is_killed_does_nothing_more() {
    let mut simulation = Simulation::new(1);
    let (one, other, log) = (simulation.process(), simulation.process(), Log::default());
    for (process, name) in [(&one, "one"), (&other, "other")] {
        let (tasks, log) = (process.clone(), log.clone());
        process.spawn(Box::pin(async move {
            tasks.sleep(SECOND).await;
            write(&log, name);
        }));
    }
    simulation.run_for(SECOND / 2);
    simulation.kill(&one);
    simulation.run_for(SECOND);
    assert_eq!(*log.lock().expect("no task panics"), ["other"]);
}
