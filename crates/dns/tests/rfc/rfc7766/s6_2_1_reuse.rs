//! RFC 7766 §6.2.1: connections are used again, and queries are sent without waiting for answers.

use crate::stub::{answer, connect, id, plain, query, read_message, serve, settings, write_message};
use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts connections, and answers queries only when there are so many: a client that waits for answers gets none.
fn patient(many: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let connections = count.clone();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            connections.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut asked = Vec::new();
                while let Some(query) = read_message(&mut stream) {
                    asked.push(query);
                    if asked.len() == many {
                        for query in asked.drain(..) {
                            write_message(&mut stream, &answer(&query, &[[192, 0, 2, 1]], 30)).unwrap();
                        }
                    }
                }
            });
        }
    });
    (address, count)
}

#[test]
fn queries_are_pipelined_to_the_upstream_over_one_connection() {
    let (address, connections) = patient(100);
    let mut settings = settings(&[]);
    settings.upstreams = vec![address];
    settings.try_timeout = std::time::Duration::from_secs(5);
    let server = serve(settings, plain());
    // Of two clients: to the upstream they share a connection.
    let mut streams = [connect(&server), connect(&server)];
    for round in 0..3 {
        for number in 0..50 {
            // Each a question of its own: identical ones are asked once.
            for (stream, name) in streams.iter_mut().zip(["a", "b"]) {
                write_message(stream, &query(round * 50 + number, &format!("{name}{number}.example"))).unwrap();
            }
        }
        for stream in &mut streams {
            let ids: HashSet<u16> = (0..50).map(|_| id(&read_message(stream).unwrap())).collect();
            assert_eq!(ids, (round * 50..round * 50 + 50).collect());
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[test]
fn many_queries_in_one_segment() {
    let (address, _) = patient(1);
    let mut settings = settings(&[]);
    settings.upstreams = vec![address];
    let server = serve(settings, plain());
    let mut stream = connect(&server);
    let mut all = Vec::new();
    for number in 0..400_u16 {
        let query = query(number, "www.example");
        all.extend_from_slice(&(query.len() as u16).to_be_bytes());
        all.extend_from_slice(&query);
    }
    // More than may be under way at once: the rest waits, and none is lost though the client says it is done.
    stream.write_all(&all).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let ids: HashSet<u16> = (0..400).map(|_| id(&read_message(&mut stream).unwrap())).collect();
    assert_eq!(ids.len(), 400);
    assert!(read_message(&mut stream).is_none());
}
