//! RFC 5452 §9.2 and §10: ids over their whole range, ports that nobody can foretell.

use crate::stub::{Client, Upstream, plain, query, serve, settings};

#[test]
fn ids_use_all_their_bits_whatever_the_client_chose() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for _ in 0..200 {
        client.ask(&query(0, "www.example")).unwrap();
    }
    let seen = upstream.ports.lock().unwrap();
    for bit in 0..16 {
        let set = seen.iter().filter(|(_, id)| id >> bit & 1 == 1).count();
        // Half of 200, within six standard deviations.
        assert!((58..=142).contains(&set), "bit {bit} is set in {set} of 200");
    }
    let neighbours = seen.windows(2).filter(|pair| pair[1].1.abs_diff(pair[0].1) <= 1).count();
    assert!(neighbours < 5, "ids follow each other {neighbours} times");
}

#[test]
fn ports_are_the_kernels_and_not_in_a_row() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    for number in 0..100 {
        client.ask(&query(number, "www.example")).unwrap();
    }
    let seen = upstream.ports.lock().unwrap();
    let mut ports: Vec<u16> = seen.iter().map(|(port, _)| *port).collect();
    assert!(ports.iter().all(|port| *port >= 1024));
    ports.sort_unstable();
    ports.dedup();
    assert!(ports.len() >= 16, "{} ports", ports.len());
    // Which of them is next is not their order.
    let again = seen[50..].windows(2).filter(|pair| pair[0].0 == pair[1].0).count();
    assert!(again < 20, "the same port {again} times of 50");
}
