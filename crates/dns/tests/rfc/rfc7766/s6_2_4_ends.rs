//! RFC 7766 §6.2.4: what a connection has not delivered when it ends is asked for again, and a
//! client that sends no more still gets its answers.

use crate::stub::{Client, Upstream, answer, connect, id, plain, query, read_message, serve, settings, write_message};
use namewall_dns::Settings;
use namewall_dns::wire::{Header, Rcode};
use nix::sys::socket::{setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

/// Answers some queries of each connection and ends it.
fn ending_after(answers: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            for _ in 0..answers {
                let Some(query) = read_message(&mut stream) else { break };
                if write_message(&mut stream, &answer(&query, &[[192, 0, 2, 1]], 30)).is_err() {
                    break;
                }
            }
            // What is still unread would make a reset of it, and take with it what was answered.
            stream.shutdown(Shutdown::Write).unwrap();
            while read_message(&mut stream).is_some() {}
        }
    });
    address
}

#[test]
fn what_an_upstream_left_unanswered_is_asked_again() {
    let mut settings = settings(&[]);
    settings.upstreams = vec![ending_after(10)];
    let server = serve(settings, plain());
    let mut stream = connect(&server);
    for number in 0..30 {
        write_message(&mut stream, &query(number, "www.example")).unwrap();
    }
    let mut ids: Vec<u16> = (0..30)
        .map(|_| {
            let reply = read_message(&mut stream).unwrap();
            assert_eq!(Header::read(&reply).unwrap().rcode, Rcode::NO_ERROR);
            id(&reply)
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..30).collect::<Vec<_>>());
}

#[test]
fn nobody_listens_over_tcp() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = settings(&[]);
    settings.upstreams = vec![gone];
    let server = serve(settings, plain());
    let mut stream = connect(&server);
    write_message(&mut stream, &query(7, "www.example")).unwrap();
    let reply = read_message(&mut stream).unwrap();
    assert_eq!((id(&reply), Header::read(&reply).unwrap().rcode), (7, Rcode::SERV_FAIL));
}

/// Answers that do not fit the sockets' buffers at once: when they have gone, so has the connection.
#[test]
fn a_client_that_sends_no_more_sees_the_end_after_its_last_byte() {
    let many: Vec<[u8; 4]> = (0..4_000_u32).map(|n| (n | 0xc633_0000).to_be_bytes()).collect();
    let upstream = Upstream::new(move |asked| vec![answer(asked, &many, 30)]);
    // Not for being idle.
    let hour = Duration::from_secs(3_600);
    let server = serve(Settings { try_timeout: hour, idle_timeout: hour, ..settings(&[&upstream]) }, plain());
    // How much the buffers hold is the system's matter: a little more each time.
    let mut answered = 0;
    for answers in (8..=120).step_by(8) {
        let mut stream = connect(&server);
        for number in 0..answers {
            write_message(&mut stream, &query(number, "www.example")).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        // It begins to read when all answers are there.
        answered += u64::from(answers);
        while server.counters().answers < answered {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut all = Vec::new();
        match stream.read_to_end(&mut all) {
            Ok(_) => {}
            // So much was left unread that the server gave it up.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && answers > 16 => break,
            Err(error) => panic!("{error} after {} bytes of {answers} answers", all.len()),
        }
    }
}

/// Runs the test that asks in a process of its own, where nothing else takes time; true if this is that process.
fn is_alone() -> bool {
    if std::env::var_os("NAMEWALL_TEST_ALONE").is_some() {
        return true;
    }
    let thread = std::thread::current();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", thread.name().unwrap()]).env("NAMEWALL_TEST_ALONE", "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap().into()
}

/// The kernel goes on telling that such a connection is gone: it must be heard, or the server spins.
#[test]
fn a_client_that_is_gone_while_its_query_is_under_way_costs_nothing() {
    if !is_alone() {
        return;
    }
    let silent = Upstream::new(|_| Vec::new());
    let server = serve(Settings { try_timeout: Duration::from_secs(2), tries: 1, ..settings(&[&silent]) }, plain());
    let mut stream = connect(&server);
    write_message(&mut stream, &query(7, "www.example")).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    // With nothing to linger for, closing it is a reset.
    setsockopt(&stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 }).unwrap();
    drop(stream);
    let before = cpu_time();
    std::thread::sleep(Duration::from_millis(1_000));
    let spent = cpu_time() - before;
    assert!(spent < Duration::from_millis(100), "{spent:?} in a second");
    assert!(Client::of(&server).ask(&query(8, "www.example")).is_some());
}

/// A query that fails at once is counted once: the one before it is still under way.
#[test]
fn a_query_that_fails_at_once_does_not_end_the_others() {
    // Over TCP it takes its time.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let slow = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let asked = read_message(&mut stream).unwrap();
        std::thread::sleep(Duration::from_millis(700));
        write_message(&mut stream, &answer(&asked, &[[192, 0, 2, 1]], 30)).unwrap();
        read_message(&mut stream);
    });
    // To connect to everybody fails before anything is sent.
    let nowhere: SocketAddr = "255.255.255.255:53".parse().unwrap();
    let asking =
        |upstream| Settings { upstreams: vec![upstream], try_timeout: Duration::from_secs(5), ..settings(&[]) };
    let server = serve(asking(slow), plain());
    let mut stream = connect(&server);
    write_message(&mut stream, &query(1, "slow.example")).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    server.set(&asking(nowhere));
    Client::of(&server).ask(&query(0, "www.example")).unwrap();
    write_message(&mut stream, &query(2, "www.example")).unwrap();
    let failure = read_message(&mut stream).unwrap();
    assert_eq!((id(&failure), Header::read(&failure).unwrap().rcode), (2, Rcode::SERV_FAIL));
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(id(&read_message(&mut stream).unwrap()), 1);
}
