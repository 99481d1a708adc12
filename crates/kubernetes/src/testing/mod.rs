//! An API server in memory, for tests in virtual time. It has versions,
//! conflicts, statuses and watches as the real one does, and can be told to be
//! slow, to lose requests or answers, to repeat events, to end watches, to forget
//! its history, to refuse requests or to be away, for all or for those who take one way.
//!
//! Lists come in one part.

mod objects;
#[cfg(test)]
mod tests;

use crate::api::{Answer, ApiError, ApiServer, GONE, Listed, Part, Request, Resource, WatchEvent, Watching};
use crate::environment::Environment;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use namewall_cluster::Key;
use namewall_cluster::kinds::Kind;
use namewall_runtime::testing::{Process, Simulation, Trace};
use namewall_runtime::{Clock, ManualClock, Random, Tasks};
use objects::Objects;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// What goes wrong. Parts are in percent.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    /// The longest that a request, an answer or an event is under way.
    pub delay: Duration,
    /// Requests that are lost before they have an effect.
    pub lost_requests: u64,
    /// Answers that are lost: the request has had its effect.
    pub lost_answers: u64,
    /// Events that are told twice.
    pub repeated_events: u64,
    /// Events after which the watch ends.
    pub ended_watches: u64,
    /// No request gets through, and watches break.
    pub is_away: bool,
}

/// Decides on requests before the server does.
type Refuse = Box<dyn FnMut(&Request) -> Option<ApiError> + Send>;

/// The server. Clones are the same server.
#[derive(Clone)]
pub struct FakeServer {
    shared: Arc<Shared>,
    /// Which way to it this is: each can be cut by itself.
    way: usize,
}

struct Shared {
    state: Mutex<State>,
    tasks: Arc<dyn Tasks>,
    random: Arc<dyn Random>,
    trace: Arc<Trace>,
}

#[derive(Default)]
struct State {
    objects: Objects,
    faults: Faults,
    refuse: Option<Refuse>,
    requests: Vec<Request>,
    watchers: Vec<Waker>,
    cut_ways: BTreeSet<usize>,
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeServer").field("revision", &self.lock().objects.revision()).finish_non_exhaustive()
    }
}

impl FakeServer {
    pub fn start(simulation: &mut Simulation) -> Self {
        let (tasks, random) = (simulation.process(), simulation.random());
        let shared = Shared { state: Mutex::default(), tasks, random, trace: simulation.trace() };
        Self { shared: Arc::new(shared), way: 0 }
    }

    /// The same server by another way.
    pub fn by_way(&self, way: usize) -> Self {
        Self { shared: self.shared.clone(), way }
    }

    /// Cuts a way, or opens it again: to those who take it the server is away.
    pub fn set_cut(&self, way: usize, is_cut: bool) {
        let mut state = self.lock();
        match is_cut {
            true => _ = state.cut_ways.insert(way),
            false => _ = state.cut_ways.remove(&way),
        }
        wake(state);
    }

    /// The environment of a process that uses this server, by its own clock.
    pub fn environment(&self, process: &Arc<Process>, clock: ManualClock) -> Environment {
        let clock: Arc<dyn Clock> = Arc::new(clock);
        Environment::new(Arc::new(self.clone()), process.clone(), clock, self.shared.random.clone())
    }

    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.lock();
        state.faults = faults;
        wake(state);
    }

    /// From now on these requests are refused.
    pub fn refuse(&self, refuse: impl FnMut(&Request) -> Option<ApiError> + Send + 'static) {
        self.lock().refuse = Some(Box::new(refuse));
    }

    /// Nothing that has happened until now can be watched any more.
    pub fn forget_history(&self) {
        let mut state = self.lock();
        state.objects.forgotten = state.objects.revision();
        wake(state);
    }

    /// Stores an object as somebody else would, status and all.
    pub fn put(&self, kind: &'static Kind, object: Value) {
        let mut state = self.lock();
        state.objects.put(kind.preferred().into(), &Key::of(&object), object);
        wake(state);
    }

    pub fn get(&self, kind: &'static Kind, key: &Key) -> Option<Value> {
        self.lock().objects.get(kind.preferred().into(), key).cloned()
    }

    /// The objects of a kind, by namespace and name.
    pub fn all(&self, kind: &'static Kind) -> Vec<Value> {
        self.lock().objects.of(kind.preferred().into()).cloned().collect()
    }

    /// The requests that got through since this was last asked.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.lock().requests)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> Faults {
        self.lock().faults
    }

    fn is_away(&self) -> bool {
        let state = self.lock();
        state.faults.is_away || state.cut_ways.contains(&self.way)
    }

    /// A message is under way.
    async fn travel(&self) {
        let time = self.shared.random.part_of(self.faults().delay);
        if !time.is_zero() {
            self.shared.tasks.sleep(time).await;
        }
    }

    /// True in so many of 100 cases.
    fn happens(&self, percent: u64) -> bool {
        percent > 0 && self.shared.random.number() % 100 < percent
    }

    fn reached<T>(&self, answer: T, lost: u64) -> Result<T, ApiError> {
        match self.is_away() || self.happens(lost) {
            true => Err(ApiError::Unreachable("connection refused".to_owned())),
            false => Ok(answer),
        }
    }

    fn effect(&self, request: &Request) -> Result<Value, ApiError> {
        let mut state = self.lock();
        let refused = state.refuse.as_mut().and_then(|refuse| refuse(request));
        let answer = refused.map_or_else(|| state.objects.answer(request), Err);
        let code = answer.as_ref().err().map(ApiError::code);
        self.shared.trace.add(&format!("{request:?} {code:?} {}", state.objects.revision()));
        state.requests.push(request.clone());
        wake(state);
        answer
    }

    /// What happens next to the objects of a kind, and its revision.
    async fn next_change(&self, resource: Resource, after: u64) -> Result<(u64, WatchEvent), ApiError> {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.faults.is_away || state.cut_ways.contains(&self.way) {
                return Poll::Ready(Err(ApiError::Unreachable("connection reset".to_owned())));
            }
            if after < state.objects.forgotten {
                let message = format!("too old resource version: {after}");
                return Poll::Ready(Err(ApiError::Refused { code: GONE, message }));
            }
            match state.objects.after(resource, after) {
                Some(change) => Poll::Ready(Ok(change)),
                None => {
                    state.watchers.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Lets watches look what has happened.
fn wake(mut state: MutexGuard<'_, State>) {
    let watchers = std::mem::take(&mut state.watchers);
    drop(state);
    watchers.into_iter().for_each(Waker::wake);
}

impl ApiServer for FakeServer {
    fn ask(&self, request: Request) -> Answer<Value> {
        let server = self.clone();
        Box::pin(async move {
            server.travel().await;
            server.reached((), server.faults().lost_requests)?;
            let answer = server.effect(&request);
            server.travel().await;
            server.reached(answer, server.faults().lost_answers)?
        })
    }

    fn list(&self, resource: Resource, _: Part) -> Answer<Listed> {
        let server = self.clone();
        Box::pin(async move {
            server.travel().await;
            server.reached((), server.faults().lost_requests)?;
            let listed = server.lock().objects.list(resource);
            server.travel().await;
            server.reached(listed, server.faults().lost_answers)
        })
    }

    fn watch(&self, resource: Resource, version: String) -> Answer<Watching> {
        let server = self.clone();
        Box::pin(async move {
            server.travel().await;
            server.reached((), server.faults().lost_requests)?;
            let after = version.parse().unwrap_or(0);
            let told = Telling { server, resource, after, again: None, is_over: false };
            Ok(unfold(told, Telling::next).boxed())
        })
    }

    fn serves(&self, _: Resource) -> Answer<bool> {
        let server = self.clone();
        Box::pin(async move {
            server.travel().await;
            server.reached(true, server.faults().lost_requests)
        })
    }
}

/// A watch that is under way.
struct Telling {
    server: FakeServer,
    resource: Resource,
    after: u64,
    again: Option<WatchEvent>,
    is_over: bool,
}

impl Telling {
    async fn next(mut self) -> Option<(Result<WatchEvent, ApiError>, Self)> {
        if self.is_over {
            return None;
        }
        if let Some(event) = self.again.take() {
            return Some((Ok(event), self));
        }
        let next = self.server.next_change(self.resource, self.after).await;
        self.server.travel().await;
        let faults = self.server.faults();
        match next {
            Ok((revision, event)) => {
                self.after = revision;
                self.again = self.server.happens(faults.repeated_events).then(|| event.clone());
                self.is_over = self.server.happens(faults.ended_watches);
                Some((Ok(event), self))
            }
            Err(error) => {
                self.is_over = true;
                Some((Err(error), self))
            }
        }
    }
}
