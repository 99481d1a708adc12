//! Small policies, one promise each. Whole ones are compared with Themis itself
//! (`tests/themis_real.rs`).

use super::*;
use crate::themis::{Name, Value};

const CONTENT: &str = r#"{"id": "content", "items": {
    "action": {"keys": ["domain"], "type": "string", "data": {"example.com": "deny"}},
    "two": {"keys": ["string", "network"], "type": "integer", "data": {"x": {"10.0.0.0/8": 1}}}
}}"#;

fn read(policy: &str) -> Result<Policies, PolicyError> {
    Policies::read(File { name: "p.yaml", text: policy }, &[File { name: "c.json", text: CONTENT }])
}

/// A policy whose one rule has this condition.
fn condition(expression: &str) -> String {
    let attributes = "attributes: {s: string, i: integer, d: domain, a: address, out: string}\n";
    format!(
        "{attributes}policies:\n  alg: FirstApplicableEffect\n  rules:\n  - effect: Permit\n    condition: {expression}\n"
    )
}

#[test]
fn the_simplest_policy_decides() {
    let policies = read(&condition("{equal: [{attr: s}, {val: {type: string, content: yes it is}}]}")).unwrap();
    let effect = |text: &str| policies.decide(&[Attribute::new("s", Value::string(text))]).effect;
    assert_eq!(effect("yes it is"), Effect::Permit);
    assert_eq!(effect("no"), Effect::NotApplicable);
    let said = policies.decide(&[]);
    assert_eq!(said.effect, Effect::IndeterminateP);
    assert_eq!(said.status, "policy without an id: rule without an id: the attribute `s` is missing");
    assert_eq!(policies.attribute("d"), Some(&Type::Domain));
    assert_eq!(policies.attribute("x"), None);
}

#[test]
fn selectors_look_up_what_is_above_a_name() {
    let selector = "{selector: {uri: 'local:content/action', path: [{attr: d}], type: string}}";
    let policies = read(&condition(&format!("{{equal: [{selector}, {{attr: s}}]}}"))).unwrap();
    let name = Value::Domain(Name::parse("www.example.com").unwrap());
    let said = policies.decide(&[Attribute::new("s", Value::string("deny")), Attribute::new("d", name)]);
    assert_eq!(said.effect, Effect::Permit);
}

/// What is wrong is told with file, line and path.
#[track_caller]
fn refused(policy: &str, expected: &str) {
    match read(policy) {
        Ok(_) => panic!("it was read, but: {expected}"),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}

#[test]
fn s9_5_whatever_is_wrong_stops_the_start_and_names_its_place() {
    refused("policies: [", "p.yaml:2: it cannot be read: while parsing a node, did not find expected node content");
    refused("attributes: {}\n", "p.yaml:1: `policies` is missing");
    refused("policys: {}\n", "p.yaml:1: `policys` is no key of a policy file; there are types, attributes, policies");
    refused("attributes:\n  s: text\npolicies: {}\n", "p.yaml:2: attributes.s: there is no type `text`");
    refused(
        "policies: {alg: DenyOverrides}\n",
        "p.yaml:1: policies: a policy has `rules`, a set has `policies`: one of the two",
    );
    refused(
        "policies:\n  alg: PermitOverrides\n  rules: []\n",
        "p.yaml:2: policies.alg: there are FirstApplicableEffect, DenyOverrides and, as a map, Mapper",
    );
    refused(
        "policies:\n  alg: DenyOverrides\n  rules:\n  - effect: Allow\n",
        "p.yaml:4: policies.rules[0].effect: an effect is `Permit` or `Deny`",
    );
    refused(
        "policies:\n  alg: DenyOverrides\n  rules:\n  - effect: Deny\n    taget: []\n",
        "p.yaml:5: policies.rules[0]: `taget` is no key of a rule; there are id, target, condition, effect, obligations",
    );
    refused(
        "policies:\n  alg: DenyOverrides\n  rules:\n  - effect: Deny\n    obligations: [{out: {attr: s}}]\n",
        "p.yaml:5: policies.rules[0].obligations[0].out: the attribute `out` is not declared in `attributes`",
    );
    refused(
        "policies:\n  id: 7\n  alg: DenyOverrides\n  rules: []\n",
        "p.yaml:2: policies.id: expected an id, found the number 7; as a text it goes in quotes",
    );
    refused(
        "policies:\n  alg: {id: Mapper, map: {val: {type: string, content: a}}, default: b}\n  rules: []\n",
        "p.yaml:2: policies.alg.default: there is nothing of the id `b` here",
    );
}

#[test]
fn expressions_are_checked_before_they_are_asked() {
    let place = "p.yaml:6: policies.rules[0].condition";
    for (expression, expected) in [
        ("{attr: x}", ".attr: the attribute `x` is not declared in `attributes`"),
        ("{attr: s}", ": a condition is of the type Boolean, not String"),
        ("{same: []}", ".same: there is no function `same`"),
        ("{equal: [{attr: s}, {attr: i}]}", ".equal: there is no `equal` of (String, Integer)"),
        ("{not: [], and: []}", ": an expression is a map of one key, not of 2"),
        (
            "{not: [{val: {type: boolean, content: true}}]}",
            ".not[0].val: Themis has no immediate values of the type Boolean",
        ),
        (
            "{not: [{val: {type: integer, content: yes}}]}",
            ".not[0].val.content: expected an integer, found true; a word that YAML takes for this goes in quotes",
        ),
        ("{not: [{val: {type: address, content: 10.0.0}}]}", ".not[0].val.content: it is no address"),
        (
            "{not: [{val: {type: set of domains, content: [a..b]}}]}",
            ".not[0].val.content[0]: it is no domain: an empty label",
        ),
        (
            "{selector: {uri: 'local:content', path: [], type: string}}",
            ".selector.uri: a selector is `local:CONTENT/ITEM`; other servers are not asked",
        ),
        (
            "{selector: {uri: 'pip:content/action', path: [], type: string}}",
            ".selector.uri: a selector is `local:CONTENT/ITEM`; other servers are not asked",
        ),
        ("{selector: {uri: 'local:x/action', path: [], type: string}}", ".selector.uri: there is no content `x`"),
        (
            "{selector: {uri: 'local:content/x', path: [], type: string}}",
            ".selector.uri: there is no item `x` in the content `content`",
        ),
        (
            "{selector: {uri: 'local:content/action', path: [{attr: d}], type: integer}}",
            ".selector: the item has values of the type String, not Integer",
        ),
        (
            "{selector: {uri: 'local:content/action', path: [], type: string}}",
            ".selector.path: the item has 1 keys; this path has 0",
        ),
        (
            "{selector: {uri: 'local:content/action', path: [{attr: s}], type: string}}",
            ".selector.path[0]: the item has no keys of the type String here",
        ),
        (
            "{selector: {uri: 'local:content/action', path: [{attr: d}], type: string, default: {attr: i}}}",
            ".selector.default: it is of the type Integer, not String",
        ),
        (
            "{selector: {uri: 'local:content/action', path: [{attr: d}], type: string, aggregation: append}}",
            ".selector.aggregation: only lists of strings can be appended, not String",
        ),
        (
            "{selector: {uri: 'local:content/action', paht: [], type: string}}",
            ".selector: `paht` is no key of a selector; there are uri, path, type, default, error, aggregation",
        ),
    ] {
        refused(&condition(expression), &format!("{place}{expected}"));
    }
}

#[test]
fn targets_compare_one_attribute_with_one_value() {
    let target =
        |test: &str| condition("{not: [{equal: [{attr: s}, {attr: s}]}]}") + &format!("    target: [{test}]\n");
    let place = "p.yaml:7: policies.rules[0].target[0]";
    for (test, expected) in [
        ("{equal: [{attr: s}, {attr: s}]}", ".equal: a test in a target is of one `attr` and one `val`"),
        ("{equal: [{attr: s}]}", ".equal: a test has two arguments"),
        ("{len: [{attr: s}]}", ".len: `len` cannot be in a target; there are equal, greater, contains"),
        (
            "{equal: [{attr: i}, {val: {type: float, content: 1}}]}",
            ".equal: there is no `equal` of Integer and Float in targets",
        ),
        ("{any: [{any: []}]}", ".any[0].any: `any` cannot be in a target; there are equal, greater, contains"),
    ] {
        refused(&target(test), &format!("{place}{expected}"));
    }
}

#[test]
fn contents_are_checked_too() {
    let policy = File { name: "p.yaml", text: "policies: {alg: DenyOverrides, rules: []}" };
    for (content, expected) in [
        ("{\"idd\": 1}", "c.json:1: `idd` is no key of a content; there are id, items"),
        ("{\"items\": {\"i\": {\"type\": \"string\"}}}", "c.json:1: items.i: `data` is missing"),
        (
            "{\"items\": {\"i\": {\"type\": \"string\",\n\"keys\": [\"integer\"], \"data\": {}}}}",
            "c.json:2: items.i.keys[0]: keys are of the types string, address, network or domain",
        ),
        (
            "{\"items\": {\"i\": {\"type\": \"string\", \"keys\": [\"domain\"], \"data\": {\n\"A.b\": \"x\",\n\"a.B.\": \"y\"}}}}",
            "c.json:3: items.i.data.a.B.: this name is here twice",
        ),
        (
            "{\"items\": {\"i\": {\"type\": \"string\", \"keys\": [\"network\"], \"data\": {\"10.0.0.0/33\": \"x\"}}}}",
            "c.json:1: items.i.data.10.0.0.0/33: its key is no address or network",
        ),
        (
            "{\"items\": {\"i\": {\"type\": {\"meta\": \"flags\", \"flags\": [\"a\", \"A\"]}, \"data\": []}}}",
            "c.json:1: items.i.type.flags[1]: the flag `a` is here twice",
        ),
        (
            "{\"items\": {\"i\": {\"type\": {\"meta\": \"flags\", \"flags\": [\"a\"]}, \"data\": [\"b\"]}}}",
            "c.json:1: items.i.data[0]: `b` is no flag of `flags`",
        ),
    ] {
        let error = Policies::read(policy, &[File { name: "c.json", text: content }]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let twice = File { name: "c.json", text: CONTENT };
    let error = Policies::read(policy, &[twice, twice]).unwrap_err();
    assert_eq!(error.to_string(), "c.json:1: there are two contents of the id `content`");
}

#[test]
fn depth_is_bounded_before_anything_is_evaluated() {
    for levels in [60, 5_000] {
        let deep = format!("{}{{attr: s}}{}", "{not: [".repeat(levels), "]}".repeat(levels));
        let message = read(&condition(&deep)).unwrap_err().message;
        assert!(message.contains("deeper") || message.contains("recursion"), "{message}");
    }
    let fits = format!("{}{{equal: [{{attr: s}}, {{attr: s}}]}}{}", "{not: [".repeat(44), "]}".repeat(44));
    let policies = read(&condition(&fits)).unwrap();
    assert_eq!(policies.decide(&[Attribute::new("s", Value::string(""))]).effect, Effect::Permit);
}

#[test]
fn many_attributes_are_looked_at_once_each() {
    let policies = read(&condition("{equal: [{attr: s}, {attr: s}]}")).unwrap();
    let mut many: Vec<Attribute> =
        (0..20_000).map(|at| Attribute::new(&format!("x{at}"), Value::Integer(at))).collect();
    many.push(Attribute::new("s", Value::string("")));
    assert_eq!(policies.decide(&many).effect, Effect::Permit);
    many.push(Attribute::new("x7", Value::Integer(1)));
    assert_eq!(policies.decide(&many).status, "the attribute `x7` is in the request twice");
}
