//! Literals as what they are compared with.

use super::{Built, Compiler};
use crate::Kind;
use crate::computed::Computed;
use crate::error::{Problem, Span};
use crate::names::{labels, without_dot};
use crate::node::Node;
use crate::token::read_number;
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::domain::DomainName;

impl Compiler<'_> {
    /// A text literal as the kind of the other side. One that can never be equal is an error: a rule that
    /// never speaks is not what anybody means. The empty text stays: it asks whether something is set.
    pub(super) fn fit(&self, literal: Built, kind: Option<Kind>, other: Span) -> Result<Built, Problem> {
        let Some(text) = literal.text().filter(|text| !text.is_empty()) else { return Ok(literal) };
        let span = literal.span;
        let never = |kind: Kind| {
            Problem::new(span, format!("`{text}` is not {kind}: it can never match `{}`", self.quote(other)))
        };
        let (value, kind) = match kind {
            Some(kind @ Kind::Number) => (Computed::Number(read_number(text).ok_or_else(|| never(kind))?), kind),
            Some(kind @ Kind::Bool) => match text.to_ascii_lowercase().as_str() {
                "true" => (Computed::Bool(true), kind),
                "false" => (Computed::Bool(false), kind),
                _ => return Err(never(kind)),
            },
            Some(kind @ Kind::Address) => match (parse_address(unbracketed(text)), text.parse::<Cidr>()) {
                (Some(address), _) => (Computed::Address(address), kind),
                (None, Ok(network)) => (Computed::Network(network), Kind::Network),
                (None, Err(error)) if text.contains('/') => return Err(Problem::new(span, error.to_string())),
                _ => return Err(never(kind)),
            },
            Some(kind @ Kind::Name) => (Computed::Text(name(text, span)?.into()), kind),
            _ => return Ok(literal),
        };
        Ok(Built { node: Node::Constant(value), kind: Some(kind), span })
    }
}

/// An IPv6 address as CoreDNS writes it is in brackets.
fn unbracketed(text: &str) -> &str {
    let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inside.filter(|inside| inside.contains(':')).unwrap_or(text)
}

/// A literal that is a DNS name, in lower case, as it is on the wire.
pub(super) fn name(text: &str, span: Span) -> Result<String, Problem> {
    let problem = |message: String| Err(Problem::new(span, message));
    if text == "." {
        return Ok(text.to_owned());
    }
    if !text.is_ascii() {
        let ascii = text.parse::<DomainName>().map_err(|error| Problem::new(span, error.to_string()))?;
        return Ok(ascii.as_str().to_owned());
    }
    if text.contains(|c: char| c.is_ascii_whitespace()) {
        return problem(format!("`{text}` has a space in it, which is written \\032 in a name"));
    }
    for label in labels(text) {
        match label {
            "*" => {
                return problem(format!("no `*` stands for labels in `{text}`")).map_err(|problem: Problem| {
                    let domain = text.trim_start_matches("*.");
                    problem.suggest(format!("for all names below it write under(name, '{domain}')"))
                });
            }
            "" => return problem(format!("`{text}` has an empty label; labels are separated by single dots")),
            label if label.len() > 63 && !label.contains('\\') => {
                return problem(format!("the label `{label}` is longer than 63 bytes"));
            }
            _ => {}
        }
    }
    Ok(without_dot(text).to_ascii_lowercase())
}
