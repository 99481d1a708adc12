//! Two writers at one object, and many objects at once: nothing that was learned is lost, and every meeting is
//! counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_cluster::kinds::Component;
use namewall_cluster::resolver::Settings;
use namewall_kubernetes::crds::{definitions, to_yaml};
use namewall_kubernetes::{Connection, Outcome, Publisher, Target, Watch};
use namewall_testbed::ControlPlane;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const NAMES: u8 = 40;

struct Writer {
    watch: Watch,
    publisher: Publisher,
}

fn writer(plane: &ControlPlane) -> Writer {
    let target = Target { kubeconfig: Some(plane.kubeconfig()), context: None };
    let watch = Watch::start(&Connection::open(&target).unwrap(), Component::Agent);
    watch.wait_until_known(TEST_TIMEOUT).unwrap();
    Writer { publisher: watch.publisher(Settings::default()), watch }
}

fn found(last: u8) -> Outcome {
    Outcome::Found(vec![(IpAddr::from(Ipv4Addr::new(192, 0, 2, last)), 300)])
}

#[test]
fn writers_that_meet_lose_nothing() {
    let mut plane = ControlPlane::start().unwrap();
    plane.apply(&to_yaml(&definitions()).unwrap()).unwrap();
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).unwrap();
    plane.kubectl(&["create", "namespace", "namewall"]).unwrap();
    let objects = "apiVersion: network.openshift.io/v1alpha1\nkind: DNSNameResolver\n\
                   metadata: {name: dns-wildcard, namespace: namewall}\nspec: {name: \"*.example.com.\"}\n";
    plane.apply(objects).unwrap();
    let (one, other) = (writer(&plane), writer(&plane));
    assert!(!one.publisher.note("www.example.org.", &found(1)), "no object is for it");

    std::thread::scope(|scope| {
        for (writer, prefix) in [(&one, "a"), (&other, "b")] {
            scope.spawn(move || {
                for number in 0..NAMES {
                    assert!(writer.publisher.note(&format!("{prefix}{number}.example.com."), &found(number)));
                }
                assert!(writer.publisher.finish(TEST_TIMEOUT), "{:?}", writer.publisher.counts());
            });
        }
    });
    let status = || plane.get(&["dnsnameresolver", "dns-wildcard", "-n", "namewall"]).unwrap()["status"].take();
    let names = status()["resolvedNames"].as_array().unwrap().len();
    let (ours, theirs) = (one.publisher.counts(), other.publisher.counts());
    assert_eq!(names, usize::from(NAMES) * 2, "{ours:?} {theirs:?}");
    assert_eq!((ours.failed + theirs.failed, ours.written + theirs.written), (0, u64::from(NAMES) * 2));
    assert!(ours.conflicts + theirs.conflicts > 0, "they never met: {ours:?} {theirs:?}");

    // What is known already is not written again, once the writer has heard of it.
    let began = std::time::Instant::now();
    while one.publisher.note("a1.example.com.", &found(1)) {
        assert!(began.elapsed() < TEST_TIMEOUT, "it never hears of it");
        one.watch.wait(Duration::from_millis(50));
    }

    // Without a server it is waited for no longer than is said, and told.
    plane.kill_server();
    let late = one.publisher.counts().late;
    assert!(one.publisher.note("late.example.com.", &found(9)));
    assert!(!one.publisher.finish(Duration::from_millis(50)));
    assert_eq!(one.publisher.counts().late, late + 1);
}
