//! What is written is what is read, and whatever else comes is an error.

use super::*;
use crate::themis::{Flags, Name, Network};
use proptest::prelude::*;
use std::net::IpAddr;

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
        .prop_map(|address| address.to_canonical())
}

fn network() -> impl Strategy<Value = Network> {
    let any = prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    (any, 0..=128_u8).prop_map(|(address, prefix)| Network::new(address, prefix))
}

fn text() -> impl Strategy<Value = Arc<str>> {
    prop::collection::vec(any::<char>(), 0..12).prop_map(|text| text.into_iter().collect::<String>().into())
}

fn name() -> impl Strategy<Value = Name> {
    let label = prop::collection::vec(prop::char::range('!', '~'), 1..8);
    let label = label.prop_map(|label| label.into_iter().filter(|c| !matches!(c, '.' | '\\')).chain(['x']).collect());
    prop::collection::vec(label, 0..5).prop_map(|labels: Vec<String>| Name::parse(&labels.join(".")).unwrap())
}

fn flags() -> impl Strategy<Value = Flags> {
    (1..=64_u8, any::<u64>()).prop_map(|(count, bits)| {
        let bytes = u32::from(count).next_power_of_two().max(8);
        Flags { count, bits: bits & (u64::MAX >> (64 - bytes)) }
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Boolean),
        text().prop_map(Value::String),
        any::<i64>().prop_map(Value::Integer),
        // Those that are equal to themselves.
        any::<f64>().prop_map(|float| Value::Float(if float.is_nan() { 0.0 } else { float })),
        address().prop_map(Value::Address),
        network().prop_map(Value::Network),
        name().prop_map(Value::Domain),
        prop::collection::vec(text(), 0..5)
            .prop_map(|items| Value::SetOfStrings(Arc::new(items.into_iter().collect()))),
        prop::collection::vec(network(), 0..5)
            .prop_map(|items| Value::SetOfNetworks(Arc::new(items.into_iter().collect()))),
        prop::collection::vec(name(), 0..5)
            .prop_map(|items| Value::SetOfDomains(Arc::new(items.into_iter().collect()))),
        prop::collection::vec(text(), 0..5).prop_map(|items| Value::ListOfStrings(items.into())),
        flags().prop_map(Value::Flags),
    ]
}

fn attributes() -> impl Strategy<Value = Vec<Attribute>> {
    let attribute = (text(), value()).prop_map(|(name, value)| Attribute { name, value });
    prop::collection::vec(attribute, 0..8)
}

proptest! {
    #[test]
    fn requests_come_back(attributes in attributes()) {
        let bytes = write_request(&attributes, usize::MAX).unwrap();
        prop_assert_eq!(read_request(&bytes).unwrap(), attributes);
        for end in 0..bytes.len() {
            prop_assert!(read_request(&bytes[..end]).is_err());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert_eq!(read_request(&longer), Err(CodecError::Trailing(1)));
        prop_assert_eq!(write_request(&[], 3), Err(CodecError::TooLarge(4, 3)));
    }

    #[test]
    fn responses_come_back(obligations in attributes(), effect in 0..7_usize, status in text()) {
        let response = Response { effect: Effect::ALL[effect], status: status.to_string(), obligations };
        let bytes = write_response(&response).unwrap();
        let count = response.obligations.len();
        prop_assert_eq!(&read_response(&bytes, count).unwrap(), &response);
        if count > 0 {
            prop_assert_eq!(read_response(&bytes, count - 1), Err(CodecError::TooMany(count, count - 1)));
        }
    }

    #[test]
    fn whatever_comes_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_request(&bytes);
        let _ = read_response(&bytes, 64);
        let mut bytes = bytes;
        bytes.splice(0..0, [1, 0]);
        let _ = read_request(&bytes);
        let _ = read_response(&bytes, 64);
    }
}

/// As Themis' own tests of its format have them.
#[test]
fn bytes_are_as_themis_has_them() {
    let attributes = [
        Attribute::new("b", Value::Boolean(true)),
        Attribute::new("s", Value::string("test")),
        Attribute::new("i", Value::Integer(-2)),
        Attribute::new("a", Value::Address("192.0.2.1".parse().unwrap())),
        Attribute::new("n", Value::Network(Network::parse("2001:db8::/32").unwrap())),
        Attribute::new("d", Value::Domain(Name::parse("example.com").unwrap())),
    ];
    let expected = [
        &b"\x01\0\x06\0\x01b\x01\x01s\x02\x04\0test\x01i\x03\xfe\xff\xff\xff\xff\xff\xff\xff\x01a\x05\xc0\0\x02\x01"[..],
        b"\x01n\x08\x20\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\0\x01d\x09\x0b\0example.com",
    ]
    .concat();
    assert_eq!(write_request(&attributes, usize::MAX).unwrap(), expected);
}
