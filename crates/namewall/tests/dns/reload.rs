//! A Corefile that changes: at a signal, or when it is seen.

use crate::ports::free_port;
use crate::process::{Asker, Serving, TEST_TIMEOUT, query};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// One that gives every question an address.
fn giving(port: u16, last: u8, more: &str) -> String {
    format!(".:{port} {{\n bind 127.0.0.1\n {more}\n hosts /no/such/file {{\n  192.0.2.{last} www.example\n }}\n}}\n")
}

#[test]
fn a_signal_has_it_read_again() {
    let port = free_port();
    let serving = Serving::start(&giving(port, 1, "reload off"));
    let asker = Asker::of(at(port));
    assert_eq!(asker.ask(1, "www"), Some([192, 0, 2, 1]));
    serving.reload(&giving(port, 2, "reload off"));
    assert_eq!(asker.ask(2, "www"), Some([192, 0, 2, 2]));
    assert!(serving.told().contains("the Corefile was read again"), "{}", serving.told());
}

#[test]
fn a_change_is_seen() {
    let port = free_port();
    let serving = Serving::start(&giving(port, 1, "reload 2s 0s"));
    serving.folder.write("Corefile", giving(port, 2, "reload 2s 0s"));
    serving.wait_for("Corefile was read again", 1);
    assert_eq!(Asker::of(at(port)).ask(2, "www"), Some([192, 0, 2, 2]));
    // Once, not again and again.
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(serving.told().matches("was read again").count(), 1);
}

#[test]
fn a_bad_one_changes_nothing_and_is_told() {
    let port = free_port();
    let serving = Serving::start(&giving(port, 1, ""));
    for (bad, why) in [
        (format!(".:{port} {{\n bind 127.0.0.1\n firewall query {{\n  allow name ==\n }}\n}}\n"), "Corefile:4:"),
        (giving(port, 2, "file /no/such/zone"), "file: /no/such/zone: No such file"),
        (giving(port, 2, &format!("forward . 127.0.0.1:{port}")), "is this server itself"),
        ("{".to_owned(), "Corefile:1:"),
    ] {
        let before = serving.told().matches("it is served as it was before").count();
        serving.reload(&bad);
        let told = serving.told();
        assert_eq!(told.matches("it is served as it was before").count(), before + 1, "{told}");
        assert!(told.contains(why), "{why}: {told}");
        assert_eq!(Asker::of(at(port)).ask(7, "www"), Some([192, 0, 2, 1]), "{bad}");
    }
    // The next good one is taken.
    serving.reload(&giving(port, 3, ""));
    assert_eq!(Asker::of(at(port)).ask(8, "www"), Some([192, 0, 2, 3]));
}

#[test]
fn no_question_is_lost_while_it_is_read_again() {
    let port = free_port();
    let serving = Serving::start(&giving(port, 0, ""));
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let asker = Asker::of(at(port));
                let mut newest = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let count = asked.fetch_add(1, Ordering::SeqCst) as u16;
                    let answer = asker.ask(count, "www").expect("each question is answered");
                    assert_eq!(answer[..3], [192, 0, 2]);
                    assert!(answer[3] >= newest, "never by old rules again");
                    newest = answer[3];
                }
            });
        }
        scope.spawn(|| {
            let mut stream = TcpStream::connect(at(port)).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            while !is_over.load(Ordering::SeqCst) {
                ask_by(&mut stream, 9);
            }
        });
        for round in 1..=20 {
            serving.reload(&giving(port, round, ""));
            assert_eq!(Asker::of(at(port)).ask(3, "www"), Some([192, 0, 2, round]), "new rules count at once");
            wait_for_more(&asked);
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Waits until some more questions were asked: however busy the machine is, there are some between one change
/// and the next.
pub(crate) fn wait_for_more(asked: &AtomicUsize) {
    let (before, began) = (asked.load(Ordering::SeqCst), Instant::now());
    while asked.load(Ordering::SeqCst) < before + 5 {
        assert!(began.elapsed() < TEST_TIMEOUT, "somebody asks");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asks over a connection that stays, and gives the answer's last byte.
pub(crate) fn ask_by(stream: &mut TcpStream, id: u16) -> u8 {
    let query = query(id, "www");
    stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).expect("the connection stays");
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).unwrap();
    *answer.last().unwrap()
}

#[test]
fn a_file_that_is_gone_changes_nothing() {
    let port = free_port();
    let serving = Serving::start(&giving(port, 1, ""));
    serving.folder.write("Other", "");
    std::fs::remove_file(serving.folder.path("Corefile")).unwrap();
    serving.signal(Signal::SIGHUP);
    serving.wait_for("it is served as it was before", 1);
    assert!(serving.told().contains("cannot read Corefile"), "{}", serving.told());
    assert_eq!(Asker::of(at(port)).ask(8, "www"), Some([192, 0, 2, 1]));
}

#[test]
fn a_database_of_addresses_is_read_again_and_a_broken_one_changes_nothing() {
    let port = free_port();
    let country = |code: &str| {
        let record = serde_json::json!({"country": {"iso_code": code}});
        namewall_testbed::Mmdb::new("GeoLite2-Country").with(Ipv4Addr::LOCALHOST.into(), 8, &record).bytes()
    };
    let text = giving(
        port,
        1,
        "reload 2s 0s\n geoip db.mmdb\n firewall query {\n  block geoip/country/code == 'DE'\n  default allow\n }",
    );
    let folder = crate::process::Folder::new(&text);
    folder.write("db.mmdb", country("GB"));
    let serving = Serving::start_in(folder);
    let asker = Asker::of(at(port));
    assert_eq!(asker.ask(1, "www"), Some([192, 0, 2, 1]));
    serving.folder.write("db.mmdb", country("DE"));
    serving.wait_for("the Corefile was read again", 1);
    assert_ne!(asker.ask(2, "www"), Some([192, 0, 2, 1]), "it is blocked now");
    serving.folder.write("db.mmdb", "broken");
    serving.wait_for("it is served as it was before", 1);
    assert!(serving.told().contains("error: geoip: db.mmdb:"), "{}", serving.told());
    assert_ne!(asker.ask(3, "www"), Some([192, 0, 2, 1]));
    serving.folder.write("db.mmdb", country("GB"));
    serving.wait_for("the Corefile was read again", 2);
    assert_eq!(asker.ask(4, "www"), Some([192, 0, 2, 1]));
}
