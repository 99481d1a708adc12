//! What an answer opens (S6.1), read a second time: plainly, and apart from
//! whoever forwards answers, so that the one can be held against the other.

use super::message::Message;
use super::name::Name;
use super::record::Rcode;
use namewall_policy::domain::DomainName;
use std::net::IpAddr;
use std::time::Duration;

/// CNAMEs one after another that are still followed.
const LINKS: usize = 16;

/// What may be leased of an answer, as far as the answer itself goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leasable {
    /// The question's name: the one that patterns are matched against (S6.2).
    pub name: DomainName,
    /// Each with the lowest TTL on the way to it.
    pub addresses: Vec<(IpAddr, Duration)>,
}

/// Reads answers as whoever learns leases from them does.
pub trait ReadsAnswers {
    /// What these bytes allow to be leased to one who sent that query. None:
    /// they are no answer to it, and its sender goes on waiting.
    fn leasable(&self, query: &[u8], answer: &[u8]) -> Option<Leasable>;
}

/// The plain reading.
#[derive(Clone, Copy, Default, Debug)]
pub struct Witness;

impl ReadsAnswers for Witness {
    fn leasable(&self, query: &[u8], answer: &[u8]) -> Option<Leasable> {
        let (query, answer) = (Message::read(query).ok()?, Message::read(answer).ok()?);
        if !answer.answers(&query) {
            return None;
        }
        let question = &query.question.as_ref()?.name;
        let addresses = if answer.rcode == Rcode::NOERROR { reached(question, &answer) } else { Vec::new() };
        // No pattern matches a name that the core cannot have, so it opens nothing.
        let name = question.as_domain();
        let nothing = || "invalid".parse().ok().map(|name| Leasable { name, addresses: Vec::new() });
        name.map(|name| Leasable { name, addresses }).or_else(nothing)
    }
}

/// The addresses whose owner is reached from the question through CNAMEs, in whatever order they stand.
fn reached(question: &Name, answer: &Message) -> Vec<(IpAddr, Duration)> {
    let mut addresses = Vec::new();
    let (mut seen, mut lowest) = (vec![question.clone()], u32::MAX);
    loop {
        let Some(name) = seen.last().cloned() else { return Vec::new() };
        let here = || answer.answer.iter().filter(|record| record.owner == name);
        let found = here().filter_map(|record| Some((record.data.address()?, record.ttl.min(lowest))));
        addresses.extend(found.map(|(address, ttl)| (address, Duration::from_secs(ttl.into()))));
        let Some((target, ttl)) = here().find_map(|record| Some((record.data.alias()?, record.ttl))) else {
            return addresses;
        };
        if seen.contains(target) || seen.len() > LINKS {
            return Vec::new();
        }
        lowest = lowest.min(ttl);
        seen.push(target.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::message::flag;
    use crate::zones::record::{Record, RecordType};

    /// The addresses and TTLs that may be leased of these records, asked for `a.example`.
    fn leasable(records: &[String]) -> Vec<String> {
        let query = Message::query(9, "a.example".parse().unwrap(), RecordType::A);
        let answer = records.iter().map(|text| text.parse::<Record>().unwrap()).collect();
        let message = Message { flags: flag::RESPONSE, answer, ..query.clone() };
        let read = Witness.leasable(&query.write(), &message.write()).unwrap();
        assert_eq!(read.name.as_str(), "a.example");
        read.addresses.iter().map(|(address, ttl)| format!("{address} {}", ttl.as_secs())).collect()
    }

    fn texts(records: &[&str]) -> Vec<String> {
        records.iter().map(|record| (*record).to_owned()).collect()
    }

    fn chain(links: usize) -> Vec<String> {
        let name = |at: usize| if at == 0 { "a.example".to_owned() } else { format!("n{at}.example") };
        let mut records: Vec<String> =
            (0..links).map(|at| format!("{} {} CNAME {}", name(at), 100 - at, name(at + 1))).collect();
        records.push(format!("{} 200 A 198.51.100.1", name(links)));
        records
    }

    #[test]
    fn s6_1_owners_are_reached_from_the_question_in_any_order() {
        let mut records = chain(3);
        assert_eq!(leasable(&records), ["198.51.100.1 98"]);
        records.reverse();
        assert_eq!(leasable(&records), ["198.51.100.1 98"]);
        let foreign = texts(&["b.example 5 A 198.51.100.2", "A.EXAMPLE 6 A 198.51.100.3"]);
        assert_eq!(leasable(&foreign), ["198.51.100.3 6"]);
    }

    #[test]
    fn s6_1_long_chains_and_loops_open_nothing() {
        assert_eq!(leasable(&chain(16)).len(), 1);
        assert!(leasable(&chain(17)).is_empty());
        let round = ["a.example 5 CNAME b.example", "b.example 5 CNAME a.example", "b.example 5 A 198.51.100.1"];
        assert!(leasable(&texts(&round)).is_empty());
        assert!(leasable(&texts(&["a.example 5 CNAME a.example"])).is_empty());
    }

    #[test]
    fn s6_1_only_an_answer_to_the_query_counts() {
        let query = Message::query(9, "a.example".parse().unwrap(), RecordType::A);
        let answer = vec!["a.example 5 A 198.51.100.1".parse().unwrap()];
        let right = Message { flags: flag::RESPONSE, answer, ..query.clone() };
        let read = |message: &Message| Witness.leasable(&query.write(), &message.write());
        assert_eq!(read(&right).unwrap().addresses.len(), 1);
        assert_eq!(read(&Message { rcode: Rcode::NXDOMAIN, ..right.clone() }).unwrap().addresses, []);
        assert_eq!(read(&Message { id: 8, ..right.clone() }), None);
        assert_eq!(read(&Message { flags: 0, ..right.clone() }), None);
        let other = Message::query(9, "b.example".parse().unwrap(), RecordType::A);
        assert_eq!(read(&Message { question: other.question, ..right.clone() }), None);
        assert_eq!(read(&Message { question: None, ..right }), None);
    }
}
