//! Facts whose values are words of a known set: a literal beside one must be such a word.

use super::{Built, Compiler};
use crate::computed::Computed;
use crate::error::{Problem, Span};
use crate::node::Node;
use crate::suggest::nearest;
use crate::{Fact, Kind};
use namewall_policy::dns_codes::{CLASSES, OPCODES, RCODES, Registry, TYPES};

const PROTOCOLS: [&str; 2] = ["udp", "tcp"];

/// The words of a fact, and what they are called.
enum Vocabulary {
    Registered(&'static Registry, &'static str),
    /// Of a fact that is a number.
    Numbers(&'static Registry, &'static str),
    Protocols,
}

impl Vocabulary {
    fn of(fact: &Fact) -> Option<Self> {
        Some(match fact {
            Fact::Type => Self::Registered(&TYPES, "type of record"),
            Fact::Class => Self::Registered(&CLASSES, "class"),
            Fact::Rcode => Self::Registered(&RCODES, "response code"),
            Fact::Opcode => Self::Numbers(&OPCODES, "opcode"),
            Fact::Protocol => Self::Protocols,
            _ => return None,
        })
    }
}

impl Compiler<'_> {
    /// A text literal beside a fact, as the fact spells it: `TYPE1` is `A`. One that no message can have is an
    /// error: its rule would never match. The empty text stays: it asks whether something is set.
    pub(super) fn spell(&self, literal: Built, other: &Built) -> Result<Built, Problem> {
        let Node::Fact(fact, _) = &other.node else { return Ok(literal) };
        let (Some(text), Some(vocabulary)) = (literal.text().filter(|text| !text.is_empty()), Vocabulary::of(fact))
        else {
            return Ok(literal);
        };
        let (value, kind) = match vocabulary {
            Vocabulary::Registered(registry, what) => {
                let number = registry.number(text).ok_or_else(|| unknown(&literal, text, registry, what))?;
                (Computed::Text(registry.text(number)), Kind::Text)
            }
            // A number in quotes is read as any other.
            Vocabulary::Numbers(..) if text.parse::<f64>().is_ok() => return Ok(literal),
            Vocabulary::Numbers(registry, what) => {
                let number = registry.number(text).ok_or_else(|| unknown(&literal, text, registry, what))?;
                (Computed::Number(number.into()), Kind::Number)
            }
            Vocabulary::Protocols if PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(text)) => {
                return Ok(literal);
            }
            Vocabulary::Protocols => {
                let problem = Problem::new(literal.span, format!("`{text}` is no protocol: no question has it"));
                return Err(match nearest(text, PROTOCOLS.into_iter()) {
                    Some(near) => problem.suggest(format!("did you mean `{near}`?")),
                    None => problem.suggest("there are `udp` and `tcp`"),
                });
            }
        };
        Ok(Built { node: Node::Constant(value), kind: Some(kind), span: literal.span })
    }
}

/// An error if a test of texts accepts no word that a fact can be: its rule would never match.
pub(super) fn can_match(fact: &Node, span: Span, is_accepted: impl Fn(&str) -> bool) -> Result<(), Problem> {
    let Node::Fact(fact, _) = fact else { return Ok(()) };
    let (is_possible, what) = match Vocabulary::of(fact) {
        Some(Vocabulary::Registered(registry, what)) => (registry.has_any(is_accepted), what),
        Some(Vocabulary::Protocols) => (PROTOCOLS.into_iter().any(is_accepted), "protocol"),
        // A number as text, and what has no vocabulary.
        Some(Vocabulary::Numbers(..)) | None => return Ok(()),
    };
    match is_possible {
        true => Ok(()),
        false => Err(Problem::new(span, format!("it matches no {what} that a message can have"))
            .suggest(format!("compare it with the names: {fact} in ('…', '…')"))),
    }
}

fn unknown(literal: &Built, text: &str, registry: &Registry, what: &str) -> Problem {
    let problem = Problem::new(literal.span, format!("`{text}` is no {what}: no message has it"));
    let prefix = registry.prefix();
    if let Some(name) = text.parse().ok().and_then(|number| registry.name(number)) {
        return problem.suggest(format!("{} {text} is `{name}`", prefix.to_lowercase()));
    }
    match nearest(text, registry.names()) {
        Some(near) => problem.suggest(format!("did you mean `{near}`?")),
        None => problem.suggest(format!("write a name that IANA registers, or `{prefix}` and its number")),
    }
}
