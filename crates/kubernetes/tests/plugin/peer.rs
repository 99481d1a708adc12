//! A stand-in for OpenShift's CoreDNS plugin `ocp_dnsnameresolver` and the operator beside it. It does to objects what
//! the published sources of both do, and shares no code with namewall's own writer:
//!
//! - It reads objects from a cache that a watch fills, so it writes what may be out of date. It replaces the whole
//!   status, in one version. After a conflict it takes the cached object again, or asks the API server if that is the
//!   one it had, five times at most. Then it gives up, and what it has learned is lost until a client asks again.
//! - When a wildcard is looked up, as many entries as match are removed, from the front of the list: the wildcard's own
//!   entry, or a name that does not match, may be among them.
//! - Older releases never ask the API server after a conflict, and write a lookup of a wildcard that has an entry only
//!   if names are folded into it (`Release::Old`).
//! - The operator removes addresses 5 seconds after their TTL. Their names stay, with empty lists.

use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::api::{GetParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::Request;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;
use tokio::runtime::Runtime;

pub(crate) const NAMESPACE: &str = "namewall";
const PATH: &str = "/apis/network.openshift.io/v1alpha1/namespaces/namewall/dnsnameresolvers";
/// Kubernetes' default for conflicts.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);
const SAME: i64 = 5;
const MINIMUM_TTL: i64 = 5;
const FAILURES: i64 = 5;
const GRACE: SignedDuration = SignedDuration::from_secs(5);

/// What it does after a conflict in every try.
#[derive(Debug)]
pub(crate) struct GaveUp;

/// Addresses with their TTLs.
pub(crate) type Answer = BTreeMap<String, i64>;

pub(crate) fn answer(all: &[(&str, i64)]) -> Answer {
    all.iter().map(|(ip, ttl)| ((*ip).to_owned(), *ttl)).collect()
}

/// Which of the published sources it follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Release {
    Old,
    New,
}

pub(crate) struct Peer {
    release: Release,
    runtime: Runtime,
    client: Client,
    /// By the name of the object, as the watch has said it last.
    cache: Arc<Mutex<HashMap<String, Value>>>,
}

impl Peer {
    pub(crate) fn start(kubeconfig: &Path, release: Release) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let read = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
            Client::try_from(Config::from_custom_kubeconfig(read, &Default::default()).await.unwrap()).unwrap()
        });
        let peer = Self { release, runtime, client, cache: Arc::default() };
        let list: Value = peer.ask(Request::new(PATH).list(&ListParams::default()).unwrap()).unwrap();
        for object in list["items"].as_array().unwrap() {
            put(&peer.cache, object.clone());
        }
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let watch = Request::new(PATH).watch(&WatchParams::default(), version).unwrap();
        let (client, cache) = (peer.client.clone(), peer.cache.clone());
        peer.runtime.spawn(async move {
            let mut events = client.request_events::<Value>(watch).await.unwrap().boxed();
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                    put(&cache, object);
                }
            }
        });
        peer
    }

    fn ask(&self, request: http::Request<Vec<u8>>) -> kube::Result<Value> {
        self.runtime.block_on(self.client.request(request))
    }

    /// An object as it is in the cache.
    pub(crate) fn cached(&self, object: &str) -> Value {
        self.cache.lock().unwrap()[object].clone()
    }

    /// Changes the status of an object, as the plugin does after a lookup. False if there is nothing to write.
    fn update(&self, object: &str, change: impl Fn(&str, &mut Vec<Value>) -> bool) -> Result<bool, GaveUp> {
        let mut before = Value::Null;
        for _ in 0..TRIES {
            let mut copy = self.cached(object);
            let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
            if self.release == Release::New && version(&copy) == before {
                copy = self.ask(Request::new(PATH).get(object, &GetParams::default()).unwrap()).unwrap();
            }
            before = version(&copy);
            let pattern = copy["spec"]["name"].as_str().unwrap().to_owned();
            let mut names = copy["status"]["resolvedNames"].as_array().cloned().unwrap_or_default();
            if !change(&pattern, &mut names) {
                return Ok(false);
            }
            copy["status"] = json!({"resolvedNames": names});
            let body = serde_json::to_vec(&copy).unwrap();
            let replace = Request::new(PATH).replace_subresource("status", object, &PostParams::default(), body);
            match self.ask(replace.unwrap()) {
                Ok(_) => return Ok(true),
                Err(kube::Error::Api(status)) if status.code == 409 => sleep(PAUSE),
                Err(error) => panic!("{object}: {error}"),
            }
        }
        Err(GaveUp)
    }

    pub(crate) fn found(&self, object: &str, name: &str, answer: &Answer) -> Result<bool, GaveUp> {
        self.update(object, |pattern, names| self.release.found(&Lookup { pattern, name, answer }, names))
    }

    pub(crate) fn failed(&self, object: &str, name: &str, now: Timestamp) -> Result<bool, GaveUp> {
        self.update(object, |_, names| failed(names, name, now))
    }

    /// The operator's part.
    pub(crate) fn prune(&self, object: &str, now: Timestamp) -> Result<bool, GaveUp> {
        self.update(object, |_, names| {
            let mut has_changed = false;
            for item in names {
                let addresses = item["resolvedAddresses"].as_array_mut().unwrap();
                let before = addresses.len();
                addresses.retain(|one| next_lookup(one) + GRACE > now);
                has_changed |= addresses.len() != before;
            }
            has_changed
        })
    }
}

fn put(cache: &Mutex<HashMap<String, Value>>, object: Value) {
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    cache.lock().unwrap().insert(name, object);
}

fn is_wildcard(name: &str) -> bool {
    name.starts_with("*.")
}

fn next_lookup(address: &Value) -> Timestamp {
    let last: Timestamp = address["lastLookupTime"].as_str().unwrap().parse().unwrap();
    last + SignedDuration::from_secs(address["ttlSeconds"].as_i64().unwrap())
}

fn is_same(address: &Value, ttl: i64, now: Timestamp) -> bool {
    (next_lookup(address).as_second() - (now.as_second() + ttl)).abs() <= SAME
}

fn address(ip: &str, ttl: i64, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap();
    json!({"ip": ip, "ttlSeconds": if ttl == 0 { MINIMUM_TTL } else { ttl }, "lastLookupTime": now.to_string()})
}

fn condition(status: &str, reason: &str, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap().to_string();
    json!([{"type": "Degraded", "status": status, "reason": reason, "message": reason, "lastTransitionTime": now}])
}

fn position(names: &[Value], name: &str) -> Option<usize> {
    names.iter().position(|item| item["dnsName"] == name)
}

/// All addresses of an entry are in the answer, each until the same time.
fn is_covered(item: &Value, answer: &Answer, now: Timestamp) -> bool {
    let addresses = item["resolvedAddresses"].as_array().unwrap();
    let is_in = |one: &Value| answer.get(one["ip"].as_str().unwrap()).is_some_and(|ttl| is_same(one, *ttl, now));
    addresses.iter().all(is_in)
}

/// A name that was looked up, for an object.
#[derive(Clone, Copy)]
struct Lookup<'l> {
    pattern: &'l str,
    name: &'l str,
    answer: &'l Answer,
}

impl Release {
    fn found(self, lookup: &Lookup<'_>, names: &mut Vec<Value>) -> bool {
        let (now, Lookup { pattern, name, answer }) = (Timestamp::now(), *lookup);
        let at = position(names, name);
        let mut has_changed = at.is_some_and(|at| renew(&mut names[at], answer, now));
        if is_wildcard(name) {
            let known = at.and_then(|at| names[at]["resolvedAddresses"].as_array()).into_iter().flatten();
            let left = |one: &Value| next_lookup(one).as_second() - now.as_second();
            let mut whole: Answer = known.map(|one| (one["ip"].as_str().unwrap().to_owned(), left(one))).collect();
            whole.extend(answer.clone());
            let others = names.iter().filter(|item| item["dnsName"] != name);
            let matching = others.filter(|item| is_covered(item, &whole, now)).count();
            names.drain(..matching);
            has_changed = matching > 0 || (self == Self::New && has_changed);
        } else if at.is_none() && is_wildcard(pattern) {
            let whole = position(names, pattern).map(|whole| &names[whole]);
            let has_as_many = |item: &&Value| item["resolvedAddresses"].as_array().unwrap().len() == answer.len();
            if whole.filter(has_as_many).is_some_and(|whole| is_covered(whole, answer, now)) {
                return false;
            }
        }
        if at.is_none() {
            let addresses: Vec<Value> = answer.iter().map(|(ip, ttl)| address(ip, *ttl, now)).collect();
            let new = json!({"dnsName": name, "resolvedAddresses": addresses, "conditions": condition("False", "NOERROR", now)});
            let place = if is_wildcard(name) { 0 } else { names.len() };
            names.insert(place, new);
            has_changed = true;
        }
        has_changed
    }
}

fn renew(item: &mut Value, answer: &Answer, now: Timestamp) -> bool {
    let mut has_changed = false;
    let addresses = item["resolvedAddresses"].as_array_mut().unwrap();
    for (ip, ttl) in answer {
        match addresses.iter_mut().find(|one| one["ip"] == **ip) {
            Some(known) if is_same(known, *ttl, now) => continue,
            Some(known) => *known = address(ip, *ttl, now),
            None => addresses.push(address(ip, *ttl, now)),
        }
        has_changed = true;
    }
    item["resolutionFailures"] = 0.into();
    if item["conditions"][0]["status"] != "False" {
        item["conditions"] = condition("False", "NOERROR", now);
        has_changed = true;
    }
    has_changed
}

fn failed(names: &mut Vec<Value>, name: &str, now: Timestamp) -> bool {
    let Some(at) = position(names, name) else { return false };
    let item = &mut names[at];
    let failures = item["resolutionFailures"].as_i64().unwrap_or_default();
    let addresses = item["resolvedAddresses"].as_array_mut().unwrap();
    if failures >= FAILURES && addresses.iter().all(|one| next_lookup(one) <= now) {
        names.remove(at);
        return true;
    }
    for one in addresses.iter_mut().filter(|one| next_lookup(one) <= now || is_same(one, 0, now)) {
        *one = address(one["ip"].as_str().unwrap_or_default().to_owned().as_str(), MINIMUM_TTL, now);
    }
    item["resolutionFailures"] = (failures + 1).into();
    item["conditions"] = condition("True", "SERVFAIL", now);
    true
}
