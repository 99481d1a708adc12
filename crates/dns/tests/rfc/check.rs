//! One way to ask what is learned from an answer.

use crate::agree;
use crate::message::{Packing, written};
use namewall_dns::wire::addresses;

/// What is learned from an answer, whichever way its names are packed; both readers must say so.
pub(crate) fn check(question: &str, records: &[&str], expected: &str) {
    for packing in [Packing::Plain, Packing::Compressed] {
        let message = written(question, records, packing);
        assert_eq!(says(&message), expected, "{question}, {packing:?}: {records:#?}");
    }
}

/// `192.0.2.1 60s, 192.0.2.2 60s via cdn.example, 1 foreign`
pub(crate) fn says(message: &[u8]) -> String {
    agree(message);
    let read = match addresses(message) {
        Ok(read) => read,
        Err(error) => return format!("refused: {error}"),
    };
    let addresses = read.addresses.iter().map(|one| format!("{} {}s", one.address, one.ttl.as_secs()));
    let mut said = addresses.collect::<Vec<_>>().join(", ");
    if said.is_empty() {
        said.push_str("nothing");
    }
    for alias in &read.aliases {
        said.push_str(&format!(" via {alias}"));
    }
    if read.foreign > 0 {
        said.push_str(&format!(", {} foreign", read.foreign));
    }
    said
}
