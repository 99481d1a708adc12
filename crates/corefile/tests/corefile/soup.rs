//! Whatever the text, it is read or refused, and every problem shows where it is.

use super::{Folder, environment, told};
use namewall_corefile::read;
use namewall_policy::Severity;
use proptest::prelude::*;

const WORDS: &[&str] = &[
    "{",
    "}",
    "\n",
    "\n",
    "\n",
    " ",
    ".",
    "import",
    "(a)",
    "a",
    "\"",
    "#",
    ",",
    "firewall",
    "query",
    "response",
    "permit",
    "deny",
    "true",
    "default",
    "block",
    "themis",
    "opa",
    "policy",
    "edns0",
    "0xffed",
    "hex",
    "16",
    "0",
    "forward",
    "8.8.8.8",
    "tls://9.9.9.9%x:853",
    "cache",
    "30s",
    "hosts",
    "10.0.0.1",
    "template",
    "IN",
    "ANY",
    "answer",
    "kubernetes",
    "...",
    "log",
    "{$PORT}",
    "{$X}",
    "metadata",
    "request",
    "expression",
    "redirect",
    "[::1]:53",
    "errors",
    "consolidate",
    "ä",
    "\t",
    "\r\n",
    "//",
    "default_decision",
    "policy_action=4",
    "*",
    "10.0.0.0/23",
    ":1053",
];

fn soup() -> impl Strategy<Value = String> {
    let word = proptest::sample::select(WORDS);
    proptest::collection::vec((word, any::<bool>()), 0..60).prop_map(|words| {
        words.into_iter().map(|(word, space)| format!("{word}{}", if space { " " } else { "\n" })).collect()
    })
}

fn holds(text: &str) {
    let files = Folder([("a", ". {\n import b\n}"), ("b", "import a\nerrors")].into_iter().collect());
    let once = read("Corefile", text, &files, &environment);
    let problems = match &once {
        Ok(corefile) => &corefile.warnings,
        Err(errors) => &errors.problems,
    };
    for problem in problems {
        assert!(problem.place.line > 0 && problem.place.column > 0, "{problem}");
        assert_eq!(problem.to_string().lines().count(), 3, "{problem}");
        assert!(problem.help.is_some() || problem.severity < Severity::Error, "{problem}");
    }
    assert_eq!(told(&once), told(&read("Corefile", text, &files, &environment)));
}

proptest! {
    #[test]
    fn words_in_any_order(text in soup()) {
        holds(&text);
        holds(&format!(". {{\n{text}\n}}\n"));
        holds(&format!(". {{\nfirewall . query {{\n{text}\n}}\n}}\n"));
    }

    #[test]
    fn any_text(text in "\\PC{0,200}") {
        holds(&text);
    }

    /// What stands after an action comes back as it was written.
    #[test]
    fn expressions_as_written(text in "[a-z'(]([a-z0-9 '\"()=<>&|!~/\\[\\]-]{0,40}[a-z')])?") {
        let corefile = format!(". {{\n firewall query {{\n  allow {text}\n  default block\n }}\n}}\n");
        let read = read("Corefile", &corefile, &Folder::default(), &environment);
        // A word that begins with a quote may have no end.
        if let Ok(read) = read {
            let list = format!("{:?}", read.servers[0].firewalls[0].rules[0]);
            prop_assert!(list.contains(&format!("{text:?} at Corefile:3:9")), "{}", list);
        }
    }
}
