//! Facts that nothing in a Corefile can set: a rule that looks at one would never match.

use super::{read_alone, told};

/// The findings about a server block with these lines.
fn of(lines: &str) -> String {
    told(&read_alone(&format!(". {{\n{lines}\n}}\n")))
}

fn of_rule(lines: &str, rule: &str) -> String {
    of(&format!("{lines}\nfirewall query {{\n{rule}\ndefault block\n}}"))
}

#[test]
fn a_fact_that_nothing_sets_is_an_error_with_advice() {
    for (lines, rule, expected) in [
        ("", "allow [kubernetes/namespace] == 'shop'", "add the directive `kubernetes`"),
        ("kubernetes", "allow [kubernetes/namespce] == 'shop'", "did you mean `kubernetes/namespace`?"),
        ("", "allow [kubernetes/client-namspace] == 'shop'", "did you mean `kubernetes/client-namespace`?"),
        ("", "block [geoip/country/code] == 'XX'", "`geoip/country/code` is never set"),
        ("", "block [forward/upstream] == '192.0.2.1'", "`forward/upstream` is never set"),
        ("", "allow request/client_id == 'a'", "add `request { edns0 CODE client_id }`"),
        ("request {\nedns0 0xffed client_id\n}", "allow request/clientid == 'a'", "did you mean `client_id`?"),
        ("", "allow type == A", "write `'A'`"),
        ("", "allow policy_id == 'a'", "`policy_id` is never set"),
    ] {
        let told = of_rule(lines, rule);
        assert!(told.contains("error: "), "{rule}: {told}");
        assert!(told.contains(expected), "{rule}: {told}");
    }
}

#[test]
fn the_place_of_such_a_fact_is_marked() {
    let told = of_rule("", "allow type == 'A' and [geoip/country/code] == 'XX'");
    assert!(told.contains("Corefile:4:23: error: "), "{told}");
}

#[test]
fn what_something_sets_is_accepted() {
    for (lines, rule) in [
        ("", "allow [kubernetes/client-namespace] == 'shop'"),
        ("", "allow [kubernetes/client-label/team] == k8s/clientpod.security"),
        ("kubernetes cluster.local", "allow [kubernetes/namespace] == [kubernetes/client-namespace]"),
        ("request {\nedns0 0xffed client_id bytes\n}", "allow request/client_id == 'x'"),
        ("metadata_edns0 {\nclient_id 0xffed bytes\n}", "allow [metadata_edns0/client_id] == 'x'"),
    ] {
        assert_eq!(of_rule(lines, rule), "", "{rule}");
    }
    // What a Themis says besides is a fact for rules after it.
    let themis = "themis t {\nendpoint 127.0.0.1:5555\n}";
    assert_eq!(of_rule(themis, "themis t\nblock policy_id == 'malware'"), "");
    let decided = "opa o {\nendpoint http://127.0.0.1:8181/\ndefault_decision block reason=none\n}";
    let told = of_rule(decided, "opa o\nblock reason == 'none'");
    assert!(!told.contains("error"), "{told}");
}

#[test]
fn an_engine_is_not_promised_a_fact_that_nothing_sets() {
    let opa = |field: &str| {
        of(&format!(
            "opa o {{\nendpoint http://127.0.0.1:8181/\nfields name {field}\n}}\nfirewall query {{\nopa o\ndefault block\n}}"
        ))
    };
    assert!(
        opa("kubernetes/namespace").contains("error: `kubernetes/namespace` is never set"),
        "{}",
        opa("kubernetes/namespace")
    );
    assert!(opa("client_id").contains("warning: `client_id` is never set"), "{}", opa("client_id"));
    assert_eq!(opa("type"), "");
}
