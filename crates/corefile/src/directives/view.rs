//! `view NAME { expr EXPRESSION }`: a server block for some questions of its zones only.

use crate::FileSpan;
use crate::facts::OF_GEOIP;
use crate::form::{ANY, Form, Words, many, once};
use crate::parse::Line;
use crate::problem::Report;
use namewall_expression::{Expression, Fact};
use std::sync::Arc;

pub(crate) const VIEW: Form = once("view", "NAME { expr EXPRESSION }", 1, 1);

const OPTIONS: Words<()> = Words { served: &[((), many("expr", "EXPRESSION", 1, ANY))], not_served: &[] };

/// What CoreDNS' expressions call with `()` is a fact here.
const FACTS: [(&str, &str); 13] = [
    ("type", "type"),
    ("name", "name"),
    ("class", "class"),
    ("proto", "proto"),
    ("size", "size"),
    ("client_ip", "client_ip"),
    ("port", "port"),
    ("server_ip", "server_ip"),
    ("server_port", "server_port"),
    ("id", "[>id]"),
    ("opcode", "[>opcode]"),
    ("do", "[>do]"),
    ("bufsize", "[>bufsize]"),
];

/// Operators of CoreDNS' expressions, and what is written here instead where they do not stand between a fact and a text.
const OPERATORS: [(&str, &str); 3] = [
    ("startsWith", "a function, like `has_prefix(name, 'a')`"),
    ("endsWith", "a function, like `has_suffix(name, 'a')`"),
    ("contains", "a regular expression, like `name =~ 'a'`"),
];

#[derive(Clone, PartialEq, Debug)]
pub struct View {
    pub name: Arc<str>,
    /// All must hold.
    pub conditions: Vec<Arc<Expression>>,
    pub place: FileSpan,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> View {
    let mut view = View { name: line.args[0].text.clone(), conditions: Vec::new(), place: line.place().clone() };
    for ((), option) in report.options(line, &OPTIONS) {
        let Some(text) = option.text_from(0) else { continue };
        let translated = translated(&text.text);
        if let Some((operator, instead)) = foreign_operator(&translated) {
            let what = format!("there is no operator `{operator}`");
            report.error("bad-expression", &text.place, what).help(format!("write {instead}"));
            continue;
        }
        match Expression::parse(&translated) {
            Ok(expression) if expression.facts().iter().any(|fact| fact.is_of_response()) => {
                report
                    .error("bad-expression", &text.place, "a question has no answer yet")
                    .help("compare facts of the question: `client_ip()`, `name()`, `type()` and the like");
            }
            Ok(expression) => match expression.facts().iter().find_map(foreign_label) {
                Some(label) => {
                    report
                        .error("unset-fact", &text.place, format!("nothing sets `{label}` before a view is chosen"))
                        .help("compare facts of the question, of the client's pod (`kubernetes/client-namespace`) or of `geoip`");
                }
                None => view.conditions.push(Arc::new(expression)),
            },
            Err(error) => {
                let help = error.suggestion().unwrap_or("see docs/expressions.md").to_owned();
                report.error("bad-expression", &text.place, error.message()).help(help);
            }
        }
    }
    if line.lines().is_empty() {
        report
            .error("missing-argument", line.place(), "a view without an expression is for all questions")
            .help("write `expr EXPRESSION`, like `expr incidr(client_ip(), '10.0.0.0/8')`");
    }
    view
}

/// An operator of CoreDNS' expressions that is written otherwise here, with how.
fn foreign_operator(text: &str) -> Option<(&'static str, &'static str)> {
    let mut quote = None;
    let outside: String = text
        .chars()
        .map(|letter| {
            let is_quoted = quote.is_some();
            match quote {
                Some(open) if letter == open => quote = None,
                None if matches!(letter, '\'' | '"') => quote = Some(letter),
                _ => {}
            }
            if is_quoted { ' ' } else { letter }
        })
        .collect();
    let mut words = outside.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.find_map(|word| OPERATORS.iter().find(|(operator, _)| *operator == word).copied())
}

/// A fact that is neither of the question nor of the client's pod.
fn foreign_label(fact: &Fact) -> Option<&str> {
    match fact {
        Fact::Label(label) if OF_GEOIP.contains(&&**label) => None,
        Fact::Label(label) if !label.starts_with("kubernetes/client-") => Some(label),
        Fact::ClientRate => Some("client_rate"),
        Fact::ClientSubdomains => Some("client_subdomains"),
        _ => None,
    }
}

/// An expression of CoreDNS' (expr-lang) in our words: facts without `()`, lists in parentheses, `matches` as `=~`, and
/// operators between a fact and a text as functions. Texts in quotes stay as they are.
fn translated(text: &str) -> String {
    let (mut told, mut rest, mut lists) = (String::new(), text, Vec::new());
    // Where the fact before an operator begins and ends.
    let mut fact_at = 0..0;
    while let Some(first) = rest.chars().next() {
        if first == '\'' || first == '"' {
            let end = rest[1..].find(first).map_or(rest.len(), |end| end + 2);
            told.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || "_-/".contains(letter);
            let end = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            let called = rest.trim_start().strip_prefix('(').and_then(|after| after.trim_start().strip_prefix(')'));
            let fact = FACTS.iter().find(|(name, _)| *name == word).map(|(_, fact)| *fact);
            let before = told.get(fact_at.clone()).filter(|fact| !fact.is_empty());
            let before = before.filter(|_| told[fact_at.end..].trim().is_empty());
            let function = quoted(rest)
                .zip(before)
                .and_then(|((text, after), fact)| Some((as_function(word, fact, text)?, after)));
            if let Some((function, after)) = function {
                told.truncate(fact_at.start);
                told.push_str(&function);
                rest = after;
                continue;
            }
            match (called, fact) {
                (Some(after), Some(fact)) => {
                    fact_at = told.len()..told.len() + fact.len();
                    told.push_str(fact);
                    rest = after;
                }
                _ if word == "metadata" => match label(rest) {
                    Some((label, after)) => {
                        fact_at = told.len()..told.len() + label.len() + 2;
                        told.push_str(&format!("[{label}]"));
                        rest = after;
                    }
                    None => told.push_str(word),
                },
                _ if word == "matches" => told.push_str("=~"),
                _ => told.push_str(word),
            }
            continue;
        }
        // `['A', 'B']` is a list; `[a/b]` is a fact of ours.
        let is_list = first == '[' && rest[1..].trim_start().starts_with(['\'', '"']);
        match first {
            '[' => {
                lists.push(is_list);
                told.push(if is_list { '(' } else { '[' });
            }
            ']' => told.push(if lists.pop() == Some(true) { ')' } else { ']' }),
            _ => told.push(first),
        }
        rest = &rest[first.len_utf8()..];
    }
    told
}

/// A text in quotes at the beginning, with its quotes, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let end = text[1..].find(quote)? + 2;
    Some(text.split_at(end))
}

/// `FACT OPERATOR 'TEXT'` in our words.
fn as_function(operator: &str, fact: &str, text: &str) -> Option<String> {
    Some(match operator {
        "startsWith" => format!("has_prefix({fact}, {text})"),
        "endsWith" => format!("has_suffix({fact}, {text})"),
        "contains" => {
            let special = |letter: char| r"\.+*?()|[]{}^$".contains(letter);
            let escape = |letter: char| if special(letter) { format!("[{letter}]") } else { letter.to_string() };
            // A class cannot hold these alone.
            let is_plain = !text.contains(['\\', '^', '[', ']']);
            let pattern: String = text.chars().map(escape).collect();
            is_plain.then(|| format!("{fact} =~ {pattern}"))?
        }
        _ => return None,
    })
}

/// The label of `('LABEL')`, and what follows.
fn label(text: &str) -> Option<(&str, &str)> {
    let inside = text.trim_start().strip_prefix('(')?.trim_start();
    let quote = inside.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
    let (label, after) = inside[1..].split_once(quote)?;
    Some((label, after.trim_start().strip_prefix(')')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_coredns_are_read_in_our_words() {
        for (written, expected) in [
            ("incidr(client_ip(), '10.0.0.0/8')", "incidr(client_ip, '10.0.0.0/8')"),
            ("type() in ['A', 'AAAA'] && do( )", "type in ('A', 'AAAA') && [>do]"),
            ("name() matches '^a(b)[c]' or metadata('x/y') == \"name()\"", "name =~ '^a(b)[c]' or [x/y] == \"name()\""),
            ("[kubernetes/client-namespace] == 'shop'", "[kubernetes/client-namespace] == 'shop'"),
            ("name() endsWith '.corp.'", "has_suffix(name, '.corp.')"),
            ("name() startsWith \"a\" && type() == 'A'", "has_prefix(name, \"a\") && type == 'A'"),
            ("metadata('x/y') contains 'a.b'", "[x/y] =~ 'a[.]b'"),
            ("true", "true"),
        ] {
            assert_eq!(translated(written), expected);
            assert!(Expression::parse(expected).is_ok(), "{expected}");
        }
    }
}
