//! RFC 1035 §4.1.4: pointers lead to a *prior* occurrence of a name.

use crate::check::says;
use crate::message::{Packing, written};
use namewall_dns::wire::{Name, Question, Rcode, WireError, reply};
use std::time::Duration;

const POINTER: &str = "refused: it is malformed: a pointer does not lead back to a name";
/// An A record of a minute, without its owner and its address.
const A: &[u8] = b"\0\x01\0\x01\0\0\0\x3c\0\x04";

fn answer(records: &[&[u8]]) -> Vec<u8> {
    let mut message = written("www.example A", &[], Packing::Plain);
    message[7] = records.len() as u8;
    message.extend(records.concat());
    message
}

#[test]
fn owners_and_targets_may_be_pointers_into_anything_before() {
    // To the question, into its middle, and into the data of a CNAME.
    let cname = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03cdn\xc0\x10";
    let at = answer(&[]).len() + 12;
    let owner = [0xc0, at as u8];
    let message = answer(&[cname, &owner, A, &[192, 0, 2, 1]]);
    let message = with_count(message, 2);
    assert_eq!(says(&message), "192.0.2.1 60s via cdn.example");
}

fn with_count(mut message: Vec<u8>, count: u8) -> Vec<u8> {
    message[7] = count;
    message
}

#[test]
fn pointers_to_pointers_are_followed() {
    // An owner that is a pointer to an owner that is a pointer to the question.
    let first = answer(&[]).len() as u8;
    let message = answer(&[b"\xc0\x0c", A, &[192, 0, 2, 1], &[0xc0, first], A, &[192, 0, 2, 2]]);
    assert_eq!(says(&with_count(message, 2)), "192.0.2.1 60s, 192.0.2.2 60s");
}

#[test]
fn s6_1_pointers_to_themselves_forwards_and_in_circles_are_refused() {
    let start = answer(&[]).len() as u8;
    for (what, owner) in [
        ("itself", vec![0xc0, start]),
        ("forwards", vec![0xc0, start + 2]),
        ("far forwards", vec![0xff, 0xff]),
        ("a label and round again", vec![3, b'w', b'w', b'w', 0xc0, start]),
        ("two that lead to each other", vec![0xc0, start + 2, 0xc0, start]),
    ] {
        let message = with_count(answer(&[&owner, A, &[192, 0, 2, 1]]), 1);
        assert!(says(&message).starts_with("refused"), "{what}: {}", says(&message));
    }
    let message = with_count(answer(&[&[0xc0, start], A, &[192, 0, 2, 1]]), 1);
    assert_eq!(says(&message), POINTER);
    // In the question there is nothing to point to: the header's bytes are no name.
    assert_eq!(Name::read(b"\xc0\x00", 0).unwrap_err(), WireError::Pointer);
    let asked = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01";
    assert_eq!(Question::end(asked), Err(WireError::Label));
    // Nor does a failure repeat a name that leads nowhere.
    assert_eq!(reply::failure(asked, Rcode::FORM_ERR).len(), 12);
}

/// The id is another for the client than it was for us: a name that begins in the header would be, too.
#[test]
fn s6_1_no_name_begins_in_the_header() {
    for target in 0..12 {
        let mut message = with_count(answer(&[&[0xc0, target], A, &[192, 0, 2, 1]]), 1);
        // An id that would be a good label.
        message[..2].copy_from_slice(&[1, b'a']);
        assert_eq!(says(&message), POINTER, "at {target}");
    }
}

#[test]
fn a_pointer_cut_in_two() {
    let mut message = answer(&[&[0xc0]]);
    message[7] = 1;
    assert_eq!(says(&message), "refused: it is malformed: the message ends too early");
    assert_eq!(Name::read(&[1, b'a', 0xc0], 0).unwrap_err(), WireError::Short);
}

/// Every name that is not too long has at most 127 labels, so more pointers than
/// that are not for compression: they are to keep a reader busy.
#[test]
fn pointers_are_counted() {
    for (pointers, is_read) in [(1, true), (127, true), (128, false), (8_000, false)] {
        let mut bytes = vec![0; 12];
        let mut target = bytes.len() as u16;
        bytes.extend_from_slice(b"\x01a\0");
        for _ in 0..pointers {
            let at = bytes.len() as u16;
            bytes.extend_from_slice(&(0xc000 | target).to_be_bytes());
            target = at;
        }
        let read = Name::read(&bytes, usize::from(target));
        assert_eq!(read.is_ok(), is_read, "{pointers}: {read:?}");
    }
}

/// What this thread has computed so far. Other than the clock it does not count what else the machine does.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    let nanoseconds = told.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first of them is a number"))
}

/// The longest chain of aliases, and every other record at the end of as many pointers as can be followed.
#[test]
fn the_slowest_answer_is_read_in_little_time() {
    let aliases: Vec<String> = (0..16).map(|at| format!("{at}.example 60 CNAME {}.example", at + 1)).collect();
    let lines: Vec<&str> = aliases.iter().map(String::as_str).collect();
    let mut message = written("0.example A", &lines, Packing::Compressed);
    // Data of a type nobody knows: a name, and pointers that lead to it one by one.
    message.extend_from_slice(b"\0\xff\0\0\x01\0\0\0\0");
    let mut target = message.len() as u16 + 2;
    let mut data = b"\x01x\0".to_vec();
    for _ in 0..120 {
        let at = message.len() + 2 + data.len();
        data.extend_from_slice(&(0xc000 | target).to_be_bytes());
        target = at as u16;
    }
    message.extend_from_slice(&(data.len() as u16).to_be_bytes());
    message.extend_from_slice(&data);
    let mut count = 17_u16;
    while message.len() < 8_192 {
        message.extend_from_slice(&(0xc000 | target).to_be_bytes());
        message.extend_from_slice(A);
        message.extend_from_slice(&[192, 0, 2, 1]);
        count += 1;
    }
    message[6..8].copy_from_slice(&count.to_be_bytes());
    let began = cpu_time();
    let read = namewall_dns::wire::addresses(&message).unwrap();
    let took = cpu_time() - began;
    assert_eq!((read.addresses.len(), read.aliases.len()), (0, 16));
    // It takes 4 ms with optimisation, and much more without.
    assert!(took < Duration::from_secs(5), "{took:?}");
}
