//! How many schedules of faults the simulator runs in a second of its thread's CPU time: other processes of the machine
//! have no part in it.

use namewall_bench::figures::{cpu_time, figure};
use namewall_simulation::Schedule;

pub(crate) fn measure(schedules: u64) {
    let spent = || cpu_time(std::process::id()).expect("a process can read its own times").as_secs_f64();
    let before = spent();
    let simulated: u64 = (1..=schedules).map(|seed| Schedule::new(seed).run()).sum();
    let seconds = spent() - before;
    figure("cluster_schedules_a_second", schedules as f64 / seconds);
    figure("cluster_simulated_seconds_a_second", simulated as f64 / seconds);
}
