//! dnstap's messages (dnstap.proto) as protobuf has them on the wire.

use namewall_dns::{Asked, Transport};
use std::net::{IpAddr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

/// Who said it to whom, by dnstap's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    ClientQuery = 5,
    ClientResponse = 6,
    ForwarderQuery = 7,
    ForwarderResponse = 8,
}

/// One message, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: Kind,
    pub(super) client: SocketAddr,
    /// Who was asked: us, or an upstream.
    pub(super) server: SocketAddr,
    pub(super) transport: Transport,
    pub(super) is_v6: bool,
    pub(super) query_time: SystemTime,
    pub(super) query_message: Option<&'a [u8]>,
    pub(super) response_time: Option<SystemTime>,
    pub(super) response_message: Option<&'a [u8]>,
}

impl<'a> Event<'a> {
    /// Between a client and us.
    pub(super) fn of_client(kind: Kind, asked: &Asked<'_>, query_time: SystemTime) -> Self {
        let (client, server) = (asked.client, asked.server);
        let is_v6 = client.ip().to_canonical().is_ipv6();
        Self {
            kind,
            client,
            server,
            transport: asked.transport,
            is_v6,
            query_time,
            query_message: None,
            response_time: None,
            response_message: None,
        }
    }
}

/// Bytes that grow by fields.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn varint(&mut self, field: u64, value: u64) {
        self.number(field << 3);
        self.number(value);
    }

    fn fixed32(&mut self, field: u64, value: u32) {
        self.number(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.number(field << 3 | 2);
        self.number(value.len() as u64);
        self.0.extend(value);
    }

    fn time(&mut self, field: u64, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.varint(field, since.as_secs());
        self.fixed32(field + 1, since.subsec_nanos());
    }

    fn address(&mut self, field: u64, address: IpAddr) {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.bytes(field, &v4.octets()),
            IpAddr::V6(v6) => self.bytes(field, &v6.octets()),
        }
    }
}

/// A message with identity, version and extra, of which such as are empty are left out.
pub(super) fn encode(event: &Event<'_>, beside: [&[u8]; 3]) -> Vec<u8> {
    const MESSAGE: u64 = 1;
    let of_event = message(event);
    let mut all =
        Fields(Vec::with_capacity(of_event.len() + beside.iter().map(|one| one.len() + 4).sum::<usize>() + 8));
    for (field, value) in (1..).zip(beside) {
        if !value.is_empty() {
            all.bytes(field, value);
        }
    }
    all.bytes(14, &of_event);
    all.varint(15, MESSAGE);
    all.0
}

/// The number of a protocol in dnstap.
fn protocol(transport: Transport) -> u64 {
    match transport {
        Transport::Udp => 1,
        Transport::Tcp => 2,
        Transport::Tls => 3,
        Transport::Https => 4,
    }
}

fn message(event: &Event<'_>) -> Vec<u8> {
    let length = [event.query_message, event.response_message].iter().flatten().map(|one| one.len()).sum::<usize>();
    let mut message = Fields(Vec::with_capacity(length + 96));
    message.varint(1, event.kind as u64);
    message.varint(2, if event.is_v6 { 2 } else { 1 });
    message.varint(3, protocol(event.transport));
    message.address(4, event.client.ip());
    message.address(5, event.server.ip());
    message.varint(6, event.client.port().into());
    message.varint(7, event.server.port().into());
    message.time(8, event.query_time);
    if let Some(query) = event.query_message {
        message.bytes(10, query);
    }
    if let Some(time) = event.response_time {
        message.time(12, time);
    }
    if let Some(response) = event.response_message {
        message.bytes(14, response);
    }
    message.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn numbers_are_sevens_of_bits() {
        let mut fields = Fields::default();
        [0, 127, 128, 300, u64::MAX].into_iter().for_each(|number| fields.number(number));
        let last = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(fields.0, [&[0, 0x7f, 0x80, 1, 0xac, 2][..], &last].concat());
    }

    #[test]
    fn a_question_is_coded_field_by_field() {
        let asked = Asked {
            query: b"?",
            client: "192.0.2.1:256".parse().unwrap(),
            server: "[2001:db8::1]:53".parse().unwrap(),
            transport: Transport::Tcp,
        };
        let event = Event {
            query_message: Some(asked.query),
            ..Event::of_client(Kind::ClientQuery, &asked, UNIX_EPOCH + Duration::new(1, 2))
        };
        let v6 = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let message = [
            &[0x08, 5, 0x10, 1, 0x18, 2, 0x22, 4, 192, 0, 2, 1, 0x2a, 16][..],
            &v6,
            &[0x30, 0x80, 2, 0x38, 53, 0x40, 1, 0x4d, 2, 0, 0, 0, 0x52, 1, b'?'],
        ]
        .concat();
        let expected = [&[0x0a, 1, b'i', 0x1a, 1, b'x', 0x72, message.len() as u8][..], &message, &[0x78, 1]].concat();
        assert_eq!(encode(&event, [b"i", b"", b"x"]), expected);
    }
}
