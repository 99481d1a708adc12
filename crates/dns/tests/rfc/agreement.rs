//! Readers of one promise must agree: `wire`, `naive` and `domain`, on messages
//! as a server writes them and on such as only a mischief-maker would.

use crate::agree;
use crate::message::{Data, Labels, Packing, Record, Writer};
use namewall_dns::wire::{Header, Question, Rcode, reply};
use proptest::prelude::*;

/// Few labels, so that names often meet; odd ones among them.
fn label() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "[abA]".prop_map(String::into_bytes),
        1 => Just(b"a.b".to_vec()),
        1 => Just(vec![0]),
        1 => proptest::collection::vec(any::<u8>(), 1..=63),
    ]
}

fn name() -> impl Strategy<Value = Labels> {
    proptest::collection::vec(label(), 0..4)
}

fn ttl() -> impl Strategy<Value = u32> {
    prop_oneof![0..100_u32, Just(0x7fff_ffff), Just(0x8000_0000), any::<u32>()]
}

fn record() -> impl Strategy<Value = Record> {
    let address = prop_oneof![
        8 => any::<[u8; 4]>().prop_map(|octets| (1, octets.to_vec())),
        4 => any::<[u8; 16]>().prop_map(|octets| (28, octets.to_vec())),
        1 => (prop_oneof![Just(1), Just(28)], proptest::collection::vec(any::<u8>(), 0..20)),
        2 => (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..20)),
    ];
    let address = address.prop_map(|(kind, bytes)| (kind, Data::Bytes(bytes)));
    let alias = name().prop_map(|target| (5, Data::Name(target)));
    let class = prop_oneof![12 => Just(1), 1 => any::<u16>()];
    (name(), prop_oneof![address, alias], ttl(), class).prop_map(|(owner, (kind, data), ttl, class)| Record {
        owner,
        kind,
        class,
        ttl,
        data,
    })
}

fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![Just(Packing::Plain), Just(Packing::Compressed)]
}

fn asked() -> impl Strategy<Value = (u16, u16)> {
    let kind = prop_oneof![6 => Just(1), 3 => Just(28), 2 => Just(255), 1 => any::<u16>()];
    (kind, prop_oneof![12 => Just(1), 1 => any::<u16>()])
}

/// Records of any owners.
fn message() -> impl Strategy<Value = Vec<u8>> {
    (name(), asked(), packing(), proptest::collection::vec(record(), 0..12)).prop_map(
        |(question, (kind, class), packing, records)| {
            let mut writer = Writer::asked(&question, kind, class, packing);
            records.iter().for_each(|record| writer.record(record));
            writer.bytes
        },
    )
}

/// A chain from the question to addresses, in any order, and some records beside it.
fn chained() -> impl Strategy<Value = Vec<u8>> {
    let chain = (0..20_usize, proptest::collection::vec(ttl(), 24), proptest::collection::vec(record(), 0..4));
    (chain, packing(), any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |((links, ttls, mut records), packing, loops, is_looped)| {
            let at = |link: usize| vec![format!("n{link}").into_bytes(), b"Example".to_vec()];
            for (link, &ttl) in ttls.iter().enumerate().take(links) {
                let target = if is_looped && link == loops.index(links) { 0 } else { link + 1 };
                let data = Data::Name(at(target));
                records.push(Record { owner: at(link), kind: 5, class: 1, ttl, data });
            }
            for ttl in &ttls[20..] {
                let data = Data::Bytes(ttl.to_be_bytes().to_vec());
                records.push(Record { owner: at(links), kind: 1, class: 1, ttl: *ttl, data });
            }
            let turn = loops.index(records.len());
            records.rotate_left(turn);
            let mut writer = Writer::asked(&at(0), 1, 1, packing);
            records.iter().for_each(|record| writer.record(record));
            writer.bytes
        },
    )
}

/// What may happen to a message on its way.
#[derive(Clone, Debug)]
enum Mishap {
    Byte(prop::sample::Index, u8),
    Pointer(prop::sample::Index, u16),
    Cut(prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
}

fn mishap() -> impl Strategy<Value = Mishap> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Mishap::Byte(at, byte)),
        4 => (any::<prop::sample::Index>(), 0..200_u16).prop_map(|(at, target)| Mishap::Pointer(at, target)),
        1 => any::<prop::sample::Index>().prop_map(Mishap::Cut),
        1 => (any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(a, b)| Mishap::Repeat(a, b)),
    ]
}

fn befallen(mut message: Vec<u8>, mishaps: &[Mishap]) -> Vec<u8> {
    for mishap in mishaps {
        let length = message.len();
        match mishap {
            Mishap::Byte(at, byte) => message[at.index(length)] = *byte,
            Mishap::Pointer(at, target) if length > 14 => {
                let at = 12 + at.index(length - 14);
                message[at..at + 2].copy_from_slice(&(0xc000 | target).to_be_bytes());
            }
            Mishap::Cut(at) => message.truncate(at.index(length).max(1)),
            Mishap::Repeat(from, to) => {
                let (from, to) = (from.index(length), to.index(length));
                message.extend_from_within(from.min(to)..from.max(to));
            }
            Mishap::Pointer(..) => {}
        }
    }
    message
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 500, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn on_messages_of_any_records(message in message()) {
        agree(&message);
    }

    #[test]
    fn on_chains_of_aliases(message in chained()) {
        agree(&message);
    }

    #[test]
    fn on_what_becomes_of_them(
        message in prop_oneof![message(), chained()],
        mishaps in proptest::collection::vec(mishap(), 1..5),
    ) {
        agree(&befallen(message, &mishaps));
    }

    #[test]
    fn on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        agree(&bytes);
    }

    /// Whatever came in, what we say of it is a message, and says no more than it should.
    #[test]
    fn our_own_replies_are_messages(
        message in prop_oneof![message(), chained()],
        mishaps in proptest::collection::vec(mishap(), 0..5),
    ) {
        let mut query = befallen(message, &mishaps);
        let truncated = reply::truncated(&query);
        prop_assert!(Header::read(&truncated).is_ok_and(|header| header.is_truncated && header.answers == 0));
        query.get_mut(2).into_iter().for_each(|flags| *flags &= 0x7f);
        let failure = reply::failure(&query, Rcode::SERV_FAIL);
        let header = Header::read(&failure);
        prop_assert!(header.is_ok_and(|header| header.answers == 0 && header.questions <= 1));
        prop_assert_eq!(Question::is_repeated(&query, &failure), Question::end(&query).is_ok());
    }
}
