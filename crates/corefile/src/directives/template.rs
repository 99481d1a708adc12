//! `template CLASS TYPE [ZONE…] { … }`: answers that are written by the query.

use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::{FileSpan, Rcode, Text, Zone};
use namewall_policy::dns_codes::{CLASSES, TYPES};
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

/// The class or the type that stands for all of them.
const ANY_CODE: u16 = 255;

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
    let not_any = |code: u16| (code != ANY_CODE).then_some(code);
    let class = report.code(&line.args[0], &CLASSES).map(not_any)?;
    let kind = report.code(&line.args[1], &TYPES).map(not_any)?;
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
