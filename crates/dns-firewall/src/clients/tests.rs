//! Counting, forgetting, and who gives way. Numbers of names are estimates, keyed by chance: what is expected of them is at
//! least five standard errors wide.

use super::*;
use proptest::prelude::*;

fn name(text: &str) -> Name {
    let mut bytes: Vec<u8> =
        text.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    Name::read(&bytes, 0).expect("a name").0
}

fn client(number: u32) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0a00_0000 + number))
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn different_names_below_a_domain_are_counted_for_each_client() {
    let (clients, now) = (Clients::default(), Instant::now());
    let count = |number, text: &str| clients.count(client(number), &name(text), now).subdomains;
    for number in 0..30 {
        let told = count(1, &format!("n{number}.t.example.com"));
        assert!(told.abs_diff(number + 1) <= 12, "{told} of {}", number + 1);
        assert_eq!(count(2, "www.example.com"), 1);
    }
    let before = count(1, "n1.t.example.com");
    assert_eq!(count(1, "n2.t.example.com"), before, "the same name again");
    assert_eq!(count(1, "example.com"), before, "the domain itself is no name below it");
    assert_eq!(count(1, "www.example.net"), 1);
    assert_eq!(count(1, "com"), 0);
    assert_eq!(clients.forgotten(), 0);
}

#[test]
fn names_are_forgotten_after_two_spans() {
    let start = Instant::now();
    let clients = Clients::new(100, start);
    let count = |text: &str, at: u64| clients.count(client(1), &name(text), start + Duration::from_secs(at)).subdomains;
    (0..20).for_each(|number| _ = count(&format!("n{number}.example.com"), 0));
    assert!(count("other.example.com", 61) >= 12, "the minute before counts");
    // Two names; they count as one if their hashes are alike in seven bits.
    assert!((1..=2).contains(&count("another.example.com", 121)));
    assert_eq!(count("last.example.com", 1_000), 1);
    assert_eq!(count("www.example.net", 2_000), 1);
    assert_eq!(clients.known.lock().unwrap().places, 2, "old domains are gone: a client and a domain are left");
}

#[test]
fn the_rate_is_that_of_the_last_ten_seconds() {
    let start = Instant::now();
    let clients = Clients::new(100, start);
    let rate =
        |number, at: f64| clients.count(client(number), &name("www.example.com"), start + SECOND.mul_f64(at)).rate;
    assert_eq!(rate(1, 0.0), 0.1);
    (0..99).for_each(|_| _ = rate(1, 5.0));
    assert_eq!(rate(1, 9.0), 10.1);
    assert_eq!(rate(2, 9.0), 0.1, "each client has a rate of its own");
    // Half of the span before counts.
    assert_eq!(rate(1, 15.0), 5.2);
    assert_eq!(rate(1, 40.0), 0.1);
}

#[test]
fn a_flood_of_domains_forgets_its_own_and_never_the_tunnel() {
    let (clients, now) = (Clients::new(1_000, Instant::now()), Instant::now());
    let count = |number, text: &str| clients.count(client(number), &name(text), now).subdomains;
    (0..200).for_each(|number| _ = count(1, &format!("n{number}.tunnel.example")));
    (0..200).for_each(|number| _ = count(2, &format!("n{number}.other.example")));
    for number in 0..5_000 {
        count(1, &format!("www.d{number}.example"));
    }
    assert!(clients.forgotten() >= 4_900, "{}", clients.forgotten());
    // Two levels: `d1.example` is one domain.
    assert!(count(1, "www.tunnel.example") > 100, "the client's own largest domain stays");
    assert!(count(2, "www.other.example") > 100, "and all of the other client");
    assert!(clients.known.lock().unwrap().places <= 70);
}

#[test]
fn a_flood_of_clients_forgets_who_has_not_asked_for_longest() {
    let start = Instant::now();
    let clients = Clients::new(100, start);
    let count = |number, text: &str, at: u64| {
        clients.count(client(number), &name(text), start + Duration::from_secs(at)).subdomains
    };
    // Client 1 asked a minute ago, client 2 asks now.
    (0..20).for_each(|number| _ = count(1, &format!("n{number}.old.example"), 0));
    (0..20).for_each(|number| _ = count(2, &format!("n{number}.new.example"), 60));
    for number in 0..40 {
        count(1_000 + number, "www.example.com", 60);
        count(1_000 + number, "www.example.com", 60);
    }
    assert!(count(2, "www.new.example", 60) >= 12);
    (0..60).for_each(|number| _ = count(2_000 + number, "www.example.com", 60));
    assert!(count(1, "www.old.example", 60) <= 1, "it was the first to go");
    assert!(clients.known.lock().unwrap().places <= 100);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked, the places are as many as there are clients and domains, and within the bound.
    #[test]
    fn places_are_counted_right(asked in proptest::collection::vec((0_u32..12, 0_u32..30, 0_u32..4, 0_u64..90), 1..400)) {
        let start = Instant::now();
        let clients = Clients::new(24, start);
        let mut at = 0;
        for (number, domain, below, later) in asked {
            at += later / 30;
            let text = if below == 0 { format!("d{domain}.example") } else { format!("n{below}.d{domain}.example") };
            let told = clients.count(client(number), &name(&text), start + Duration::from_secs(at));
            prop_assert!(told.rate > 0.0 && told.subdomains <= 4);
            let known = clients.known.lock().unwrap();
            let domains: usize = known.clients.values().map(|client| client.domains.len()).sum();
            prop_assert_eq!(known.places, domains + known.clients.len());
            prop_assert!(known.places <= 24);
            let ranks: BTreeSet<Rank> = known.clients.iter().map(|(address, client)| client.rank(*address)).collect();
            prop_assert_eq!(&ranks, &known.order);
        }
    }
}
