//! Documents written to hurt, found beside the fuzz targets: they are read or
//! refused in bounded time and depth, and nothing in them is lost (S10).

use namewall_cluster::Document;
use std::time::Duration;

fn read(text: &str) -> (usize, Vec<String>) {
    let (documents, findings) = Document::read_all(&"hostile.yaml".into(), text);
    (documents.len(), findings.into_iter().map(|finding| finding.message).collect())
}

#[test]
fn s10_2_a_document_after_dots_is_read_or_reported() {
    let (documents, findings) = read("kind: Pod\n...\nkind: NetworkPolicy\n");
    assert!(documents == 2 || !findings.is_empty(), "the second of two documents was lost without a word");
}

#[test]
fn s10_1_aliases_nest_no_deeper_than_lists() {
    let (open, close) = ("[".repeat(60), "]".repeat(60));
    let text = format!("a: &a {open}x{close}\nb: {open}*a{close}\n");
    let (documents, findings) = read(&text);
    assert_eq!((documents, findings.len()), (0, 1), "120 levels deep, 60 of them by an alias: {findings:?}");
}

/// What this thread has computed so far. Other than the clock it does not count what else the machine does.
fn cpu_time() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts it");
    let nanoseconds = told.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first of them is a number"))
}

#[test]
fn s10_1_maps_of_many_keys_are_read_in_step_with_their_size() {
    let keys: String = (0..30_000).map(|number| format!("  key-{number}: value\n")).collect();
    let started = cpu_time();
    let (documents, findings) = read(&format!("data:\n{keys}"));
    assert_eq!((documents, findings.len()), (1, 0), "{findings:?}");
    let took = cpu_time() - started;
    assert!(took < Duration::from_secs(5), "30,000 keys took {took:?}: is every key compared with every other?");
}
