//! Connections through a change (S3.4).

use super::*;

#[test]
fn s3_4_a_change_cuts_what_it_forbids_and_nothing_else() {
    let trial = Trial::new("cuts");
    let to_db = Connection::between(Protocol::Tcp, SocketAddr::new(ip(WEB), 40_000), SocketAddr::new(ip(DB), 5432));
    let to_web = Connection::between(Protocol::Tcp, SocketAddr::new(ip(DB), 40_000), SocketAddr::new(ip(WEB), 80));
    trial.memory.connect(vec![to_db, to_web.clone()]);
    trial.run(vec![
        trial.then(|memory| assert_eq!(memory.connected().len(), 2)),
        trial.apply(vec![isolate_db()]),
        trial.after(Duration::from_millis(199)),
        trial.then(|memory| assert_eq!(memory.connected().len(), 2, "policies have not settled")),
        trial.after(Duration::from_millis(1)),
        trial.then(move |memory| assert_eq!(memory.connected(), [to_web])),
    ]);
}

/// The CNI plugin waits for a change to be enforced, and not for the list of all connections that is made after it.
#[test]
fn s3_4_what_is_due_is_cut_after_a_change_is_told_of_as_enforced() {
    let trial = Trial::new("told-first");
    trial.memory.connect(vec![web_to_db()]);
    let mut agent = trial.start(Vec::new()).expect("it starts");
    *trial.policies.borrow_mut() = vec![isolate_db()];
    agent.change();
    trial.clock.advance(Settle::default().at_most);
    trial.policies.borrow_mut().push(isolate_db().replace("name: db", "name: db2"));
    agent.change();
    assert_eq!(trial.memory.connected().len(), 1, "it is enforced, and nothing is cut yet");
    agent.settle();
    assert!(trial.memory.connected().is_empty());
    agent.run(&NoSignals).expect("it ends");
}

fn web_to_db() -> Connection {
    web_to(DB)
}

pub(in crate::agent) fn web_to(address: &str) -> Connection {
    Connection::between(Protocol::Tcp, SocketAddr::new(ip(WEB), 40_000), SocketAddr::new(ip(address), 5432))
}

fn allow_web() -> String {
    "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, \
      spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}}"
        .to_owned()
}

#[test]
fn s3_4_what_one_apply_forbids_and_allows_again_within_the_settle_time_is_not_cut() {
    let trial = Trial::new("settles");
    trial.memory.connect(vec![web_to_db()]);
    trial.run(vec![
        trial.after(Duration::from_secs(10)),
        trial.apply(vec![isolate_db()]),
        trial.then(|memory| assert!(!memory.connects(ip(WEB), (ip(DB), 5432).into()), "new ones are judged at once")),
        trial.after(Duration::from_millis(12)),
        trial.apply(vec![isolate_db(), allow_web()]),
        trial.after(Duration::from_secs(10)),
        trial.then(|memory| assert_eq!(memory.connected(), [web_to_db()])),
    ]);
}

#[test]
fn s3_4_changes_that_never_end_settle_nevertheless() {
    let trial = Trial::new("never-settles");
    trial.memory.connect(vec![web_to_db()]);
    let mut steps = vec![trial.after(Duration::from_secs(10))];
    for turn in 0..20 {
        let other = isolate_db().replace("name: db", &format!("name: db{turn}"));
        steps.extend([trial.apply(vec![other]), trial.after(Duration::from_millis(99))]);
        steps.push(trial.then(|memory| assert_eq!(memory.connected().len(), 1)));
    }
    steps.extend([trial.after(Duration::from_millis(20)), trial.apply(vec![isolate_db()])]);
    steps.push(trial.then(|memory| assert_eq!(memory.connected(), [], "two seconds after the first change")));
    trial.run(steps);
}

#[test]
fn s3_4_a_cut_that_is_owed_when_the_process_ends_is_made_by_the_next() {
    let trial = Trial::new("owed");
    trial.memory.connect(vec![web_to_db()]);
    trial.run(vec![trial.after(Duration::from_secs(10)), trial.apply(vec![isolate_db()])]);
    assert_eq!(trial.memory.connected().len(), 1, "it ended before policies had settled");
    trial.run(vec![
        trial.then(|memory| assert_eq!(memory.connected().len(), 1, "the next one lets them settle too")),
        trial.after(Duration::from_millis(200)),
        trial.then(|memory| assert_eq!(memory.connected(), [])),
    ]);
}

/// After a start with leases of an earlier process: what one of them may have opened stays, all else is judged.
#[test]
fn s3_4_after_a_restart_a_change_cuts_connections_of_pods_with_a_rule_by_name() {
    let trial = Trial::new("cuts-after-restart");
    let lease = Lease {
        pattern: RulePattern::allow(DomainPattern::Subdomains("example.org".parse().expect("a name"))),
        name: "api.example.org".parse().expect("a name"),
        address: ip("198.51.100.1"),
        expiry: Instant(Duration::from_secs(3600)),
        asked_by: None,
    };
    let change = LeaseStore::default().grant(&[lease], Instant::default());
    trial.memory.clone().open(&change, &LeaseTable::default(), Instant::default()).expect("memory takes it");
    let by_name =
        Connection::between(Protocol::Tcp, SocketAddr::new(ip(WEB), 40_001), SocketAddr::new(ip("198.51.100.77"), 443));
    trial.memory.connect(vec![web_to_db(), by_name.clone()]);
    // Web may talk to db, whatever its name.
    let to_db = "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: to-db},
        spec: {tier: Admin, priority: 0, subject: {pods: {podSelector: {matchLabels: {app: web}}}}, egress: [
          {action: Accept, to: [{networks: [10.0.0.2/32]}]}]}}";
    let names = names_of_web(&["*.example.org"]);
    *trial.policies.borrow_mut() = vec![to_db.to_owned(), names.clone()];
    trial.run(vec![
        trial.after(Duration::from_secs(1)),
        trial.then(|memory| assert_eq!(memory.connected().len(), 2, "an expired lease may have opened one")),
        trial.apply(vec![names]),
        trial.after(Duration::from_secs(1)),
        trial.then(move |memory| assert_eq!(memory.connected(), [by_name])),
        trial.apply(vec![names_of_web(&["other.example"])]),
        trial.after(Duration::from_secs(1)),
        trial.then(|memory| assert_eq!(memory.connected().len(), 1, "a name may be any name's")),
    ]);
}

#[test]
fn a_cut_that_fails_is_reported_and_tried_again() {
    let trial = Trial::new("cut-fails");
    let control = trial.control.clone();
    trial.memory.connect(vec![web_to_db()]);
    trial.run(vec![
        trial.after(Duration::from_secs(10)),
        trial.apply(vec![isolate_db()]),
        trial.then(|memory| memory.refuse(true)),
        trial.after(Duration::from_millis(200)),
        trial.then(move |memory| {
            let error = Trial::status(&control)["lastError"].as_str().map(str::to_owned);
            assert!(error.is_some_and(|text| text.contains("cannot cut")));
            memory.refuse(false);
        }),
        trial.after(Duration::from_secs(1)),
        trial.then(|memory| assert_eq!(memory.connected(), [])),
    ]);
}
