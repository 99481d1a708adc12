//! `request`, `metadata` and `metadata_edns0`: pieces of a query's EDNS0 under names that rules can look
//! at. The original form (docs/semantics.md, S9), the first release and the present one write them in three ways; all are
//! read.

use crate::form::{ANY, Form, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::{FileSpan, Zone};
use namewall_expression::Fact;
use std::sync::Arc;

pub(crate) const REQUEST: Form = once("request", "{ edns0 CODE LABEL [hex|bytes|ip [LENGTH START END]] }", 0, 0);
pub(crate) const METADATA: Form = once("metadata", "[ZONE…]", 0, ANY);
pub(crate) const METADATA_EDNS0: Form =
    once("metadata_edns0", "{ LABEL CODE [hex|bytes|address [LENGTH START END]] }", 0, 0);

/// `metadata`: facts of other plugins are collected. Here they always are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    pub zones: Vec<Zone>,
    pub place: FileSpan,
}

/// A piece of EDNS0 that is a fact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edns0 {
    /// As [`Fact::Label`] has it.
    pub label: Arc<str>,
    /// The option it is read from.
    pub code: u16,
    pub encoding: Encoding,
    /// Whether the encoding is not written, so that rules may show what is meant.
    pub is_untyped: bool,
    pub place: FileSpan,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Some of its bytes in hexadecimal. It is not set if the option has another length than this one, or
    /// ends before the piece does.
    Hex { length: Option<u32>, start: u32, end: Option<u32> },
    /// Its bytes as text.
    Bytes,
    /// An IPv4 or IPv6 address.
    Address,
}

impl Encoding {
    pub(super) const WHOLE: Self = Self::Hex { length: None, start: 0, end: None };
}

pub(crate) fn metadata(line: &Line, report: &mut Report) -> (Metadata, Vec<Edns0>) {
    let metadata = Metadata { zones: report.zones(&line.args), place: line.place().clone() };
    (metadata, read(line, "metadata/", report))
}

/// The fields in a directive's block.
pub(crate) fn read(line: &Line, prefix: &str, report: &mut Report) -> Vec<Edns0> {
    let mut fields = Vec::new();
    for option in line.lines() {
        if report.is_placeholder(option) {
            continue;
        }
        report.no_block(option);
        let words: Vec<&Token> = std::iter::once(&option.name).chain(&option.args).collect();
        let (code, label, rest) = match &words[..] {
            [first, code, label, rest @ ..] if &*first.text == "edns0" => (code, label, rest),
            [label, second, code, rest @ ..] if &*second.text == "edns0" => (code, label, rest),
            [label, code, rest @ ..] if &*label.text != "edns0" => (code, label, rest),
            _ => {
                report
                    .error("missing-argument", option.place(), "a field needs a label and a code")
                    .help("write `edns0 CODE LABEL [hex|bytes|ip [LENGTH START END]]`, like `edns0 0xffed client_id`");
                continue;
            }
        };
        let (code, label) = (read_code(code, report), read_label(label, prefix, report));
        let encoding = read_encoding(rest, option, report);
        let (Some(code), Some(label), Some(encoding)) = (code, label, encoding) else { continue };
        let is_untyped = rest.is_empty();
        fields.push(Edns0 { label, code, encoding, is_untyped, place: option.place().clone() });
    }
    fields
}

/// `65517`, `0xffed`, `0177755` or `0b1`: numbers as Go reads them.
pub(super) fn read_code(token: &Token, report: &mut Report) -> Option<u16> {
    let text = token.text.to_ascii_lowercase();
    let (digits, radix) = match text.strip_prefix('0') {
        Some(rest) if rest.starts_with('x') => (&rest[1..], 16),
        Some(rest) if rest.starts_with('b') => (&rest[1..], 2),
        Some(rest) if rest.starts_with('o') => (&rest[1..], 8),
        Some(rest) if !rest.is_empty() => (rest, 8),
        _ => (&*text, 10),
    };
    let is_number = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let code = u16::from_str_radix(digits, radix).ok().filter(|_| is_number);
    if code.is_none() {
        report
            .error("bad-code", &token.place, format!("`{}` is not the code of an EDNS0 option", token.text))
            .help("write a number up to 0xffff, like `0xffed`");
    }
    code
}

/// The label under its prefix; `request/` is understood, and no part of it.
pub(super) fn read_label(token: &Token, prefix: &str, report: &mut Report) -> Option<Arc<str>> {
    let accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if token.text.is_empty() || !token.text.chars().all(accepted) {
        report
            .error("bad-label", &token.place, format!("`{}` is not a label", token.text))
            .help("letters, digits, `_`, `-` and `.` are accepted");
        return None;
    }
    match Fact::named(&format!("{prefix}{}", token.text)) {
        Fact::Label(label) => Some(label),
        fact => {
            report
                .error("bad-label", &token.place, format!("`{}` is a fact of every query: {fact}", token.text))
                .help("choose another label");
            None
        }
    }
}

fn read_encoding(words: &[&Token], option: &Line, report: &mut Report) -> Option<Encoding> {
    match words {
        [] => Some(Encoding::WHOLE),
        [kind] => read_kind(kind, report),
        [kind, length, start, end] => {
            let kind_read = read_kind(kind, report)?;
            read_piece(kind_read, kind, [length, start, end], report)
        }
        _ => {
            report
                .error("missing-argument", option.place(), "a piece of an option has a length, a start and an end")
                .help("write `hex LENGTH START END`, like `hex 16 0 16`");
            None
        }
    }
}

pub(super) fn read_kind(token: &Token, report: &mut Report) -> Option<Encoding> {
    let kinds = [
        ("hex", Encoding::WHOLE),
        ("bytes", Encoding::Bytes),
        ("ip", Encoding::Address),
        ("address", Encoding::Address),
    ];
    report.word(token, &kinds)
}

/// Bytes from a start to an end, of options of one length; 0 is any length, or the end.
pub(super) fn read_piece(kind: Encoding, word: &Token, piece: [&Token; 3], report: &mut Report) -> Option<Encoding> {
    let [length, start, end] = piece.map(|token| (token, report.number(token, 0..=u16::MAX.into())));
    let ((_, Some(size)), (_, Some(first)), (_, Some(last))) = (length, start, end) else { return None };
    if kind != Encoding::WHOLE {
        report
            .error("bad-piece", &word.place, format!("`{}` takes the whole option", word.text))
            .help("only `hex` has a length, a start and an end");
        return None;
    }
    let wrong = if last != 0 && last <= first {
        Some((end.0, format!("the end {last} is not after the start {first}")))
    } else if size != 0 && last > size {
        Some((end.0, format!("the end {last} is past the length {size}")))
    } else if size != 0 && first >= size {
        Some((start.0, format!("the start {first} is past the length {size}")))
    } else {
        None
    };
    if let Some((token, message)) = wrong {
        report
            .error("bad-piece", &token.place, message)
            .help("the end is the last byte's number and one; 0 is the end of the option");
        return None;
    }
    Some(Encoding::Hex { length: (size > 0).then_some(size), start: first, end: (last > 0).then_some(last) })
}
