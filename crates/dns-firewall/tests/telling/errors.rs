//! `errors`: at once, or counted.

use crate::support::{Telling, eventually, serve};

const SERV_FAIL: Option<u8> = Some(2);

fn corefile(errors: &str) -> String {
    format!(
        ".:PORT {{
   {errors}
   firewall query {{
      block name == 'broken.example.' && atoi([kubernetes/client-label/none]) == 1
      allow true
   }}
   forward . UPSTREAM
}}"
    )
}

#[test]
fn an_error_is_told_at_once_with_its_question() {
    let telling = Telling::new();
    let serving = serve(&telling, &corefile("errors"));
    assert_eq!(serving.ask("broken.example", 1), SERV_FAIL);
    assert_eq!(serving.ask("dead.example", 28), SERV_FAIL);
    let lines = eventually("both are told", || Some(telling.lines.all()).filter(|lines| lines.len() == 2));
    assert!(
        lines[0].starts_with("[ERROR] 2 broken.example. A: Corefile:4:7: in `atoi([kubernetes/client-label/none])`: "),
        "{}",
        lines[0]
    );
    assert!(
        lines[0].ends_with(": block name == 'broken.example.' && atoi([kubernetes/client-label/none]) == 1"),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1], "[ERROR] 2 dead.example. AAAA: no upstream answered: i/o timeout");
}

#[test]
fn s9_4_without_errors_only_a_rule_that_fails_is_told_of() {
    let telling = Telling::new();
    let serving = serve(&telling, &corefile(""));
    assert_eq!(serving.ask("broken.example", 1), SERV_FAIL);
    assert_eq!(serving.ask("dead.example", 1), SERV_FAIL);
    serving.end(&telling);
    let lines = telling.lines.all();
    assert!(matches!(&lines[..], [one] if one.starts_with("[ERROR] Corefile:4:7: ")), "{lines:?}");
}

#[test]
fn such_as_are_alike_are_counted_and_told_when_it_is_time() {
    let telling = Telling::new();
    let errors = "errors { consolidate 1s \".* i/o timeout$\" warning }";
    let serving = serve(&telling, &corefile(errors));
    for _ in 0..3 {
        assert_eq!(serving.ask("broken.example", 1), SERV_FAIL);
    }
    assert_eq!(serving.ask("dead.example", 1), SERV_FAIL);
    let is_summary = |line: &&String| line.contains("i/o timeout");
    let lines =
        eventually("they are told", || Some(telling.lines.all()).filter(|all| all.iter().any(|one| is_summary(&one))));
    assert_eq!(lines.iter().filter(|line| line.starts_with("[ERROR] 2 broken.example. A: ")).count(), 3);
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[3], "[WARNING] 1 errors like '.* i/o timeout$' occurred in last 1s");
    // It begins anew.
    assert_eq!(serving.ask("dead.example", 1), SERV_FAIL);
    eventually("they are told again", || (telling.lines.all().iter().filter(is_summary).count() == 2).then_some(()));
}

#[test]
fn the_first_is_told_at_once_where_that_is_asked_for_and_the_rest_in_the_end() {
    let telling = Telling::new();
    let errors = "errors {
      consolidate 1h broken info show_first
      consolidate 1h timeout show_first
      consolidate 1h . debug
   }";
    let serving = serve(&telling, &corefile(errors));
    for _ in 0..3 {
        assert_eq!(serving.ask("broken.example", 1), SERV_FAIL);
    }
    assert_eq!(serving.ask("dead.example", 1), SERV_FAIL);
    serving.end(&telling);
    let lines = telling.lines.all();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("[INFO] 2 broken.example. A: Corefile:"), "{}", lines[0]);
    assert_eq!(
        lines[1], "[ERROR] 2 dead.example. A: no upstream answered: i/o timeout",
        "and no more: it was the only one"
    );
    assert_eq!(lines[2], "[INFO] 3 errors like 'broken' occurred in last 3600s");
}

#[test]
fn what_is_no_regular_expression_says_where() {
    let errors = Telling::new().build(".:53 {\n   errors { consolidate 1s \"(\" }\n}").unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].to_string(), "Corefile:2:29: error: not a regular expression: unclosed group");
}
