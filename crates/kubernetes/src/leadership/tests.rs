//! Candidates at an API server in memory, in virtual time.

use super::*;
use crate::testing::{FakeServer, Faults};
use jiff::SignedDuration;
use namewall_runtime::testing::{Process, Simulation};
use namewall_runtime::{Clock, Tasks};

struct World {
    simulation: Simulation,
    server: FakeServer,
}

/// A replica.
struct Replica {
    process: Arc<Process>,
    leadership: Leadership,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let server = FakeServer::start(&mut simulation);
        Self { simulation, server }
    }

    fn replica(&mut self, identity: &str, skew: i64) -> Replica {
        let process = self.simulation.process();
        let clock = self.simulation.clock().skewed_by(SignedDuration::from_secs(skew));
        let candidate =
            Candidate { namespace: "namewall".to_owned(), name: "leader".to_owned(), identity: identity.to_owned() };
        let leadership = Leadership::seek(&self.server.environment(&process, clock), candidate);
        Replica { process, leadership }
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn one_of_two_leads_however_wrong_their_clocks_are() {
    for seed in 0..5 {
        let mut world = World::new(seed);
        world.server.set_faults(Faults { delay: Duration::from_millis(500), lost_answers: 20, ..Faults::default() });
        let (one, other) = (world.replica("one", 0).leadership, world.replica("other", -500).leadership);
        assert!(world.simulation.run_until(MINUTE, || one.is_held() || other.is_held()), "seed {seed}");
        let end = world.simulation.clock().now() + 3 * MINUTE;
        while world.simulation.step(end) {
            assert!(!(one.is_held() && other.is_held()), "seed {seed}: both lead");
        }
    }
}

#[test]
fn another_takes_over_when_the_leader_is_no_longer_heard_of() {
    let mut world = World::new(1);
    let one = world.replica("one", 0);
    assert!(world.simulation.run_until(MINUTE, || one.leadership.is_held()));
    let other = world.replica("other", 0);
    world.simulation.run_for(MINUTE);
    assert!(one.leadership.is_held() && !other.leadership.is_held());
    world.simulation.kill(&one.process);
    let killed = world.simulation.clock().now();
    assert!(world.simulation.run_until(MINUTE, || other.leadership.is_held()));
    assert!(!one.leadership.is_held());
    let took = world.simulation.clock().now().since(killed);
    assert!((LASTS - RENEW_EVERY..LASTS + 2 * RENEW_EVERY).contains(&took), "{took:?}");
}

#[test]
fn a_leader_that_cannot_renew_stops_before_another_may_begin() {
    let mut world = World::new(1);
    let one = world.replica("one", 0);
    assert!(world.simulation.run_until(MINUTE, || one.leadership.is_held()));
    world.server.set_faults(Faults { is_away: true, ..Faults::default() });
    let away = world.simulation.clock().now();
    assert!(world.simulation.run_until(MINUTE, || !one.leadership.is_held()));
    assert!(world.simulation.clock().now().since(away) <= LASTS - MARGIN);
}

#[test]
fn one_that_gives_up_lets_another_lead_at_once() {
    let mut world = World::new(1);
    let one = world.replica("one", 0);
    assert!(world.simulation.run_until(MINUTE, || one.leadership.is_held()));
    let other = world.replica("other", 0);
    one.process.spawn(Box::pin(one.leadership.give_up()));
    assert!(world.simulation.run_until(RENEW_EVERY + Duration::from_secs(1), || other.leadership.is_held()));
}
