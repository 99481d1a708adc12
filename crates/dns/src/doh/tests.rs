#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::*;
use proptest::prelude::*;

/// `A example.com`
const QUERY: &[u8] = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";

/// The encoder that the decoder is compared with.
fn encode(bytes: &[u8]) -> String {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let character = |six: &[u8]| {
        let value = (0..6).fold(0, |value, at| value << 1 | six.get(at).copied().unwrap_or(0));
        char::from(alphabet[usize::from(value)])
    };
    bits.chunks(6).map(character).collect()
}

#[test]
fn the_queries_of_rfc_8484_are_read() {
    // Section 4.1.1 has this one.
    let parameters = "dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA2NvbQAAAQAB";
    let query = query_of_get(Some(parameters)).unwrap();
    assert_eq!(query, b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01");
    assert_eq!(query_of_get(Some(&format!("ct=x&{parameters}&y"))), Ok(query));
    assert_eq!(query_of_post(QUERY.to_vec()), Ok(QUERY.to_vec()));
}

#[test]
fn requests_without_a_query_say_why() {
    let whole = encode(QUERY);
    for (parameters, why) in [
        (None, BadRequest::Parameter),
        (Some(String::new()), BadRequest::Parameter),
        (Some(format!("dns={whole}&dns={whole}")), BadRequest::Parameter),
        (Some(format!("DNS={whole}")), BadRequest::Parameter),
        (Some("dns=".to_owned()), BadRequest::NotAQuery),
        (Some("dns=AAAA".to_owned()), BadRequest::NotAQuery),
        (Some(format!("dns={whole}=")), BadRequest::Encoding),
        (Some(format!("dns={whole}%3D")), BadRequest::Encoding),
        (Some("dns=A".to_owned()), BadRequest::Encoding),
        (Some("dns=AB".to_owned()), BadRequest::Encoding),
        (Some("dns=A+/A".to_owned()), BadRequest::Encoding),
        (Some("dns=ÄÄ".to_owned()), BadRequest::Encoding),
        (Some(format!("dns={}", "A".repeat(LONGEST_QUERY * 2))), BadRequest::TooLong),
    ] {
        assert_eq!(query_of_get(parameters.as_deref()), Err(why), "{parameters:?}");
    }
    assert_eq!(query_of_post(vec![0; LONGEST_QUERY + 1]), Err(BadRequest::TooLong));
    let mut answer = QUERY.to_vec();
    answer[2] |= 0x80;
    assert_eq!(query_of_post(answer), Err(BadRequest::NotAQuery), "answers to answers never end");
}

/// An answer with these records: section (0 to 2), type, TTL.
fn answer(rcode: u8, with: &[(usize, u16, u32)]) -> Vec<u8> {
    let mut message = QUERY.to_vec();
    message[2] |= 0x80;
    message[3] = rcode;
    for section in 0..3 {
        let own = with.iter().filter(|one| one.0 == section);
        message[7 + 2 * section] = own.clone().count() as u8;
        for (_, kind, ttl) in own {
            message.push(0);
            message.extend(kind.to_be_bytes());
            message.extend([0, 1]);
            message.extend(ttl.to_be_bytes());
            message.extend([0, 0]);
        }
    }
    message
}

#[test]
fn an_answer_is_kept_as_long_as_coredns_says() {
    for (rcode, records, age) in [
        (0, &[(0, 1, 300), (0, 1, 60)][..], 60),
        (0, &[(0, 1, 300), (1, 2, 20), (2, 1, 30)], 20),
        (0, &[(0, 1, 86_400)], 3_600),
        (0, &[(0, 1, 0)], 0),
        // The TTL of OPT is none.
        (0, &[(0, 1, 300), (2, 41, 0)], 300),
        (0, &[(2, 41, 0)], 5),
        (0, &[], 5),
        (0, &[(1, 6, 30)], 30),
        (3, &[(1, 6, 30)], 30),
        (3, &[], 5),
        // An alias of a name that does not exist.
        (3, &[(0, 5, 300), (1, 6, 30)], 5),
        (2, &[(0, 1, 300)], 5),
        (5, &[], 5),
        // A referral.
        (0, &[(1, 2, 300)], 5),
    ] {
        assert_eq!(max_age(&answer(rcode, records)), age, "{rcode} {records:?}");
    }
    assert_eq!(max_age(b"no message"), 5);
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
    }

    /// One message has one encoding, and nothing panics.
    #[test]
    fn what_is_decoded_is_encoded_as_it_was(text in "[A-Za-z0-9_=+/-]{0,40}") {
        if let Some(bytes) = decode(&text) {
            prop_assert_eq!(encode(&bytes), text);
        }
    }
}
