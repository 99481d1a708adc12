//! Lists of names in rules: what they cover, what stops the start, and lists that change while questions are asked.

use crate::stub::eventually;
use crate::support::{Engines, Firewall, Live, LoggedText, around, built, check, refused};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file that is gone when the test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("namewall-list-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    /// Takes another text, as a whole.
    fn becomes(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &self.0).unwrap();
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn corefile(list: &File) -> String {
    format!(
        ".:PORT0 {{
            bind 127.0.0.1
            reload 2s
            hosts /no/such/file {{
                192.0.2.1 www.ads.example ads.example good.example
            }}
            firewall query {{
                refuse in-list(name, '{}')
                default allow
            }}
        }}",
        list.path()
    )
}

const GOOD: &str = "NOERROR aa; good.example. 3600 A 192.0.2.1";

#[test]
fn rules_ask_lists_about_names_and_those_below_them() {
    let list = File::new("rules", "ads.example\n=exact.example\n*.below.example\n");
    let text = format!(
        ".:53 {{
            forward . 192.0.2.53
            firewall query {{
                refuse in-list(name, '{0}')
                block not in-list(name, '{0}') and type == 'TXT'
                default allow
            }}
        }}",
        list.path()
    );
    check(
        &text,
        &[
            ("A ads.example", "REFUSED"),
            ("A www.ADS.example", "REFUSED"),
            ("A evilads.example", "route 0"),
            ("A exact.example", "REFUSED"),
            ("A www.exact.example", "route 0"),
            ("A below.example", "route 0"),
            ("A a.below.example", "REFUSED"),
            (r"A evil\.ads.example", "route 0"),
            ("TXT other.example", "NXDOMAIN; authority . 60 SOA 60"),
        ],
    );
}

#[test]
fn s9_5_a_list_that_cannot_be_read_stops_the_start() {
    let text =
        |path: &str| format!(". {{\n firewall query {{\n  deny in-list(name, '{path}')\n  default allow\n }}\n}}");
    assert_eq!(
        refused(&text("/no/such/list")),
        "Corefile:3:22: error: in-list: /no/such/list: No such file or directory (os error 2)"
    );
    let bad = File::new("bad", "good.example\n||ads.example^\n");
    let said = refused(&text(&bad.path()));
    assert!(said.contains(&format!("{}: line 2: `||ads.example^` is a filter of a browser", bad.path())), "{said}");
    let empty = File::new("empty", "");
    assert!(refused(&text(&empty.path())).contains("it has no names"));
}

#[test]
fn explain_names_the_list_and_its_line() {
    let list = File::new("explained", "# ads\nads.example\n");
    let firewall = Firewall::new(&corefile(&list).replace("PORT0", "53"));
    let ask = crate::support::Ask::from("A www.ads.example at 127.0.0.1:53");
    let lines = firewall.service.explain(&ask.asked(), None).lines();
    let expected = format!("{} = \"line 2\"", list.path());
    assert!(lines.iter().any(|line| line.contains(&expected)), "{lines:?}");
}

#[test]
fn views_ask_lists() {
    let list = File::new("views", "inside.example\n");
    let text = format!(
        ".:53 {{
            view inside {{
                expr in-list(name(), '{}')
            }}
            forward . 192.0.2.53
        }}
        .:53 {{
            forward . 192.0.2.54
        }}",
        list.path()
    );
    check(&text, &[("A www.inside.example", "route 0"), ("A outside.example", "route 1")]);
}

#[test]
fn a_list_that_changes_is_read_again_and_a_bad_one_is_not_used() {
    let list = File::new("changes", "ads.example\n");
    let live = Live::start(&corefile(&list));
    assert_eq!(live.ask("A www.ads.example"), "REFUSED");
    assert_eq!(live.ask("A good.example"), GOOD);
    list.becomes("good.example\nads.example\n");
    eventually(|| live.ask("A good.example") == "REFUSED");
    // Neither a bad line nor an empty file opens anything.
    list.becomes("other.example\nbad..name\n");
    let told = live.told.lines(1);
    assert!(
        told[0].contains(&format!("{}: line 2: ", list.path())) && told[0].ends_with("it stays as it was"),
        "{told:?}"
    );
    assert_eq!(live.ask("A good.example"), "REFUSED");
    list.becomes("");
    let told = live.told.lines(2);
    assert!(told[1].contains("it has no names"), "{told:?}");
    assert_eq!(live.ask("A good.example"), "REFUSED");
    list.becomes("other.example\n");
    eventually(|| live.ask("A good.example") == GOOD);
}

/// A Corefile that is read again goes on with its lists, and a list that is bad by then stays as it was.
#[test]
fn a_list_outlives_the_corefile_that_named_it_first() {
    let list = File::new("outlives", "ads.example\n");
    let told = LoggedText::default();
    let around = around(&told);
    let text = corefile(&list).replace("PORT0", "53");
    let first = built(&text, &around, &Engines::none()).unwrap();
    list.becomes("bad..name\n");
    let second = built(&text, &around, &Engines::none()).unwrap_or_else(|why| panic!("{why}"));
    drop(first);
    assert!(told.lines(1)[0].contains("line 1: "));
    let ask = crate::support::Ask::from("A www.ads.example at 127.0.0.1:53");
    assert!(!second.service.explain(&ask.asked(), None).passes());
    // Without anybody who uses it, it is read anew.
    drop(second);
    eventually(|| built(&text, &around, &Engines::none()).is_err());
}

/// Questions see the list before a change or the one after it, and never none.
#[test]
fn every_question_is_judged_while_a_list_is_replaced() {
    let many: String = (0..20_000).map(|number| format!("name{number}.example\n")).collect();
    let list = File::new("replaced", &format!("ads.example\n{many}"));
    let live = Arc::new(Live::start(&corefile(&list)));
    let (ends, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let asking = {
        let (live, ends, asked) = (live.clone(), ends.clone(), asked.clone());
        std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(live.ask("A www.ads.example"), "REFUSED");
                asked.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    for round in 0..2 {
        list.becomes(&format!("ads.example\nround{round}.example\n{many}"));
        let name = format!("A round{round}.example");
        eventually(|| live.ask(&name) == "REFUSED");
    }
    ends.store(true, Ordering::Relaxed);
    asking.join().unwrap();
    assert!(asked.load(Ordering::Relaxed) > 0);
}
