//! `dnstap` to readers that are slow, deaf or not trusted.

use crate::support::{TEST_TIMEOUT, Telling, serve};
use crate::taps::{blocked, lost, path, rules};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::spawn;
use std::time::Duration;

#[test]
fn a_reader_that_does_not_read_costs_messages_and_no_time() {
    let telling = Telling::new();
    let path = path("tap");
    // It is there, and says nothing.
    let _deaf = UnixListener::bind(&path).unwrap();
    let serving = serve(&telling, &blocked(&path));
    for _ in 0..6_000 {
        assert_eq!(serving.ask("www.example", 1), Some(3));
    }
    let lost = lost(&serving);
    assert!((1..12_000).contains(&lost), "{lost} of 12,000");
    std::fs::remove_file(&path).unwrap();
}

/// A reader over TLS: greets, takes a message, and gives what it has read.
fn tls_reader() -> (SocketAddr, Receiver<Vec<u8>>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let (at, (send, read)) = (listener.local_addr().unwrap(), channel());
    spawn(move || {
        for stream in listener.incoming() {
            let session = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(session, stream.unwrap());
            let content = b"protobuf:dnstap.Dnstap";
            // A control frame with a content type is 8 bytes and 12 and the type; ACCEPT is 1.
            let mut frame = vec![0; 20 + content.len()];
            if stream.read_exact(&mut frame).is_err() {
                continue;
            }
            frame[8..12].copy_from_slice(&1u32.to_be_bytes());
            stream.write_all(&frame).unwrap();
            stream.flush().unwrap();
            stream.read_exact(&mut frame).unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut data = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut data).unwrap();
            send.send(data).unwrap();
        }
    });
    (at, read)
}

#[test]
fn over_tls_only_who_is_trusted_is_told_anything_unless_anybody_is() {
    let has = |data: &[u8], text: &[u8]| data.windows(text.len()).any(|piece| piece == text);
    let (at, read) = tls_reader();
    let telling = Telling::new();
    let tap = format!("tls://localhost:{} {{\n skipverify\n}}", at.port());
    let serving = serve(&telling, &rules(&tap));
    serving.ask("blocked.example", 1);
    let data = read.recv_timeout(TEST_TIMEOUT).expect("a message comes");
    assert!(has(&data, b"decision=block rule=Corefile:6:7"));
    // The same without `skipverify`: nobody has signed for this reader.
    let serving = serve(&telling, &rules(&format!("tls://localhost:{}", at.port())));
    serving.ask("blocked.example", 1);
    assert!(read.recv_timeout(Duration::from_secs(1)).is_err());
}
