//! A deterministic simulation: tasks in one thread, virtual time, and a seeded
//! choice of which task goes on next. The same seed gives the same trace.
//!
//! Time goes on only when no task can. A [`Process`] is a group of tasks that can
//! be killed at once, as a process can.

mod trace;

pub use trace::Trace;

use crate::{BoxFuture, Clock, Instant, ManualClock, Random, SeededRandom, Tasks};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Runs tasks in virtual time.
pub struct Simulation {
    queue: Arc<Queue>,
    tasks: BTreeMap<TaskId, BoxFuture<()>>,
    random: Arc<SeededRandom>,
    trace: Arc<Trace>,
    processes: u64,
}

/// Orders by process first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct TaskId {
    process: u64,
    number: u64,
}

struct Queue {
    clock: ManualClock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    spawned: Vec<(TaskId, BoxFuture<()>)>,
    ready: Vec<TaskId>,
    /// By time, and of equal times in the order they were set.
    timers: BTreeMap<(Instant, u64), Waker>,
    numbers: u64,
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("now", &self.queue.clock.now()).field("tasks", &self.tasks.len()).finish()
    }
}

impl Simulation {
    pub fn new(seed: u64) -> Self {
        let clock = ManualClock::default();
        Self {
            queue: Arc::new(Queue { clock: clock.clone(), state: Mutex::default() }),
            tasks: BTreeMap::new(),
            random: Arc::new(SeededRandom::new(seed)),
            trace: Arc::new(Trace::new(clock)),
            processes: 0,
        }
    }

    pub fn clock(&self) -> ManualClock {
        self.queue.clock.clone()
    }

    /// The random numbers that all of the simulation takes its choices from.
    pub fn random(&self) -> Arc<SeededRandom> {
        self.random.clone()
    }

    /// What has happened. Tasks may add what they see.
    pub fn trace(&self) -> Arc<Trace> {
        self.trace.clone()
    }

    /// A new group of tasks.
    pub fn process(&mut self) -> Arc<Process> {
        self.processes += 1;
        Arc::new(Process { number: self.processes, queue: self.queue.clone() })
    }

    /// Drops all tasks of a process, wherever they are.
    pub fn kill(&mut self, process: &Process) {
        self.take_spawned();
        self.tasks.retain(|id, _| id.process != process.number);
        self.trace.add(&format!("kill {}", process.number));
    }

    /// Runs until this much virtual time has passed.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.queue.clock.now() + time;
        while self.step(end) {}
    }

    /// Runs until something holds. False if it does not hold within this much virtual time.
    pub fn run_until(&mut self, within: Duration, holds: impl Fn() -> bool) -> bool {
        let end = self.queue.clock.now() + within;
        loop {
            if holds() {
                return true;
            }
            if !self.step(end) {
                return holds();
            }
        }
    }

    /// Lets one task go on, or lets time pass until one can. False at the end of the time.
    pub fn step(&mut self, end: Instant) -> bool {
        self.take_spawned();
        if let Some(id) = self.choose() {
            self.poll(id);
            return true;
        }
        let first = self.queue.lock().timers.first_key_value().map(|((at, _), _)| *at);
        let at = first.map_or(end, |first| first.min(end));
        self.queue.clock.advance(at.since(self.queue.clock.now()));
        // Timers of one moment wake their tasks together: which of them goes on first is a choice.
        let due = {
            let mut state = self.queue.lock();
            let later = state.timers.split_off(&(at, u64::MAX));
            std::mem::replace(&mut state.timers, later)
        };
        let is_over = due.is_empty();
        due.into_values().for_each(Waker::wake);
        !is_over
    }

    fn choose(&self) -> Option<TaskId> {
        let mut state = self.queue.lock();
        let count = state.ready.len() as u64;
        let at = if count > 1 { self.random.number() % count } else { 0 };
        (count > 0).then(|| state.ready.remove(at as usize))
    }

    fn poll(&mut self, id: TaskId) {
        // A task that was killed, or has ended, may still be woken.
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.trace.add(&format!("task {} {}", id.process, id.number));
        let waker = Waker::from(Arc::new(TaskWaker { id, queue: self.queue.clone() }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&id);
        }
    }

    fn take_spawned(&mut self) {
        let mut state = self.queue.lock();
        for (id, task) in std::mem::take(&mut state.spawned) {
            self.tasks.insert(id, task);
            state.ready.push(id);
        }
    }
}

struct TaskWaker {
    id: TaskId,
    queue: Arc<Queue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut state = self.queue.lock();
        if !state.ready.contains(&self.id) {
            state.ready.push(self.id);
        }
    }
}

/// Spawns the tasks of one group.
pub struct Process {
    number: u64,
    queue: Arc<Queue>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.number).finish()
    }
}

impl Tasks for Process {
    fn spawn(&self, task: BoxFuture<()>) {
        let mut state = self.queue.lock();
        let id = TaskId { process: self.number, number: state.number() };
        state.spawned.push((id, task));
    }

    fn sleep(&self, time: Duration) -> BoxFuture<()> {
        Box::pin(Sleep { until: self.queue.clock.now() + time, timer: None, queue: self.queue.clone() })
    }
}

struct Sleep {
    until: Instant,
    timer: Option<u64>,
    queue: Arc<Queue>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.queue.clock.now() >= self.until {
            return Poll::Ready(());
        }
        let queue = self.queue.clone();
        let mut state = queue.lock();
        let number = *self.timer.get_or_insert_with(|| state.number());
        state.timers.insert((self.until, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.timer {
            self.queue.lock().timers.remove(&(self.until, number));
        }
    }
}

#[cfg(test)]
mod tests;
