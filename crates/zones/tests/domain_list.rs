//! Lists of names: what a line means, what is refused, and the compact list against a naive one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use namewall_zones::{DomainList, ListError};
use proptest::prelude::*;

fn list(text: &str) -> DomainList {
    DomainList::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &[u8]) -> String {
    DomainList::read(text).unwrap_err().to_string()
}

#[test]
fn a_line_covers_what_its_form_says() {
    let list = list(
        "\u{feff}# a list\nads.example\n=Exact.Example.\n*.below.example # those below\n\n\
         0.0.0.0 one.hosts.example Two.hosts.example\r\n127.0.0.1 localhost\nfe80::1%lo0 localhost\n\
         bücher.example\n_dmarc.-odd-.example\n",
    );
    for (name, line) in [
        ("ads.example.", Some(2)),
        ("www.ADS.example", Some(2)),
        ("evilads.example.", None),
        ("example.", None),
        ("exact.example.", Some(3)),
        ("www.exact.example.", None),
        ("below.example.", None),
        ("a.b.below.example.", Some(4)),
        ("one.hosts.example.", Some(6)),
        ("two.hosts.example.", Some(6)),
        ("www.one.hosts.example.", None),
        ("localhost.", None),
        ("xn--bcher-kva.example.", Some(9)),
        ("x._dmarc.-odd-.example", Some(10)),
        // One label with a dot in it.
        (r"evil\.ads.example.", None),
        (r"evil\\.ads.example.", Some(2)),
        (r"\097ds.example.", Some(2)),
        ("", None),
        (".", None),
        ("a..b", None),
        (r"a\", None),
    ] {
        assert_eq!(list.line_of_text(name), line, "{name}");
    }
    assert_eq!(list.len(), 7);
}

#[test]
fn a_name_may_have_several_forms() {
    let list = list("=a.example\n*.a.example\na.example\nb.example\n=b.example\nb.example\n");
    assert_eq!(list.line_of_text("a.example"), Some(3), "the form that covers more comes first");
    assert_eq!(list.line_of_text("x.a.example"), Some(3));
    assert_eq!(list.line_of_text("b.example"), Some(4));
    assert_eq!(list.len(), 5);
}

#[test]
fn s10_2_every_line_that_cannot_be_read_is_a_finding() {
    for (line, why) in [
        ("||ads.example^", "a filter of a browser"),
        ("ads example", "`example` is too much"),
        ("a..b", "an empty label"),
        (".ads.example", "an empty label"),
        ("a.*.example", "`*` stands only as the whole first label"),
        ("*", "`*` stands only as the whole first label"),
        ("=", "there is no name after it"),
        ("192.0.2.1", "an address without a name"),
        ("=192.0.2.1", "an address; a list has names"),
        ("ad,example", "`ad,example` has `,` in it"),
        ("0.0.0.0 bad..name", "an empty label"),
    ] {
        let said = refused(format!("good.example\n{line}\n").as_bytes());
        assert!(said.starts_with("line 2: ") && said.contains(why), "{line}: {said}");
    }
    assert_eq!(refused(b"good.example\n\xff\n"), "line 2: it is not UTF-8");
    let long = format!("{}.example\n", "a".repeat(64));
    assert!(refused(long.as_bytes()).contains("longer than 63 bytes"));
    let long = format!("{}example\n", "abcdefgh.".repeat(30));
    assert!(refused(long.as_bytes()).contains("253 is the most"));
    let endless = "a".repeat(100_000);
    assert_eq!(refused(endless.as_bytes()), "line 1: it is longer than 65536 bytes");
    let many = "a b\n".repeat(1_000);
    assert!(refused(many.as_bytes()).ends_with("and 980 lines more"));
}

/// A file that is cut off while it is copied must not open everything.
#[test]
fn a_list_without_names_is_refused() {
    assert!(matches!(DomainList::read(&b""[..]), Err(ListError::Empty)));
    assert!(matches!(DomainList::read(&b"# nothing\n127.0.0.1 localhost\n"[..]), Err(ListError::Empty)));
}

#[test]
fn a_list_has_a_bound() {
    let text = "a.example\nb.example\nc.example\n";
    assert!(matches!(DomainList::read_at_most(text.as_bytes(), 2), Err(ListError::Long(2))));
    assert_eq!(DomainList::read_at_most(text.as_bytes(), 3).unwrap().len(), 3);
}

/// The same by looking at every line.
fn naive(text: &str, name: &str) -> bool {
    let labels = |name: &str| -> Vec<String> {
        name.trim_end_matches('.').to_ascii_lowercase().split('.').map(str::to_owned).collect()
    };
    let name = labels(name);
    text.lines().any(|line| {
        let (exact, below, own) = match (line.strip_prefix('='), line.strip_prefix("*."), line.strip_prefix("0.0.0.0 "))
        {
            (Some(own), _, _) | (_, _, Some(own)) => (true, false, own),
            (_, Some(own), _) => (false, true, own),
            _ => (true, true, line),
        };
        let own = labels(own);
        name == own && exact || name.len() > own.len() && name.ends_with(&own) && below
    })
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "AB", "c-", "x1"]), 1..5)
        .prop_map(|labels| labels.join("."))
}

proptest! {
    #[test]
    fn the_compact_list_says_what_a_naive_one_says(
        lines in prop::collection::vec((prop::sample::select(vec!["", "=", "*.", "0.0.0.0 "]), name()), 1..200),
        asked in prop::collection::vec(name(), 1..50),
    ) {
        let text: String = lines.iter().map(|(form, name)| format!("{form}{name}\n")).collect();
        let list = list(&text);
        for name in asked {
            let line = list.line_of_text(&name);
            prop_assert_eq!(line.is_some(), naive(&text, &name), "{}", name);
            // The line that it names covers the name.
            if let Some(line) = line {
                let line = text.lines().nth(line as usize - 1).unwrap();
                prop_assert!(naive(line, &name), "{} by {}", name, line);
            }
        }
    }
}
