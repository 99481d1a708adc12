//! Policy zones of servers: nothing passes before they are known, what was known stays, and what has expired is closed.

use crate::stub::{TEST_TIMEOUT, eventually, read_message, write_message};
use crate::support::{Ask, Engines, Live, LoggedText, around, built, shown};
use namewall_dns::{Chain, Step};
use namewall_dns_firewall::Service;
use namewall_zones::parse_one;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// A server of a policy zone.
struct Primary {
    address: SocketAddr,
    /// The lines of the zone, the SOA first; without it, connections end at once.
    zone: Arc<Mutex<Option<Vec<String>>>>,
}

impl Primary {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let zone: Arc<Mutex<Option<Vec<String>>>> = Arc::default();
        let served = zone.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                let lines = served.lock().unwrap().clone();
                let (Some(query), Some(lines)) = (read_message(&mut stream), lines) else { continue };
                let all: Vec<String> = lines.iter().chain(lines.first()).cloned().collect();
                // A message for each record, as some servers do.
                for line in all {
                    let _ = write_message(&mut stream, &message(&query, &line));
                }
            }
        });
        Self { address, zone }
    }

    fn serves(&self, soa: &str, records: &[&str]) {
        let soa = format!("policy.example. 60 IN SOA ns.policy.example. host.policy.example. {soa} 60");
        let records = records.iter().map(|record| (*record).to_owned());
        *self.zone.lock().unwrap() = Some(std::iter::once(soa).chain(records).collect());
    }

    fn fails(&self) {
        *self.zone.lock().unwrap() = None;
    }

    fn corefile(&self, option: &str) -> String {
        corefile(&[self], option)
    }
}

fn corefile(primaries: &[&Primary], option: &str) -> String {
    let servers: Vec<String> = primaries.iter().map(|one| one.address.to_string()).collect();
    let hosts = "hosts /no/such/file {\n192.0.2.1 bad.example good.example\n}";
    format!(".:PORT0 {{\nrpz policy.example from {} {{\n{option}\n}}\n{hosts}\n}}", servers.join(" "))
}

fn message(query: &[u8], line: &str) -> Vec<u8> {
    let record = parse_one(line).unwrap();
    let mut message = vec![query[0], query[1], 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    message.extend(&record.owner);
    message.extend(record.kind.0.to_be_bytes());
    message.extend(record.class.to_be_bytes());
    message.extend(record.ttl.to_be_bytes());
    message.extend((record.data.len() as u16).to_be_bytes());
    message.extend(&record.data);
    message
}

const GOOD: &str = "NOERROR aa; good.example. 3600 A 192.0.2.1";
const BAD: &str = "bad.policy.example. 60 IN CNAME .";
const DENIED: &str = "NXDOMAIN; authority . 60 SOA 60";
const BAD_EXAMPLE: &str = "bad.example.policy.example. 60 IN CNAME .";
const GOOD_EXAMPLE: &str = "good.example.policy.example. 60 IN CNAME .";

#[test]
fn s10_1_nothing_passes_before_the_zone_is_known() {
    let primary = Primary::start();
    let live = Live::start(&primary.corefile(""));
    assert_eq!(live.ask("A good.example"), "SERVFAIL");
    assert_eq!(live.ask("A bad.example"), "SERVFAIL");
    primary.serves("1 3600 600 86400", &[BAD, BAD_EXAMPLE]);
    eventually(|| live.ask("A good.example") == GOOD);
    assert_eq!(live.ask("A bad.example"), DENIED);
    assert_eq!(live.ask("A bad"), DENIED);
}

#[test]
fn a_zone_is_fetched_again_when_its_soa_says_so() {
    let primary = Primary::start();
    primary.serves("1 1 1 86400", &[BAD_EXAMPLE]);
    let live = Live::start(&primary.corefile(""));
    eventually(|| live.ask("A bad.example") == DENIED);
    assert_eq!(live.ask("A good.example"), GOOD);
    primary.serves("2 1 1 86400", &[GOOD_EXAMPLE]);
    eventually(|| live.ask("A good.example") == DENIED);
    // A zone that cannot be understood is not used, and what was known stays.
    primary.serves("3 1 1 86400", &["a.rpz-else.policy.example. 60 IN CNAME ."]);
    let is_told = || live.told.has("no trigger is called so; the last version goes on to count");
    eventually(is_told);
    assert_eq!(live.ask("A good.example"), DENIED);
    primary.fails();
    eventually(|| live.told.count("the last version goes on to count") > 2);
    assert_eq!(live.ask("A good.example"), DENIED);
}

#[test]
fn s10_1_an_expired_zone_lets_nothing_pass_until_it_is_transferred() {
    let primary = Primary::start();
    primary.serves("1 1 1 3", &[BAD_EXAMPLE]);
    let live = Live::start(&primary.corefile(""));
    eventually(|| live.ask("A good.example") == GOOD);
    primary.fails();
    eventually(|| live.ask("A good.example") == "SERVFAIL");
    assert_eq!(live.ask("A bad.example"), "SERVFAIL");
    eventually(|| live.told.has("it has expired; questions get SERVFAIL until it is transferred"));
    primary.serves("2 1 1 3600", &[BAD_EXAMPLE]);
    eventually(|| live.ask("A good.example") == GOOD);
    assert_eq!(live.ask("A bad.example"), DENIED);
}

#[test]
fn an_expired_zone_goes_on_to_count_if_the_corefile_says_so() {
    let primary = Primary::start();
    primary.serves("1 1 1 1", &[BAD_EXAMPLE]);
    let live = Live::start(&primary.corefile("expired keep"));
    eventually(|| live.ask("A good.example") == GOOD);
    primary.fails();
    eventually(|| live.told.has("it has expired; the last version goes on to count"));
    assert_eq!(live.ask("A good.example"), GOOD);
    assert_eq!(live.ask("A bad.example"), DENIED);
}

#[test]
fn a_zone_beyond_its_bounds_is_not_used() {
    let primary = Primary::start();
    primary.serves("1 3600 600 86400", &[BAD_EXAMPLE, GOOD_EXAMPLE]);
    let live = Live::start(&primary.corefile("max_records 1"));
    eventually(|| live.told.has("more than 1 records (`max_records`); questions get SERVFAIL"));
    assert_eq!(live.ask("A good.example"), "SERVFAIL");
}

/// A server that lags behind does not take the place of the one that is ahead.
#[test]
fn an_older_zone_does_not_replace_a_newer_one() {
    let (behind, ahead) = (Primary::start(), Primary::start());
    ahead.serves("5 1 1 86400", &[BAD_EXAMPLE]);
    let live = Live::start(&corefile(&[&behind, &ahead], ""));
    eventually(|| live.ask("A bad.example") == DENIED);
    behind.serves("4 1 1 86400", &[GOOD_EXAMPLE]);
    eventually(|| live.told.count("older version, 4; the version here is 5") > 2);
    assert_eq!(live.ask("A good.example"), GOOD);
    assert_eq!(live.ask("A bad.example"), DENIED);
    ahead.serves("6 1 1 86400", &[GOOD_EXAMPLE]);
    eventually(|| live.ask("A good.example") == DENIED);
}

/// The answer to a question, of a Corefile that is read again.
fn answer_of(service: &Service, question: &str) -> String {
    match service.query(&Ask::from(question).asked()) {
        Step::Answer(reply) | Step::Reply(reply) => shown(&reply),
        _ => "something else".to_owned(),
    }
}

#[test]
fn s10_1_a_reload_with_other_options_goes_on_with_the_version_in_memory() {
    let (primary, other, stranger) = (Primary::start(), Primary::start(), Primary::start());
    primary.serves("1 3600 3600 86400", &[BAD_EXAMPLE, BAD]);
    let around = around(&LoggedText::default());
    let read = |primaries: &[&Primary], option: &str| {
        built(&corefile(primaries, option).replace("PORT0", "53"), &around, &Engines::none()).unwrap().service
    };
    let first = read(&[&primary], "");
    eventually(|| answer_of(&first, "A bad.example") == DENIED);
    primary.fails();
    for (primaries, option) in [
        (&[&primary, &other][..], ""),
        (&[&primary], "expired keep"),
        (&[&primary], "max_records 2"),
        (&[&primary], "max_bytes 100000"),
    ] {
        let again = read(primaries, option);
        assert_eq!(answer_of(&again, "A bad.example"), DENIED, "{option}");
        assert_eq!(answer_of(&again, "A good.example"), GOOD, "{option}");
    }
    // A version that does not fit, and one of other servers, are not used.
    assert_eq!(answer_of(&read(&[&primary], "max_records 1"), "A good.example"), "SERVFAIL");
    assert_eq!(answer_of(&read(&[&primary], "max_bytes 10"), "A good.example"), "SERVFAIL");
    assert_eq!(answer_of(&read(&[&stranger], ""), "A good.example"), "SERVFAIL");
}

#[test]
fn s10_1_a_reload_does_not_prolong_a_zone() {
    let primary = Primary::start();
    primary.serves("1 1 1 2", &[BAD_EXAMPLE]);
    let around = around(&LoggedText::default());
    let read = |option: &str| {
        built(&primary.corefile(option).replace("PORT0", "53"), &around, &Engines::none()).unwrap().service
    };
    let first = read("");
    eventually(|| answer_of(&first, "A good.example") == GOOD);
    primary.fails();
    eventually(|| answer_of(&first, "A good.example") == "SERVFAIL");
    assert_eq!(answer_of(&read("max_records 9"), "A good.example"), "SERVFAIL");
    assert_eq!(answer_of(&read("expired keep"), "A good.example"), GOOD);
}
