//! RFC 1035 §2.3.4: labels of at most 63 bytes, names of at most 255.

use crate::check::{check, says};
use crate::message::{Packing, name, written};
use crate::stub::{Client, Upstream, plain, serve, settings};
use namewall_dns::wire::{Header, Name, Question, Rcode, WireError};

/// A name of so many bytes on the wire, its last empty label among them.
fn name_of(bytes: usize) -> String {
    let mut text = String::new();
    let mut left = bytes - 1;
    while left > 0 {
        // Never a rest of one byte, which no label fits.
        let label = if left == 65 { 62 } else { left.min(64) - 1 };
        text.push_str(&"a".repeat(label));
        text.push('.');
        left -= label + 1;
    }
    text
}

fn query(name: &[u8]) -> Vec<u8> {
    [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 1, 0, 1]].concat()
}

#[test]
fn a_name_of_255_bytes_is_read_and_one_of_256_is_not() {
    for bytes in [1, 3, 64, 65, 66, 129, 130, 254, 255] {
        let long = name_of(bytes);
        assert_eq!(name(&long).len(), bytes);
        let (read, end) = Name::read(&name(&long), 0).unwrap();
        assert_eq!((read.as_bytes().len(), end), (bytes, bytes));
        let question = if long.is_empty() { "." } else { &long };
        check(&format!("{question} A"), &[&format!("{question} 60 A 192.0.2.1")], "192.0.2.1 60s");
    }
    for bytes in [256, 257, 300] {
        assert_eq!(Name::read(&name(&name_of(bytes)), 0).unwrap_err(), WireError::LongName);
        assert_eq!(Question::end(&query(&name(&name_of(bytes)))), Err(WireError::LongName));
    }
    assert_eq!(Question::end(&query(&name(&name_of(255)))), Ok(12 + 255 + 4));
}

#[test]
fn pointers_do_not_make_names_longer_than_255_bytes() {
    // The question has 255; with a label before it its alias would have 257.
    let question = name_of(255);
    let mut message = written(&format!("{question} A"), &[], Packing::Plain);
    message.extend_from_slice(b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01a\xc0\x0c");
    message[7] = 1;
    assert_eq!(says(&message), "refused: it is malformed: a name is longer than 255 bytes");
}

#[test]
fn labels_of_64_bytes_and_more_are_of_kinds_nobody_uses() {
    for kind in [64, 65, 127, 128, 191] {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&[b'a'; 200]);
        bytes.push(0);
        assert_eq!(Name::read(&bytes, 0).unwrap_err(), WireError::Label);
        assert_eq!(Question::end(&query(&bytes)), Err(WireError::Label));
    }
}

#[test]
fn the_server_forwards_the_longest_name_and_refuses_a_longer_one() {
    let upstream = Upstream::giving([192, 0, 2, 1]);
    let server = serve(settings(&[&upstream]), plain());
    let client = Client::of(&server);
    let longest = client.ask(&query(&name(&name_of(255)))).unwrap();
    assert_eq!(Header::read(&longest).unwrap().answers, 1);
    let longer = client.ask(&query(&name(&name_of(256)))).unwrap();
    let header = Header::read(&longer).unwrap();
    // What cannot be read is not repeated.
    assert_eq!((header.rcode, header.questions, longer.len()), (Rcode::FORM_ERR, 0, 12));
    assert_eq!(upstream.asked(), 1);
}
