//! What answers depend on (S10.5), for every output.

use crate::commands::explain::{allowed_json, pod_network_hint};
use crate::output::SOFT;
use anyhow::Result;
use namewall_policy::Snapshot;
use namewall_policy::addr::AddrSet;
use namewall_policy::unknown::{Described, Unknown};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;

/// `dependsOn`: docs/output.md describes it.
pub(crate) fn conditions_json(conditions: &[Described]) -> Value {
    conditions.iter().map(condition_json).collect()
}

fn condition_json(condition: &Described) -> Value {
    let mut value = json!({ "text": condition.text });
    if let Some(part) = &condition.part {
        value["ports"] = allowed_json(part);
        if part.portless {
            value["ports"]["other"] = true.into();
        }
    }
    let cidrs = |set: &AddrSet| -> Value {
        set.ranges().flat_map(|range| range.cidrs().map(|cidr| cidr.to_string())).collect()
    };
    value["on"] = match &condition.unknown {
        Unknown::Address { open, closed } => {
            value["open"] = cidrs(open);
            value["closed"] = cidrs(closed);
            "address".into()
        }
        Unknown::Node => "node".into(),
        Unknown::SourceNat { nodes } => {
            value["nodes"] = json!(nodes);
            "sourceNat".into()
        }
        Unknown::LoadBalancer => "loadBalancer".into(),
        Unknown::NextNode => "nextNode".into(),
    };
    value["of"] = condition.of.as_str().into();
    value
}

/// Conditions that are told once, below a list or a table. Their sentences speak of "the source" and "the target", so
/// that a few of them are enough for thousands of rows.
#[derive(Default, Debug)]
pub(crate) struct Notes {
    texts: Vec<String>,
    numbers: HashMap<String, usize>,
    /// Something depends on where pods live, so that a hint helps.
    pub(crate) pod_network: bool,
}

impl Notes {
    /// The numbers of these conditions, counted from 1: `1, 3`.
    pub(crate) fn numbers(&mut self, conditions: &[Described]) -> String {
        let mut numbers: Vec<usize> = conditions.iter().map(|condition| self.number(&condition.text)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// What follows the connections that depend on these conditions: ` [1, 3]`, or nothing.
    pub(crate) fn mark(&mut self, conditions: &[Described]) -> String {
        if conditions.is_empty() { String::new() } else { format!(" [{}]", self.numbers(conditions)) }
    }

    fn number(&mut self, text: &str) -> usize {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.texts.len());
        self.texts.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    pub(crate) fn print(&self, out: &mut impl Write, snapshot: &Snapshot) -> Result<()> {
        for (at, text) in self.texts.iter().enumerate() {
            writeln!(out, "{SOFT}[{}] {text}{SOFT:#}", at + 1)?;
        }
        if self.pod_network {
            writeln!(out, "{SOFT}hint: {}{SOFT:#}", pod_network_hint(snapshot))?;
        }
        Ok(())
    }

    /// A numbered list. The blank line before it ends a table.
    pub(crate) fn print_markdown(&self, out: &mut impl Write, snapshot: &Snapshot) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nDepends on:\n")?;
        for (at, text) in self.texts.iter().enumerate() {
            writeln!(out, "{}. {}", at + 1, text.replace('*', "\\*"))?;
        }
        if self.pod_network {
            writeln!(out, "\nHint: {}", pod_network_hint(snapshot))?;
        }
        Ok(())
    }
}
