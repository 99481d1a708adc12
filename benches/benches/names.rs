//! What a DNS answer costs before it can be let go: reading it, and finding the
//! patterns its name matches. After divan's table come `figure NAME VALUE`
//! lines, each the best of several tries, which `scripts/bench` holds against
//! the goals.
//!
//! `NAMEWALL_COUNT=addresses` or `matching` runs just that, once, in a function
//! of its own name, so that valgrind can count its instructions.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use namewall_bench::patterns::patterns;
use namewall_dns::wire::addresses;
use namewall_policy::domain::{DomainName, PatternTable};
use std::sync::LazyLock;
use std::time::Instant;

const PATTERNS: usize = 100_000;
const NAMES: usize = 10_000;
const ANSWERS: usize = 1_000;

/// Names in no order, as clients ask for them: of every two one matches.
static ASKED: LazyLock<(PatternTable, Vec<DomainName>)> = LazyLock::new(|| {
    let (table, patterns) = patterns(PATTERNS);
    let elsewhere = |number: usize| format!("a.b{number}.elsewhere.example").parse().expect("it is a name");
    // A prime: every pattern's turn comes, far from the last one's.
    let name = |at: usize| match at % 2 {
        0 => patterns[at * 7_919 % PATTERNS].example(),
        _ => elsewhere(at),
    };
    (table, (0..NAMES).map(name).collect())
});

/// As resolvers send most: an alias and two addresses, with pointers and EDNS0.
static ANSWER: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let a = b"\xc0\x32\0\x01\0\x01\0\0\0\x3c\0\x04";
    [
        &b"\x12\x34\x81\x80\0\x01\0\x03\0\0\0\x01"[..],
        b"\x03www\x04shop\x07example\x03com\0\0\x01\0\x01",
        b"\xc0\x0c\0\x05\0\x01\0\0\x01\x2c\0\x16\x04shop\x03cdn\x07example\x03net\0",
        a,
        &[192, 0, 2, 1],
        a,
        &[192, 0, 2, 2],
        b"\0\0\x29\x04\xd0\0\0\0\0\0\0",
    ]
    .concat()
});

fn main() {
    let read = addresses(&ANSWER).expect("it is an answer");
    assert_eq!((read.addresses.len(), read.aliases.len(), read.foreign), (2, 1, 0));
    match std::env::var("NAMEWALL_COUNT").as_deref() {
        Ok("addresses") => return counted_addresses(),
        Ok("matching") => {
            LazyLock::force(&ASKED);
            return counted_matching();
        }
        _ => divan::main(),
    }
    // Who asks for a part, or for a list, wants no figures.
    if std::env::args().skip(1).all(|argument| argument == "--bench") {
        println!("figure answer_ns {:.1}", best(read_all) * 1e9 / ANSWERS as f64);
        println!("figure answer_named_ns {:.1}", best(name_all) * 1e9 / ANSWERS as f64);
        println!("figure matching_ns {:.1}", best(match_all) * 1e9 / NAMES as f64);
    }
}

#[divan::bench]
fn read_an_alias_and_two_addresses(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(ANSWERS)).bench(read_all);
}

#[divan::bench]
fn read_it_and_name_it_as_policies_do(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(ANSWERS)).bench(name_all);
}

#[divan::bench]
fn find_patterns_among_100k(bencher: Bencher<'_, '_>) {
    LazyLock::force(&ASKED);
    bencher.counter(ItemsCount::new(NAMES)).bench(match_all);
}

fn read_all() {
    for _ in 0..ANSWERS {
        let _ = black_box(addresses(black_box(&ANSWER)));
    }
}

fn name_all() {
    for _ in 0..ANSWERS {
        let read = addresses(black_box(&ANSWER));
        black_box(read.ok().and_then(|says| says.question.name.to_domain()));
    }
}

fn match_all() {
    let (table, names) = &*ASKED;
    for name in names {
        black_box(table.matching(black_box(name)));
    }
}

fn best(mut action: impl FnMut()) -> f64 {
    let mut seconds = || {
        let start = Instant::now();
        action();
        start.elapsed().as_secs_f64()
    };
    (0..200).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}

#[inline(never)]
fn counted_addresses() {
    read_all();
}

#[inline(never)]
fn counted_matching() {
    match_all();
}
