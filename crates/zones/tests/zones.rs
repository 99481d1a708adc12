//! Zone files of words in any order: read or refused, and what is read answers (`fuzz/src/zone.rs`); and a second
//! opinion on what a zone answers, which goes over its lines for every question.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(unreachable_pub, reason = "it is the fuzz target's")]
#[path = "../../../fuzz/src/zone.rs"]
mod zone;

use namewall_dns::wire::{Name, RecordType};
use namewall_zones::{Found, Zone};
use proptest::prelude::*;

const WORDS: [&str; 34] = [
    "@",
    "www",
    "*",
    "a.b",
    "sub",
    "alias",
    "a\\.b",
    "\\255",
    "example.",
    "other.",
    ".",
    " ",
    "\t",
    "\n",
    "\n",
    "\n",
    "60",
    "1h",
    "IN",
    "CH",
    "A",
    "NS",
    "CNAME",
    "TXT",
    "SOA",
    "192.0.2.1",
    "\"a b\"",
    "(",
    ")",
    ";",
    "$ORIGIN",
    "$TTL",
    "\\# 1 00",
    "TYPE7",
];
const SOA: &str = "@ 60 IN SOA ns hostmaster 1 2 3 4 5\n";

/// Labels of names below the zone, few enough to meet.
const LABELS: [&str; 4] = ["a", "b", "*", "c"];

fn owner() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&LABELS[..3]), 0..4)
}

fn asked() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&LABELS[..]), 0..5)
}

fn wire(labels: &[&str]) -> Vec<u8> {
    let labels = labels.iter().chain(&["example"]);
    labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).chain([0]).collect()
}

/// Whether a name is another or below it.
fn is_within(name: &[&str], above: &[&str]) -> bool {
    name.len() >= above.len() && name[name.len() - above.len()..] == *above
}

type Line = (Vec<&'static str>, u16);

/// What RFC 1034 §4.3.2 and RFC 4592 say, in so many words. Kinds of the answer, of whatever is there.
fn opinion(lines: &[Line], name: &[&'static str], kind: u16) -> (Found, Vec<u16>) {
    let exists = |name: &[&str]| lines.iter().any(|(owner, _)| is_within(owner, name)) || name.is_empty();
    let kinds = |name: &[&str]| -> Vec<u16> {
        let mut kinds: Vec<u16> = lines.iter().filter(|(owner, _)| owner == name).map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    // The highest cut on the way from the zone to the name.
    for length in 1..=name.len() {
        if kinds(&name[name.len() - length..]).contains(&2) {
            return (Found::Elsewhere, Vec::new());
        }
    }
    let own = if exists(name) {
        kinds(name)
    } else {
        let closest = (1..=name.len()).map(|skipped| &name[skipped..]).find(|above| exists(above)).unwrap();
        let wildcard = [&["*"], closest].concat();
        if !exists(&wildcard) {
            return (Found::NoName, Vec::new());
        }
        kinds(&wildcard)
    };
    (Found::Name, own.into_iter().filter(|one| *one == kind).collect())
}

proptest! {
    #[test]
    fn words_in_any_order_are_read_or_refused(
        words in prop::collection::vec((prop::sample::select(&WORDS[..]), any::<bool>()), 0..40),
        has_soa in any::<bool>(),
    ) {
        let mut text = if has_soa { SOA.to_owned() } else { String::new() };
        for (word, is_apart) in words {
            text.push_str(word);
            text.push_str(if is_apart { " " } else { "" });
        }
        zone::zone(text.as_bytes());
    }

    #[test]
    fn a_zone_answers_as_the_rules_say(
        lines in prop::collection::vec((owner(), prop::sample::select(&[1u16, 16, 2][..])), 0..8),
        name in asked(),
        kind in prop::sample::select(&[1u16, 16, 2][..]),
    ) {
        // Servers of the zone itself are no cut.
        let lines: Vec<Line> = lines.into_iter().filter(|(owner, kind)| *kind != 2 || !owner.is_empty()).collect();
        let mut text = SOA.to_owned();
        for (owner, kind) in &lines {
            let owner = if owner.is_empty() { "@".to_owned() } else { owner.join(".") };
            let data = match kind { 1 => "A 192.0.2.1", 2 => "NS elsewhere.", _ => "TXT text" };
            text.push_str(&format!("{owner} 60 IN {data}\n"));
        }
        let zone = Zone::read("example.", &text).unwrap();
        let asked = Name::read(&wire(&name), 0).unwrap().0;
        let answer = zone.answer(&asked, RecordType(kind)).unwrap();
        let kinds: Vec<u16> = answer.answer.iter().map(|record| record.kind.0).collect();
        prop_assert_eq!((answer.found, kinds), opinion(&lines, &name, kind), "{:?} {} in\n{}", name, kind, text);
    }
}
