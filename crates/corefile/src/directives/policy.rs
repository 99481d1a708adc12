//! `policy { … }`: Infoblox' own plugin, before there was a firewall with engines. It is read as what it
//! became: a Themis, pieces of EDNS0 that it is told, and a list at either point that asks it.

use super::edns0::{self, Edns0, Encoding};
use super::firewall::{EngineKind, Firewall, Point, Rule, RuleKind, Written};
use super::themis::{Attribute, AttributeKind, KINDS, OPTIONS, Themis, ThemisOption};
use crate::form::{Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use namewall_expression::Fact;
use std::sync::Arc;

pub(crate) const POLICY: Form = once("policy", "{ endpoint HOST:PORT… ; … }", 0, 0);

const EDNS0: Form = many("edns0", "CODE NAME [hex|bytes|ip] [string|address] [LENGTH START END]", 2, 7);

/// An option of `policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PolicyOption {
    /// Any of the engine's own.
    Themis(ThemisOption),
    Edns0,
}

/// What its Themis is called.
const NAME: &str = "policy";

pub(crate) struct Policy {
    pub(crate) name: Arc<str>,
    pub(crate) themis: Themis,
    pub(crate) fields: Vec<Edns0>,
    pub(crate) firewalls: [Firewall; 2],
}

pub(crate) fn read(mut line: Line, report: &mut Report) -> Policy {
    cut_comments(&mut line, report);
    let of_themis = OPTIONS.served.iter().map(|(key, form)| (PolicyOption::Themis(*key), *form));
    let served: Vec<(PolicyOption, Form)> = of_themis.chain([(PolicyOption::Edns0, EDNS0)]).collect();
    let words = Words { served: &served, not_served: OPTIONS.not_served };
    let mut themis = Themis::default();
    let mut fields = Vec::new();
    let mut is_somewhere = false;
    for (key, option) in report.options(&line, &words) {
        match key {
            PolicyOption::Themis(key) => {
                is_somewhere |= key.is_where();
                themis.set(key, option, report);
            }
            PolicyOption::Edns0 => {
                if let Some((field, attribute)) = field(option, report) {
                    fields.push(field);
                    themis.attributes.push(attribute);
                }
            }
        }
    }
    if !is_somewhere {
        report.error("no-endpoint", line.place(), "`policy` asks nobody").help("add `endpoint HOST:PORT…`");
    }
    let list = |point| {
        let kind = RuleKind::Engine { kind: EngineKind::Themis, name: NAME.into() };
        Firewall {
            point,
            written: Written::Shipped,
            rules: vec![Rule { kind, name: None, text: NAME.into(), place: line.place().clone() }],
            default: None,
            default_text: None,
            passthrough: themis.passthrough.clone(),
            debug_query_suffix: themis.debug.suffix.clone(),
            log: themis.log,
            text: NAME.into(),
            place: line.place().clone(),
        }
    };
    let firewalls = [list(Point::Query), list(Point::Response)];
    Policy { name: NAME.into(), themis, fields, firewalls }
}

/// `edns0 CODE NAME …`: a fact, and the attribute that carries it. Its label has a prefix of its own, so
/// that a name like `client_ip` is never taken for the fact of that name.
fn field(option: &Line, report: &mut Report) -> Option<(Edns0, Attribute)> {
    let [code, name, rest @ ..] = &option.args[..] else { return None };
    let is_number = |word: &Token| word.text.starts_with(|c: char| c.is_ascii_digit());
    let words = rest.iter().take_while(|word| !is_number(word)).count();
    let (words, piece) = rest.split_at(words);
    let (kind, target) = match words {
        [] => (None, None),
        [kind] => (Some(kind), None),
        [kind, target] => (Some(kind), Some(target)),
        [_, _, extra, ..] => {
            report
                .error("extra-argument", &extra.place, format!("`{}` is too much here", extra.text))
                .help(format!("write `edns0 {}`", EDNS0.usage()));
            return None;
        }
    };
    let mut encoding = match kind {
        Some(kind) => edns0::read_kind(kind, report)?,
        None => Encoding::WHOLE,
    };
    match piece {
        [] => {}
        [length, start, end] => {
            encoding = edns0::read_piece(encoding, kind.unwrap_or(name), [length, start, end], report)?;
        }
        [first, ..] => {
            report
                .error("missing-argument", &first.place, "a piece of an option has a length, a start and an end")
                .help("write them all, like `hex 32 0 32`");
            return None;
        }
    }
    let kind = match target {
        Some(target) => report.word(target, &KINDS)?,
        None if encoding == Encoding::Address => AttributeKind::Address,
        None => AttributeKind::String,
    };
    let code = edns0::read_code(code, report)?;
    let label = edns0::read_label(name, "policy/", report)?;
    let attribute = Attribute { name: name.text.clone(), fact: Fact::Label(label.clone()), kind };
    Some((Edns0 { label, code, encoding, is_untyped: false, place: option.place().clone() }, attribute))
}

/// `//` begins no comment in a Corefile, but does in the samples of this plugin.
fn cut_comments(line: &mut Line, report: &mut Report) {
    for option in line.block.iter_mut().flat_map(|block| &mut block.lines) {
        if let Some(at) = option.args.iter().position(|word| word.text.starts_with("//")) {
            report
                .warning("slash-comment", &option.args[at].place, "the rest of the line is taken for a comment")
                .help("write `#`: in a Corefile `//` is a word like others");
            option.args.truncate(at);
        }
    }
}
