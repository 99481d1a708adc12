//! Answers as an upstream may send them, read by both readers.

use namewall_dns::wire::{Header, Name, Question, addresses, reply};

#[path = "../../crates/dns/tests/support/naive.rs"]
mod naive;

pub fn answer(bytes: &[u8]) {
    naive::agree(bytes);
    if let Ok(says) = addresses(bytes) {
        assert_eq!(Question::of_answer(bytes).as_ref(), Ok(&says.question));
        for name in says.aliases.iter().chain([&says.question.name]) {
            stays_itself(name);
        }
        assert!(says.aliases.len() <= 16, "{} links", says.aliases.len());
    }
    // Cut for a datagram it is an answer still, if it was one, and says nothing but its question.
    let cut = reply::truncated(bytes);
    let header = Header::read(&cut).expect("it has a header");
    assert!(header.is_truncated && header.answers == 0 && cut.len() <= bytes.len().max(12));
    if let (Ok(whole), Ok(cut)) = (Question::of_answer(bytes), Question::of_answer(&cut)) {
        assert_eq!(whole, cut);
    }
}

/// A name is the same when it is read again, and as a domain has the very labels it had.
fn stays_itself(name: &Name) {
    let (again, end) = Name::read(name.as_bytes(), 0).expect("it is whole");
    assert_eq!((&again, end), (name, name.as_bytes().len()));
    if let Some(domain) = name.to_domain() {
        assert!(domain.labels().map(str::as_bytes).eq(name.labels()), "{name} is not {domain}");
        assert_eq!(domain.as_str(), name.to_string());
    }
}
