//! `template CLASS TYPE [ZONE…] { … }`: answers that are written by the query.

use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::{FileSpan, Rcode, Text, Zone};
use std::sync::Arc;

pub(crate) const TEMPLATE: Form = many("template", "CLASS TYPE [ZONE…] { … }", 2, ANY);

/// An option of `template`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TemplateOption {
    Match,
    Answer,
    Additional,
    Authority,
    Rcode,
    ExtendedError,
    Fallthrough,
}

const OPTIONS: Words<TemplateOption> = Words {
    served: &[
        (TemplateOption::Match, many("match", "REGEXP…", 1, ANY)),
        (TemplateOption::Answer, many("answer", "RECORD", 1, ANY)),
        (TemplateOption::Additional, many("additional", "RECORD", 1, ANY)),
        (TemplateOption::Authority, many("authority", "RECORD", 1, ANY)),
        (TemplateOption::Rcode, once("rcode", "RCODE", 1, 1)),
        (TemplateOption::ExtendedError, once("ederror", "CODE [REASON]", 1, 2)),
        (TemplateOption::Fallthrough, once("fallthrough", "[ZONE…]", 0, ANY)),
    ],
    not_served: &[],
};

const CLASSES: [(&str, Option<u16>); 5] =
    [("IN", Some(1)), ("CH", Some(3)), ("HS", Some(4)), ("NONE", Some(254)), ("ANY", None)];

/// Types by name that are asked for often; others are `TYPE` and a number.
const TYPES: [(&str, Option<u16>); 22] = [
    ("A", Some(1)),
    ("AAAA", Some(28)),
    ("ANY", None),
    ("CAA", Some(257)),
    ("CNAME", Some(5)),
    ("DNAME", Some(39)),
    ("DNSKEY", Some(48)),
    ("DS", Some(43)),
    ("HINFO", Some(13)),
    ("HTTPS", Some(65)),
    ("LOC", Some(29)),
    ("MX", Some(15)),
    ("NAPTR", Some(35)),
    ("NS", Some(2)),
    ("PTR", Some(12)),
    ("SOA", Some(6)),
    ("SPF", Some(99)),
    ("SRV", Some(33)),
    ("SSHFP", Some(44)),
    ("SVCB", Some(64)),
    ("TLSA", Some(52)),
    ("TXT", Some(16)),
];

#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    /// None is any.
    pub class: Option<u16>,
    pub kind: Option<u16>,
    /// Empty is all of the server's.
    pub zones: Vec<Zone>,
    /// Regular expressions on the name asked for; none matches all.
    pub matches: Vec<Text>,
    /// Records, with `{{ .Name }}` and the like in them.
    pub answer: Vec<Text>,
    pub additional: Vec<Text>,
    pub authority: Vec<Text>,
    pub rcode: Rcode,
    /// RFC 8914
    pub extended_error: Option<(u16, Arc<str>)>,
    pub fallthrough: Vec<Zone>,
    pub place: FileSpan,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Option<Template> {
    let class = report.word(&line.args[0], &CLASSES)?;
    let kind = kind(&line.args[1], report)?;
    let mut template = Template {
        class,
        kind,
        zones: report.zones(&line.args[2..]),
        matches: Vec::new(),
        answer: Vec::new(),
        additional: Vec::new(),
        authority: Vec::new(),
        rcode: Rcode(0),
        extended_error: None,
        fallthrough: Vec::new(),
        place: line.place().clone(),
    };
    let mut has_reply = false;
    for (key, option) in report.options(line, &OPTIONS) {
        has_reply |= matches!(key, TemplateOption::Answer | TemplateOption::Rcode);
        match key {
            TemplateOption::Match => template.matches.extend(option.args.iter().map(Token::content)),
            TemplateOption::Answer => template.answer.extend(option.text_from(0)),
            TemplateOption::Additional => template.additional.extend(option.text_from(0)),
            TemplateOption::Authority => template.authority.extend(option.text_from(0)),
            TemplateOption::Rcode => template.rcode = report.rcode(&option.args[0]).unwrap_or(template.rcode),
            TemplateOption::ExtendedError => {
                let reason = option.args.get(1).map_or_else(|| Arc::from(""), |word| word.text.clone());
                let code = report.number(&option.args[0], 0..=u16::MAX.into());
                template.extended_error = code.and_then(|code| u16::try_from(code).ok()).map(|code| (code, reason));
            }
            TemplateOption::Fallthrough => template.fallthrough = report.fallthrough(&option.args),
        }
    }
    if !has_reply {
        report
            .error("no-reply", line.place(), "this template says nothing")
            .help("add `answer RECORD` or `rcode RCODE`, like `rcode NXDOMAIN`");
    }
    Some(template)
}

fn kind(word: &Token, report: &mut Report) -> Option<Option<u16>> {
    let number = word.text.get(4..).filter(|_| word.text.to_ascii_uppercase().starts_with("TYPE"));
    match number.and_then(|number| number.parse().ok()) {
        Some(number) => Some(Some(number)),
        None => report.word(word, &TYPES),
    }
}
