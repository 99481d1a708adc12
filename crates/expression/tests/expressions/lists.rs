//! `in-list`: which file is asked about which name, and what is wrong when it is read.

use namewall_expression::{Expression, Fact, Facts, ListedAt, Value};
use std::borrow::Cow;

/// One list, with one name.
struct Listed;

impl Facts for Listed {
    fn get(&self, fact: &Fact) -> Value<'_> {
        match fact {
            Fact::Name => Value::Text(Cow::Borrowed("www.ads.example.")),
            _ => Value::UNSET,
        }
    }

    fn listed(&self, list: &str, name: &str) -> Result<Option<ListedAt>, String> {
        match list {
            "ads.txt" => Ok((name == "www.ads.example.").then_some(ListedAt { line: 7 })),
            _ => Err(format!("there is no {list}")),
        }
    }
}

fn is_true(text: &str) -> Result<bool, String> {
    let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{error}"));
    expression.is_true(&Listed).map_err(|error| error.to_string())
}

#[test]
fn lists_are_asked_about_the_name() {
    assert_eq!(is_true("in-list(name, 'ads.txt')"), Ok(true));
    assert_eq!(is_true("in-list('other.example', 'ads.txt')"), Ok(false));
    assert_eq!(is_true("in-list([not/set], 'ads.txt')"), Ok(false));
    assert_eq!(is_true("not in-list(name, ('ads.txt', 'more.txt'))"), Ok(false));
}

/// S9.4: a list that is not there is an error, and no reason to let a question pass.
#[test]
fn s9_4_a_list_that_is_not_read_is_an_error() {
    let expected = "in `in-list('x.example', 'ads.txt', 'more.txt')`: there is no more.txt";
    assert_eq!(is_true("in-list('x.example', 'ads.txt', 'more.txt')"), Err(expected.to_owned()));
    struct None;
    impl Facts for None {
        fn get(&self, _: &Fact) -> Value<'_> {
            Value::UNSET
        }
    }
    let expression = Expression::parse("in-list(name, 'ads.txt')").expect("it can be read");
    assert!(expression.is_true(&None).is_err());
}

#[test]
fn files_and_places_of_lists_are_known() {
    let text = "in-list(name, 'ads.txt') or in-list(name, \"b.txt\")";
    let expression = Expression::parse(text).expect("it can be read");
    let lists: Vec<(&str, &str)> = expression.lists().map(|(file, at)| (&**file, &text[at])).collect();
    assert_eq!(lists, [("ads.txt", "'ads.txt'"), ("b.txt", "\"b.txt\"")]);
    let shown = expression.shown(&Listed);
    assert_eq!(shown[1], ("ads.txt".to_owned(), "line 7".to_owned()), "{shown:?}");
}

#[test]
fn a_list_is_a_file_in_quotes() {
    for (text, why) in [
        ("in-list(name)", "in-list(name, 'FILE', …)"),
        ("in-list(name, ads)", "`ads` is no file of a list"),
        ("in-list(name, '')", "is no file of a list"),
        ("in-list(client_ip, 'a.txt')", "`client_ip` is an address"),
        ("in_list(name, 'a.txt')", "`in-list`"),
    ] {
        let error = Expression::parse(text).expect_err(text).to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
