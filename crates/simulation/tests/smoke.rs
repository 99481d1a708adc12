//! Two nodes and two replicas of the controller, with faults and restarts: what
//! one node learns is open on the other, and a seed gives the same run again.

use namewall_simulation::Cluster;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// What a run came to.
#[derive(PartialEq, Eq, Debug)]
struct Run {
    trace: u64,
    steps: u64,
}

fn run(seed: u64) -> Run {
    let mut cluster = Cluster::new(seed);
    cluster.disturb();
    for part in 0..6 {
        let end = cluster.now() + 10 * SECOND;
        while cluster.simulation.step(end) {
            assert!(cluster.leaders() <= 1, "seed {seed}: two replicas lead");
        }
        let at = cluster.random_below(2) as usize;
        match part {
            1 => cluster.restart_node(at),
            3 => cluster.restart_replica(at),
            4 => cluster.server.forget_history(),
            _ => {}
        }
    }
    cluster.calm();
    cluster.simulation.run_for(60 * SECOND);
    assert_eq!(cluster.leaders(), 1, "seed {seed}: one replica leads");
    assert_eq!(cluster.resolvers(), ["*.example.com."], "seed {seed}");
    let open = cluster.open();
    assert_eq!(open[0], open[1], "seed {seed}: what one node learns is open on the other");
    assert_eq!(open[0].len(), 3, "seed {seed}: all names are asked for again and again");
    let trace = cluster.simulation.trace();
    Run { trace: trace.hash(), steps: trace.lines() }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (first, again, other) = (run(1), run(1), run(2));
    assert_eq!(first, again);
    assert_ne!(first.trace, other.trace);
    assert!(first.steps > 300, "{first:?}");
}

#[test]
fn what_one_node_learns_is_open_on_the_other_whatever_goes_wrong() {
    for seed in 10..14 {
        run(seed);
    }
}
