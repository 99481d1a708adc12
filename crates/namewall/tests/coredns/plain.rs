//! Plain directives: the same Corefiles, the same upstream, the same questions.

use crate::ask::{Answer, Question, ask, timeless};
use crate::corefiles::{COREFILES, HOSTS, QUESTIONS, UPSTREAM_ZONE, ZONE};
use crate::differences::{Intended, Ledger};
use crate::peer::CoreDns;
use crate::ports::free_port;
use crate::process::{Folder, Serving};

pub(crate) const NOBODY_ANSWERS: Intended =
    ("nobody-answers", |d| d.theirs.rcode == "SERVFAIL" && d.ours.rcode == "REFUSED");

pub(crate) const HOSTS_NODATA_SOA: Intended = ("hosts-nodata-soa", |d| {
    let is_own = d.ours.authority.iter().all(|record| record.contains("namewall.invalid"));
    let without = |answer: &Answer| Answer { authority: Vec::new(), is_authoritative: false, ..answer.clone() };
    is_own && d.theirs.authority.is_empty() && without(d.theirs) == without(d.ours)
});

pub(crate) const NEGATIVE_SOA_TTL: Intended = ("negative-soa-ttl", |d| {
    let without = |answer: &Answer| Answer { authority: timeless(&answer.authority), ..answer.clone() };
    d.ours.is_empty() && without(d.theirs) == without(d.ours)
});

pub(crate) const FILE_ANY: Intended =
    ("file-any", |d| d.question.kind.0 == 255 && d.theirs.is_empty() && !d.ours.is_empty());

pub(crate) const FILE_WITHOUT_NS: Intended = ("file-without-ns", |d| {
    let is_other = |record: &&String| !record.contains(" NS ");
    let authority = d.theirs.authority.iter().filter(is_other).cloned().collect();
    Answer { authority, ..d.theirs.clone() } == *d.ours
});

/// In the order in which they are tried.
const INTENDED: &[Intended] = &[
    NOBODY_ANSWERS,
    HOSTS_NODATA_SOA,
    NEGATIVE_SOA_TTL,
    FILE_ANY,
    ("dns64-hosts-ttl", |d| {
        let without = |answer: &Answer| Answer { answer: timeless(&answer.answer), ..answer.clone() };
        d.question.name == "two.example.org" && without(d.theirs) == without(d.ours)
    }),
    FILE_WITHOUT_NS,
    ("whoami-class", |d| d.question.class == 3 && d.theirs.rcode == "NOERROR" && d.ours.rcode == "REFUSED"),
];

/// The Corefiles of the table in one file, each at a port of its own.
fn corefile(ports: &[u16], above: u16) -> String {
    let block = |((_, body), port): (&(&str, &str), &u16)| {
        let body = body.replace("UPSTREAM", &format!("127.0.0.1:{above}"));
        let mut text = String::new();
        for part in body.split("\n---\n") {
            let (zone, directives) = part.split_once('\n').unwrap_or((part, ""));
            text += &format!("{}:{port} {{\n bind 127.0.0.1\n{directives}\n}}\n", zone.trim());
        }
        text
    };
    COREFILES.iter().zip(ports).map(block).collect()
}

fn folder(corefile: &str) -> Folder {
    let folder = Folder::new(corefile);
    folder.write("db.example", ZONE);
    folder.write("db.upstream", UPSTREAM_ZONE);
    folder.write("hosts", HOSTS);
    folder
}

#[test]
fn plain_corefiles_are_served_as_coredns_serves_them() {
    let ports = || -> Vec<u16> { COREFILES.iter().map(|_| free_port()).collect() };
    let (theirs, ours, above) = (ports(), ports(), free_port());
    let upstream = format!("example.org:{above} {{\n bind 127.0.0.1\n file db.upstream\n}}\n");
    let _coredns = CoreDns::start(folder(&(corefile(&theirs, above) + &upstream)), above);
    let _serving = Serving::start_in(folder(&corefile(&ours, above)));
    let mut ledger = Ledger::new(INTENDED);
    for (at, (name, _)) in COREFILES.iter().enumerate() {
        ledger.begin();
        for text in QUESTIONS {
            let question = Question::new(text);
            let answers = [ask(theirs[at], &question), ask(ours[at], &question)];
            ledger.compare_aged(name, &question, [&answers[0], &answers[1]]);
        }
    }
    assert!(COREFILES.len() >= 40 && ledger.asked >= 300, "{} Corefiles, {} questions", COREFILES.len(), ledger.asked);
    ledger.finish("Plain directives");
}
