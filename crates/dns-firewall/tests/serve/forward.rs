//! Who is asked, and how.

use crate::stub::{Over, Upstream, eventually};
use crate::support::{Ask, Firewall, Live, answer, check, receive, refused, upstream};
use std::sync::{Arc, Mutex};

#[test]
fn the_longest_zone_is_asked() {
    check(
        ".:53 {
            forward example.com 192.0.2.1
            forward . 192.0.2.2
            forward deep.example.com 192.0.2.3
        }",
        &[
            ("A a.test", "route 1"),
            ("A example.com", "route 0"),
            ("A www.EXAMPLE.com", "route 0"),
            ("A notexample.com", "route 1"),
            ("A a.deep.example.com", "route 2"),
            (r"A www\.example.com", "route 1"),
        ],
    );
}

#[test]
fn what_is_excepted_is_asked_elsewhere_or_nowhere() {
    check(
        ".:53 {
            forward example.com 192.0.2.1 {
                except no.example.com not.example.com
            }
            forward . 192.0.2.2 {
                except not.example.com internal
            }
        }",
        &[
            ("A www.example.com", "route 0"),
            ("A no.example.com", "route 1"),
            ("A a.no.example.com", "route 1"),
            ("A yesno.example.com", "route 0"),
            ("A a.not.example.com", "REFUSED"),
            ("A a.internal", "REFUSED"),
            ("A a.test", "route 1"),
        ],
    );
    check(".:53 {\n}", &[("A a.test", "REFUSED")]);
}

#[test]
fn the_servers_of_a_file_are_asked() {
    let path = std::env::temp_dir().join(format!("namewall-serve-{}-resolv.conf", std::process::id()));
    let text = "# ours\nsearch example.com\nnameserver 192.0.2.53\n nameserver 2001:db8::53 # the other\nnameserver\noptions ndots:5\n";
    std::fs::write(&path, text).unwrap();
    let firewall = Firewall::new(&format!(".:53 {{\n forward . {}\n}}", path.display()));
    let upstreams: Vec<String> = firewall.routes[0].upstreams.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(upstreams, ["192.0.2.53:53", "[2001:db8::53]:53"]);
    std::fs::write(&path, "search example.com\n").unwrap();
    let why = refused(&format!(".:53 {{\n forward . {}\n}}", path.display()));
    assert_eq!(why, format!("Corefile:2:2: error: {} names no server", path.display()));
    std::fs::remove_file(&path).unwrap();
    let why = refused(&format!(".:53 {{\n forward . {}\n}}", path.display()));
    assert!(why.starts_with("Corefile:2:2: error: ") && why.contains("No such file"), "{why}");
}

/// Three upstreams, and a server that asks them with a policy.
fn three(options: &str) -> ([Upstream; 3], Live) {
    let upstreams = [1, 2, 3].map(|_| upstream(&["@ 30 A 192.0.2.1"]));
    let live = Live::start(&format!(
        ".:PORT0 {{\n forward . {} {} {} {{\n {options}\n }}\n}}",
        upstreams[0].address, upstreams[1].address, upstreams[2].address
    ));
    (upstreams, live)
}

fn counts(upstreams: &[Upstream; 3]) -> [usize; 3] {
    [0, 1, 2].map(|at: usize| upstreams[at].asked())
}

#[test]
fn policies_say_who_is_asked_first() {
    let ask = |live: &Live, times: usize| {
        for at in 0..times {
            assert_eq!(live.ask(&format!("A n{at}.example")), format!("NOERROR; n{at}.example. 30 A 192.0.2.1"));
        }
    };
    let (upstreams, live) = three("policy sequential");
    ask(&live, 30);
    assert_eq!(counts(&upstreams), [30, 0, 0]);
    let (upstreams, live) = three("policy round_robin");
    ask(&live, 30);
    assert_eq!(counts(&upstreams), [10, 10, 10]);
    for options in ["policy random", ""] {
        let (upstreams, live) = three(options);
        ask(&live, 90);
        let counts = counts(&upstreams);
        assert_eq!(counts.iter().sum::<usize>(), 90);
        assert!(counts.iter().all(|count| *count > 5), "{options}: {counts:?}");
    }
}

/// An upstream that remembers how it was asked.
fn remembering(answers: impl Fn(&[u8], Over) -> Vec<u8> + Send + 'static) -> (Upstream, Arc<Mutex<Vec<Over>>>) {
    let ways: Arc<Mutex<Vec<Over>>> = Arc::default();
    let seen = ways.clone();
    let upstream = Upstream::with(move |query, over| {
        seen.lock().unwrap().push(over);
        vec![answers(query, over)]
    });
    (upstream, ways)
}

#[test]
fn upstreams_are_asked_as_we_are_asked() {
    let (upstream, ways) = remembering(|query, _| answer(query, &["@ 30 A 192.0.2.1"]));
    let live = Live::start(&format!(".:PORT0 {{\n forward . {}\n}}", upstream.address));
    live.ask("A a.example");
    live.ask("A a.example tcp");
    assert_eq!(*ways.lock().unwrap(), [Over::Udp, Over::Tcp]);
}

#[test]
fn upstreams_can_always_be_asked_by_tcp() {
    let (upstream, ways) = remembering(|query, _| answer(query, &["@ 30 A 192.0.2.1"]));
    let live = Live::start(&format!(".:PORT0 {{\n forward . {} {{\n force_tcp\n }}\n}}", upstream.address));
    assert_eq!(live.ask("A a.example"), "NOERROR; a.example. 30 A 192.0.2.1");
    assert_eq!(live.ask("A a.example tcp"), "NOERROR; a.example. 30 A 192.0.2.1");
    assert_eq!(*ways.lock().unwrap(), [Over::Tcp, Over::Tcp]);
}

/// An answer of 600 bytes and more.
fn long(query: &[u8]) -> Vec<u8> {
    let lines: Vec<String> = (0..40).map(|at| format!("@ 30 A 192.0.2.{at}")).collect();
    answer(query, &lines.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_came_by_tcp_is_cut_for_clients_whose_datagrams_are_short() {
    let (upstream, _) = remembering(|query, _| long(query));
    let live = Live::start(&format!(".:PORT0 {{\n forward . {} {{\n force_tcp\n }}\n}}", upstream.address));
    assert_eq!(live.ask("A a.example"), "NOERROR tc");
    assert_eq!(live.ask("A a.example size 520"), "NOERROR tc");
    assert_eq!(live.ask("A a.example size 4096").matches(" A ").count(), 40);
    assert_eq!(live.ask("A a.example tcp").matches(" A ").count(), 40);
}

#[test]
fn udp_can_be_asked_first_and_tcp_for_what_was_too_long() {
    let (upstream, ways) = remembering(|query, over| match over {
        Over::Udp => answer(query, &["tc"]),
        Over::Tcp => long(query),
    });
    let live = Live::start(&format!(".:PORT0 {{\n forward . {} {{\n prefer_udp\n }}\n}}", upstream.address));
    assert_eq!(live.ask("A a.example tcp").matches(" A ").count(), 40);
    assert_eq!(*ways.lock().unwrap(), [Over::Udp, Over::Tcp]);
    // A client that came by UDP is told, and comes again.
    assert_eq!(live.ask("A a.example"), "NOERROR tc");
    assert_eq!(ways.lock().unwrap().len(), 3);
}

#[test]
fn short_answers_to_clients_by_tcp_need_no_second_question() {
    let (upstream, ways) = remembering(|query, _| answer(query, &["@ 30 A 192.0.2.1"]));
    let live = Live::start(&format!(".:PORT0 {{\n forward . {} {{\n prefer_udp\n }}\n}}", upstream.address));
    assert_eq!(live.ask("A a.example tcp"), "NOERROR; a.example. 30 A 192.0.2.1");
    assert_eq!(*ways.lock().unwrap(), [Over::Udp]);
}

#[test]
fn the_next_is_asked_if_one_does_not_answer_or_gives_up() {
    let good = upstream(&["@ 30 A 192.0.2.1"]);
    let mute = Upstream::new(|_| Vec::new());
    let lost = upstream(&["SERVFAIL"]);
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for bad in [mute.address, lost.address, closed] {
        let live =
            Live::start(&format!(".:PORT0 {{\n forward . {bad} {} {{\n policy sequential\n }}\n}}", good.address));
        for over in ["", "tcp"] {
            assert_eq!(live.ask(&format!("A a.example {over}")), "NOERROR; a.example. 30 A 192.0.2.1", "{bad} {over}");
        }
    }
    let live = Live::start(&format!(".:PORT0 {{\n forward . {} {}\n}}", lost.address, closed));
    assert_eq!(live.ask("A a.example"), "SERVFAIL");
}

#[test]
fn with_some_codes_the_next_upstream_is_asked_and_the_last_one_counts() {
    let none = upstream(&["NXDOMAIN"]);
    let good = upstream(&["@ 30 A 192.0.2.1"]);
    let serve = |to: &str, options: &str| {
        Live::start(&format!(".:PORT0 {{\n forward . {to} {{\n policy sequential\n {options}\n }}\n}}"))
    };
    let both = format!("{} {}", none.address, good.address);
    assert_eq!(serve(&both, "").ask("A a.example"), "NXDOMAIN");
    assert_eq!(serve(&both, "failover SERVFAIL").ask("A a.example"), "NXDOMAIN");
    let live = serve(&both, "failover REFUSED NXDOMAIN");
    assert_eq!(live.ask("A a.example"), "NOERROR; a.example. 30 A 192.0.2.1");
    let other = upstream(&["NXDOMAIN"]);
    let live = serve(&format!("{} {}", none.address, other.address), "failover NXDOMAIN");
    assert_eq!(live.ask("A a.example"), "NXDOMAIN", "the last one's word");
    assert_eq!(other.asked(), 1);
}

#[test]
fn with_some_codes_the_next_forward_is_asked() {
    let (first, second) = (upstream(&["NXDOMAIN"]), upstream(&["REFUSED"]));
    let (other, last) = (upstream(&["@ 30 A 192.0.2.9"]), upstream(&["@ 30 A 192.0.2.1"]));
    let live = Live::start(&format!(
        ".:PORT0 {{
            cache
            forward . {} {{
                next NXDOMAIN
            }}
            forward other.example {}
            forward . {} {{
                next NXDOMAIN SERVFAIL REFUSED
            }}
            forward . {} {{
                except a.example
                next NOERROR
            }}
        }}",
        first.address, other.address, second.address, last.address
    ));
    assert_eq!(live.ask("A b.example"), "NOERROR; b.example. 30 A 192.0.2.1");
    assert_eq!([first.asked(), second.asked(), other.asked(), last.asked()], [1, 1, 0, 1]);
    assert_eq!(live.ask("A b.example"), "NOERROR; b.example. 30 A 192.0.2.1");
    assert_eq!(last.asked(), 1, "what counted is what is kept");
    // Where there is no next one for a name, the word stands.
    assert_eq!(live.ask("A a.example"), "REFUSED");
    assert_eq!([first.asked(), second.asked(), last.asked()], [2, 2, 1]);
    assert_eq!(live.ask("A x.other.example"), "NOERROR; x.other.example. 30 A 192.0.2.9", "the longest zone is first");
}

#[test]
fn no_more_than_so_many_are_asked_at_once() {
    let gate: Arc<Mutex<()>> = Arc::default();
    let held = gate.lock().unwrap();
    let own = gate.clone();
    let upstream = Upstream::new(move |query| {
        drop(own.lock().unwrap());
        vec![answer(query, &["@ 30 A 192.0.2.1"])]
    });
    let live = Live::start(&format!(
        ".:PORT0 {{\n errors\n forward . {} {{\n max_concurrent 2\n max_fails 0\n }}\n}}",
        upstream.address
    ));
    let waiting: Vec<_> = ["A a.example", "A b.example"]
        .map(|question| {
            let ask = Ask::from(question);
            let socket = live.socket(&ask, 0);
            socket.send(&ask.query).unwrap();
            socket
        })
        .into();
    eventually(|| live.server.counters().under_way == 2);
    assert_eq!(live.ask("A c.example"), "REFUSED");
    assert_eq!(live.told.lines(1), ["[ERROR] 2 c.example. A: concurrent queries exceeded maximum"]);
    drop(held);
    for socket in waiting {
        assert!(receive(&socket).is_some());
    }
    assert_eq!(live.ask("A c.example"), "NOERROR; c.example. 30 A 192.0.2.1", "there is room again");
}

#[test]
fn a_query_is_asked_no_more_often_than_is_set() {
    let mute = Upstream::new(|_| Vec::new());
    for (options, tries) in [("max_connect_attempts 1", 1), ("max_connect_attempts 2", 2), ("", 4)] {
        let before = mute.asked();
        let live =
            Live::start(&format!(".:PORT0 {{\n forward . {} {{\n max_fails 0\n {options}\n }}\n}}", mute.address));
        assert_eq!(live.ask("A a.example"), "SERVFAIL");
        assert_eq!(mute.asked() - before, tries, "{options}");
    }
}

#[test]
fn codes_no_answer_has_are_refused() {
    assert_eq!(
        refused(".:53 {\n forward . 192.0.2.53 {\n failover BADVERS\n }\n}"),
        "Corefile:2:2: error: code 16 is not looked at; `next` and `failover` take those up to 15"
    );
}
