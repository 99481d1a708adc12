//! How many schedules of faults the simulator runs in a second.

use namewall_bench::figures::{figure, timed};
use namewall_simulation::Schedule;

pub(crate) fn measure(schedules: u64) {
    let (simulated, time) = timed(|| (1..=schedules).map(|seed| Schedule::new(seed).run()).sum::<u64>());
    figure("cluster_schedules_a_second", schedules as f64 / time.as_secs_f64());
    figure("cluster_simulated_seconds_a_second", simulated as f64 / time.as_secs_f64());
}
