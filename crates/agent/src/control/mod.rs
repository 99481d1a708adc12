//! The control socket: `namewall status`, `leases` and `explain --live` ask here,
//! the CNI plugin, and an agent that takes over.

mod attach;
mod client;
mod leases;
mod receive;
mod status;

pub use client::{AskError, Running};
pub use leases::rules_of;

use crate::cuts::CutConnection;
use crate::identity::Attachments;
use crate::metrics::add;
use crate::state::{State, lock};
use crate::takeover::Successor;
use namewall_dataplane::{Dataplane, Tunnels};
use namewall_policy::addr::Cidr;
use namewall_policy::ask::{Host, Names, Target, World};
use receive::Received;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The longest question.
const LONGEST: usize = 64 << 10;
/// A client that does not read must not keep others waiting.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Questions that are answered at once. Plugins wait for the kernel, up to one for each pod that starts.
const MOST_QUESTIONS: usize = 512;

/// What `explain --live` asks.
#[derive(Debug)]
pub struct LiveQuestion {
    pub from: Host,
    pub to: Target,
    pub as_json: bool,
    /// Whether `to` is a name with open addresses.
    pub is_leased: bool,
    /// The connections that were cut last, the last one first.
    pub cuts: Vec<CutConnection>,
    /// Blocks in which addresses without a pod are closed.
    pub closed: Vec<Cidr>,
    /// The addresses and ports at which the DNS server gets intercepted questions. All other packets to them are dropped.
    pub dns_ports: Vec<SocketAddr>,
    /// The tunnel endpoints of nodes, which nothing of a pod reaches.
    pub tunnels: Tunnels,
}

/// Explains a connection in the world of the agent. The binary has the words for it.
pub type Explain = dyn Fn(World<'_>, &LiveQuestion) -> Result<Value, String> + Send + Sync;

pub(crate) struct Control<D: Dataplane> {
    pub(crate) state: Arc<Mutex<State<D>>>,
    pub(crate) explain: Box<Explain>,
    /// The agent that wants to take over.
    pub(crate) successor: Arc<Mutex<Option<Successor>>>,
    pub(crate) attachments: Arc<Attachments>,
}

impl<D: Dataplane> Control<D> {
    /// Answers until the process ends.
    pub(crate) fn serve(self: &Arc<Self>, listener: &UnixListener) {
        let (callers, meter) = (Callers::default(), lock(&self.state).node.meter().clone());
        for stream in listener.incoming().flatten() {
            let _ = stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.set_write_timeout(Some(TIMEOUT)));
            // A client over the limit finds its connection closed, and asks again.
            let Some(caller) = callers.enter() else {
                add(&meter.callers_refused, 1);
                continue;
            };
            let control = self.clone();
            let answer = move || {
                let _caller = caller;
                if let Ok(Some(successor)) = control.answer(stream) {
                    *control.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(successor);
                }
            };
            // Where there is no thread for it, the connection is closed.
            let _ = thread::Builder::new().name("question".to_owned()).spawn(answer);
        }
    }

    /// Answers one question. Returns an agent that wants to take over.
    fn answer(&self, stream: UnixStream) -> io::Result<Option<Successor>> {
        let Some(Received { question, descriptors }) = receive::receive(&stream, LONGEST)? else {
            // Somebody only checked that an agent runs.
            return Ok(None);
        };
        let question: Value = serde_json::from_slice(&question).unwrap_or_default();
        if question["handOver"].as_bool() == Some(true) {
            return Ok(Some(Successor { stream, confirms: question["confirms"].as_bool() == Some(true) }));
        }
        let answer = match attach::is_attach(&question) {
            true => attach::answer(&self.attachments, &stream, &question, descriptors),
            false => self.answer_to(&question),
        };
        let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
        writeln!(&stream, "{answer}")?;
        Ok(None)
    }

    fn answer_to(&self, question: &Value) -> Result<Value, String> {
        let state = lock(&self.state);
        match question {
            _ if !question["status"].is_null() => Ok(status::status(&state, &self.attachments)),
            _ if !question["leases"].is_null() => leases::leases(&state, &question["leases"]),
            _ if !question["explain"].is_null() => self.explain(&state, &question["explain"]),
            _ => Err("it does not know what to do with this; is it another version of namewall?".to_owned()),
        }
    }

    fn explain(&self, state: &State<D>, question: &Value) -> Result<Value, String> {
        let text = |key: &str| question[key].as_str().ok_or_else(|| format!("`{key}` is missing"));
        let from: Host = text("from")?.parse().map_err(|error| format!("{error}"))?;
        let to: Target = text("to")?.parse().map_err(|error| format!("{error}"))?;
        let now = state.node.now();
        state.node.with_leases(|leases| {
            let mut names = Names::new();
            if let Host::Name(name) = &to.host {
                let open = leases.addresses_of(name).filter(|(_, expiry)| *expiry > now);
                names.insert(name.clone(), open.map(|(address, _)| address).collect());
            }
            let world = World {
                snapshot: &state.snapshot,
                program: state.node.program(),
                leases,
                names: &names,
                cluster_domain: &state.cluster_domain,
                now,
            };
            let is_leased = names.values().any(|addresses| !addresses.is_empty());
            let as_json = question["json"].as_bool() == Some(true);
            let (cuts, closed) = (state.node.recent_cuts(), state.node.closed().to_vec());
            let (dns_ports, tunnels) = (state.node.dns_ports(), state.node.tunnels().clone());
            (self.explain)(world, &LiveQuestion { from, to, as_json, is_leased, cuts, closed, dns_ports, tunnels })
        })
    }
}

/// Answers one question without a state: every question gets this status, and an agent that wants to take over gets no
/// sockets. True if it does.
pub(crate) fn answer_alone(stream: UnixStream, status: &Value) -> io::Result<bool> {
    stream.set_read_timeout(Some(TIMEOUT)).and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))?;
    let mut question = String::new();
    let mut reader = BufReader::new(stream);
    if (&mut reader).take(LONGEST as u64).read_line(&mut question)? == 0 {
        return Ok(false);
    }
    let question: Value = serde_json::from_str(&question).unwrap_or_default();
    let hands_over = question["handOver"].as_bool() == Some(true);
    let answer = match () {
        () if hands_over => json!({"sockets": []}),
        () if !question["status"].is_null() => status.clone(),
        () => json!({"error": status["held"]}),
    };
    writeln!(reader.get_mut(), "{answer}")?;
    Ok(hands_over)
}

/// Those whose questions are being answered.
#[derive(Clone, Default, Debug)]
struct Callers(Arc<AtomicUsize>);

/// One of them, until it is dropped.
#[derive(Debug)]
struct Caller(Callers);

impl Callers {
    /// None if there are too many.
    fn enter(&self) -> Option<Caller> {
        let more = |count: usize| (count < MOST_QUESTIONS).then_some(count + 1);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Caller(self.clone()))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<D: Dataplane> std::fmt::Debug for Control<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_beyond_the_bound_are_sent_away_until_others_have_ended() {
        let callers = Callers::default();
        let mut inside: Vec<Caller> = std::iter::from_fn(|| callers.enter()).collect();
        assert_eq!(inside.len(), MOST_QUESTIONS);
        inside.pop();
        assert!(callers.enter().is_some());
    }
}
