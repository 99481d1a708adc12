//! Namewall beside another writer of the same DNSNameResolvers, at a real API server. The other one is a stand-in for
//! OpenShift's plugin and operator (`peer`): the plugin itself is not in the Go module proxy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod peer;

use jiff::{SignedDuration, Timestamp};
use namewall_cluster::Key;
use namewall_cluster::kinds::Component;
use namewall_cluster::resolver::{DeniedNames, Settings, object_name};
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_kubernetes::{Connection, Outcome, Publisher, Target, Watch};
use namewall_testbed::ControlPlane;
use peer::{Answer, NAMESPACE, Peer, Release, answer};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const COUNT: u8 = 30;
const WILDCARD: &str = "*.example.com.";
const REGULAR: &str = "www.example.org.";

struct Both {
    plane: ControlPlane,
    watch: Watch,
    publisher: Publisher,
    peer: Peer,
    wildcard: String,
    regular: String,
}

impl Both {
    /// One object that namewall has made, and one as OVN-Kubernetes makes it.
    fn start(release: Release) -> Self {
        let plane = ControlPlane::start().unwrap();
        plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
        plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
        plane.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
        let target = Target { kubeconfig: Some(plane.kubeconfig()), context: None };
        let connection = Connection::open(&target).unwrap();
        let made = connection.environment().create_names(NAMESPACE, vec![WILDCARD.to_owned()]);
        assert_eq!(connection.block_on(made), []);
        let (wildcard, regular) = (object_name(WILDCARD, 0), object_name(REGULAR, 0));
        plane
            .apply(&format!(
                "apiVersion: network.openshift.io/v1alpha1\nkind: DNSNameResolver\n\
                 metadata: {{name: {regular}, namespace: {NAMESPACE}}}\nspec: {{name: {REGULAR}}}\n"
            ))
            .unwrap();
        // What is there already is as good.
        assert_eq!(connection.block_on(connection.environment().create_names(NAMESPACE, vec![REGULAR.to_owned()])), []);
        let watch = Watch::start(&connection, Component::Agent);
        watch.wait_until_known(TEST_TIMEOUT).unwrap();
        let publisher = watch.publisher(Settings::default());
        let peer = Peer::start(&plane.kubeconfig(), release);
        Self { plane, watch, publisher, peer, wildcard, regular }
    }

    fn status(&self, object: &str) -> Vec<Value> {
        let mut read = self.plane.get(&["dnsnameresolver", object, "-n", NAMESPACE]).unwrap();
        read["status"]["resolvedNames"].take().as_array().cloned().unwrap_or_default()
    }

    fn names(&self, object: &str) -> Vec<String> {
        self.status(object).iter().map(|item| item["dnsName"].as_str().unwrap().to_owned()).collect()
    }

    fn key(&self, object: &str) -> Key {
        Key { namespace: NAMESPACE.into(), name: object.into() }
    }

    /// Waits until the plugin's cache and namewall's watch have what the API server has.
    fn settle(&self) {
        assert!(self.publisher.finish(TEST_TIMEOUT), "{:?}", self.publisher.counts());
        for object in [&self.wildcard, &self.regular] {
            let read = self.plane.get(&["dnsnameresolver", object, "-n", NAMESPACE]).unwrap();
            let version = &read["metadata"]["resourceVersion"];
            wait_until(|| self.peer.cached(object)["metadata"]["resourceVersion"] == *version);
        }
    }

    /// Clients ask again for what the plugin could not write.
    fn peer_finds(&self, object: &str, name: &str, answer: &Answer) -> usize {
        (0..).find(|_| self.peer.found(object, name, answer).is_ok()).unwrap()
    }
}

fn wait_until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TEST_TIMEOUT, "it never comes true");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn found(last: u8, ttl: u32) -> Outcome {
    Outcome::Found(vec![(IpAddr::from(Ipv4Addr::new(192, 0, 2, last)), ttl)])
}

fn addresses_of(names: &[Value], name: &str) -> Vec<String> {
    let item = names.iter().find(|item| item["dnsName"] == name).unwrap_or_else(|| panic!("{name} is lost"));
    let all = item["resolvedAddresses"].as_array().unwrap().iter();
    let mut all: Vec<String> = all.map(|one| one["ip"].as_str().unwrap().to_owned()).collect();
    all.sort();
    all
}

/// Both look up names of their own, and the same names with different answers, at the same time.
#[test]
fn s8_2_both_write_the_same_objects_and_lose_nothing() {
    [Release::Old, Release::New].into_iter().for_each(both_write_the_same_objects);
}

fn both_write_the_same_objects(release: Release) {
    let mut both = Both::start(release);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COUNT {
                for name in [format!("ours-{number}.example.com."), format!("both-{number}.example.com.")] {
                    assert!(both.publisher.note(&name, &found(number, 300)));
                }
                both.publisher.note(REGULAR, &found(number, 300));
                both.publisher.finish(TEST_TIMEOUT);
            }
        });
        scope.spawn(|| {
            for number in 0..COUNT {
                let ip = format!("198.51.100.{number}");
                for name in [format!("theirs-{number}.example.com."), format!("both-{number}.example.com.")] {
                    both.peer_finds(&both.wildcard, &name, &answer(&[(&ip, 300)]));
                }
                both.peer_finds(&both.regular, REGULAR, &answer(&[(&ip, 300)]));
            }
        });
    });
    both.settle();
    let (wild, regular) = (both.status(&both.wildcard), both.status(&both.regular));
    for number in 0..COUNT {
        let (ours, theirs) = (format!("192.0.2.{number}"), format!("198.51.100.{number}"));
        assert_eq!(addresses_of(&wild, &format!("ours-{number}.example.com.")), [ours.as_str()]);
        assert_eq!(addresses_of(&wild, &format!("theirs-{number}.example.com.")), [theirs.as_str()]);
        assert_eq!(addresses_of(&wild, &format!("both-{number}.example.com.")), [ours.as_str(), theirs.as_str()]);
        let known = addresses_of(&regular, REGULAR);
        assert!(known.contains(&ours) && known.contains(&theirs), "{number}: {known:?}");
    }
    let counts = both.publisher.counts();
    assert_eq!((counts.failed, counts.refused, counts.evicted), (0, 0, 0), "{counts:?}");
    // Agents open what the plugin has written.
    let mut seen = std::collections::BTreeSet::new();
    let began = Instant::now();
    while seen.len() < usize::from(COUNT) * 4 + 2 {
        assert!(began.elapsed() < TEST_TIMEOUT, "agents see only {}", seen.len());
        both.watch.wait(Duration::from_millis(50));
        let objects = both.watch.new_names().into_iter().filter_map(|(_, object)| object);
        seen.extend(
            objects.flat_map(|object| object.addresses().map(|one| (one.name, one.address)).collect::<Vec<_>>()),
        );
    }
}

/// The plugin takes the first entry of a wildcard's object for the wildcard's own.
#[test]
fn s8_3_the_entry_of_the_wildcard_is_first_whoever_writes_it() {
    [Release::Old, Release::New].into_iter().for_each(the_entry_of_the_wildcard_is_first);
}

fn the_entry_of_the_wildcard_is_first(release: Release) {
    let both = Both::start(release);
    let (wildcard, ours) = (&both.wildcard, found(1, 300));
    both.peer_finds(wildcard, "a.example.com.", &answer(&[("198.51.100.1", 300)]));
    both.settle();
    wait_until(|| both.publisher.note(WILDCARD, &ours) || both.names(wildcard).len() == 2);
    both.settle();
    assert_eq!(both.names(wildcard), [WILDCARD, "a.example.com."]);
    // A name of which the wildcard says all is not written by the plugin either.
    assert!(!both.peer.found(wildcard, "b.example.com.", &answer(&[("192.0.2.1", 300)])).unwrap());
    both.peer_finds(wildcard, "c.example.com.", &answer(&[("198.51.100.3", 300)]));
    // The plugin folds c, and removes the entry of the wildcard in its place. The next lookup brings it back, first.
    assert!(both.peer.found(wildcard, WILDCARD, &answer(&[("198.51.100.3", 300)])).is_ok());
    both.settle();
    wait_until(|| both.publisher.note(WILDCARD, &ours) || both.names(wildcard)[0] == WILDCARD);
    both.settle();
    assert_eq!(both.names(wildcard)[0], WILDCARD);
}

/// Failures count on, whoever sees them; a success of either sets them back.
#[test]
fn s8_4_failures_of_both_count_together() {
    let both = Both::start(Release::New);
    let (regular, start) = (&both.regular, Timestamp::now());
    both.peer_finds(regular, REGULAR, &answer(&[("198.51.100.1", 1)]));
    both.settle();
    let failures = || both.status(regular)[0]["resolutionFailures"].as_i64().unwrap_or_default();
    for count in 1..=4 {
        if count % 2 == 0 {
            both.peer.failed(regular, REGULAR, start).unwrap();
        } else {
            wait_until(|| both.publisher.note(REGULAR, &Outcome::Failed("SERVFAIL".to_owned())));
        }
        both.settle();
        assert_eq!(failures(), count);
        assert_eq!(addresses_of(&both.status(regular), REGULAR), ["198.51.100.1"], "it keeps its address");
    }
    wait_until(|| both.publisher.note(REGULAR, &found(1, 300)));
    both.settle();
    assert_eq!(failures(), 0);
}

/// The operator leaves names without addresses behind. Namewall writes to them, and takes out what is left.
#[test]
fn names_that_the_operator_has_emptied_are_filled_or_removed() {
    let both = Both::start(Release::New);
    let wildcard = &both.wildcard;
    for name in ["a.example.com.", "b.example.com."] {
        both.peer_finds(wildcard, name, &answer(&[("198.51.100.1", 60)]));
    }
    both.settle();
    assert!(both.peer.prune(wildcard, Timestamp::now() + SignedDuration::from_secs(100)).unwrap());
    both.settle();
    assert_eq!(both.names(wildcard), ["a.example.com.", "b.example.com."]);
    wait_until(|| both.publisher.note("a.example.com.", &found(1, 300)));
    both.settle();
    assert_eq!(addresses_of(&both.status(wildcard), "a.example.com."), ["192.0.2.1"]);
    both.publisher.prune(&both.key(wildcard), DeniedNames::default());
    both.settle();
    assert_eq!(both.names(wildcard), ["a.example.com."]);
}
