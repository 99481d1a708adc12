//! RFC 7766 §6.2.3: idle connections are closed after a while; those that are used are not.

use crate::stub::{
    TEST_TIMEOUT, Upstream, answer, connect, id, on_schedule, plain, query, read_message, serve, settings,
    write_message,
};
use namewall_dns::Settings;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

fn short(upstream: &Upstream) -> Settings {
    Settings { idle_timeout: Duration::from_secs(1), ..settings(&[upstream]) }
}

#[test]
fn a_connection_in_use_outlives_the_limit_and_an_idle_one_does_not() {
    on_schedule(Duration::from_millis(4500), || {
        let upstream = Upstream::giving([192, 0, 2, 1]);
        let server = serve(short(&upstream), plain());
        let mut stream = connect(&server);
        let began = Instant::now();
        for number in 0..6 {
            write_message(&mut stream, &query(number, "www.example")).unwrap();
            assert_eq!(id(&read_message(&mut stream).unwrap()), number);
            std::thread::sleep(Duration::from_millis(400));
        }
        assert!(began.elapsed() > Duration::from_secs(2));
        assert_eq!(server.counters().connections, 1);
        assert!(read_message(&mut stream).is_none(), "it is closed in the end");
    });
}

/// Bytes that never make a message keep nothing open ("slow loris").
#[test]
fn drips_do_not_count_as_use() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(short(&upstream), plain());
    let mut stream = connect(&server);
    let began = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(&[0xff, 0xff]).unwrap();
    while began.elapsed() < TEST_TIMEOUT {
        let is_closed = stream.write_all(&[0]).is_err() || matches!(stream.read(&mut [0]), Ok(0));
        if is_closed {
            return;
        }
    }
    panic!("it is still open after {:?}", began.elapsed());
}

/// An answer that takes longer than a connection may be idle is still waited for.
#[test]
fn a_connection_with_queries_under_way_is_not_idle() {
    let upstream = Upstream::new(|asked| {
        std::thread::sleep(Duration::from_millis(2_200));
        vec![answer(asked, &[[192, 0, 2, 1]], 30)]
    });
    let settings = Settings { try_timeout: Duration::from_secs(4), ..short(&upstream) };
    let server = serve(settings, plain());
    let mut stream = connect(&server);
    write_message(&mut stream, &query(7, "www.example")).unwrap();
    assert_eq!(id(&read_message(&mut stream).unwrap()), 7);
}
