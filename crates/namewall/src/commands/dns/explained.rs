//! What --explain prints: the walk of a question, as text or as JSON.

use crate::cli::Format;
use crate::output;
use anyhow::Result;
use namewall_dns_firewall::{Explanation, ListTold, RuleTold, Walked};
use namewall_expression::Outcome;
use serde_json::{Map, Value, json};
use std::io::Write;

pub(super) fn print(explanation: &Explanation, format: Format) -> Result<()> {
    let mut out = output::stdout();
    match format {
        Format::Text => {
            for line in explanation.lines() {
                writeln!(out, "{line}")?;
            }
            Ok(out.flush()?)
        }
        Format::Json => output::print_json(&mut out, &to_json(explanation)),
    }
}

fn to_json(explanation: &Explanation) -> Value {
    json!({
        "question": explanation.question,
        "serverBlock": explanation.block.as_ref().map(ToString::to_string),
        "query": explanation.query.as_ref().map(walked),
        "changes": explanation.changes,
        "answer": explanation.way.map(|way| way.to_string()),
        "notes": explanation.notes,
        "policyOfAnswer": explanation.policy_of_answer,
        "response": explanation.response.as_ref().map(walked),
        "clientGets": explanation.client_gets(),
        "passes": explanation.passes(),
    })
}

fn walked(walked: &Walked) -> Value {
    json!({
        "result": result(&walked.outcome),
        "lists": walked.lists.iter().map(list).collect::<Vec<_>>(),
    })
}

fn result(outcome: &Result<Outcome, String>) -> String {
    outcome.as_ref().map_or_else(|error| format!("SERVFAIL: {error}"), ToString::to_string)
}

fn list(told: &ListTold) -> Value {
    json!({
        "list": &*told.text,
        "source": output::source_json(&told.place.source()),
        "address": told.address.map(|address| address.to_string()),
        "rules": told.rules.iter().map(rule).collect::<Vec<_>>(),
        "notAsked": told.count.saturating_sub(told.rules.len()),
        "end": told.ending(),
    })
}

fn rule(told: &RuleTold) -> Value {
    json!({
        "rule": &*told.text,
        "source": output::source_json(&told.place.source()),
        "said": told.said.as_ref().ok().cloned().flatten(),
        "error": told.said.as_ref().err(),
        "facts": object(&told.facts),
        "trace": told.trace,
        "labels": object(&told.labels),
    })
}

fn object(pairs: &[(String, String)]) -> Value {
    Value::Object(pairs.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect::<Map<_, _>>())
}
