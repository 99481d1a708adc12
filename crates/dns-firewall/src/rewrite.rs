//! `rewrite`: a question is answered as another one, and the answer is put back. `options` are those of EDNS0 that
//! upstreams are sent.

mod options;

use crate::exchange::Exchange;
use crate::records::{Decoded, encoded, name_text, name_wire};
use namewall_corefile::{self as corefile, FileSpan, OptionRewrite, RewriteChange};
use namewall_dns::wire::{HEADER, Question, RecordType};
use namewall_zones::Record;
use options::Options;
use regex::Regex;
use std::sync::Arc;

/// A rule of a server block.
#[derive(Debug)]
pub(crate) struct Rewrite {
    change: Change,
    continues: bool,
}

#[derive(Debug)]
enum Change {
    Name { from: Matching, to: Arc<str>, is_reverted: bool, answers: Vec<Arc<AnswerChange>> },
    Type { from: u16, to: u16 },
    Class { from: u16, to: u16 },
    Ttl { from: Matching, least: u32, most: u32 },
    Option(OptionRewrite),
    Rcode { from: Matching, old: u8, new: u8 },
    Cname(Arc<CnameChange>),
}

/// Aliases of an answer that lead elsewhere.
#[derive(Debug)]
struct CnameChange {
    from: Matching,
    to: Arc<str>,
}

#[derive(Debug)]
enum Matching {
    Exact(Arc<str>),
    Prefix(Arc<str>),
    Suffix(Arc<str>),
    Substring(Arc<str>),
    Regex(Regex),
}

#[derive(Debug)]
struct AnswerChange {
    is_value: bool,
    from: Regex,
    to: Arc<str>,
}

/// How the records of an answer are put back.
#[derive(Clone, Debug)]
enum Revert {
    /// A name, and names below it.
    Under {
        new: String,
        old: String,
    },
    /// The end of a name.
    End {
        new: Arc<str>,
        old: Arc<str>,
    },
    Regex(Arc<AnswerChange>),
    Ttl {
        least: u32,
        most: u32,
    },
    /// The code of the message, and no record.
    Rcode {
        old: u8,
        new: u8,
    },
}

/// A question as it is answered.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) query: Vec<u8>,
    reverts: Vec<Revert>,
    cnames: Vec<Arc<CnameChange>>,
}

/// A regular expression that cannot be read, with where it stands.
type Wrong = (FileSpan, String);

fn regex(text: &corefile::Text) -> Result<Regex, Wrong> {
    Regex::new(&text.text).map_err(|error| (text.place.clone(), format!("no regular expression: {error}")))
}

/// The regular expression has the groups that its replacement names.
fn has_groups(regex: &Regex, to: &str, place: &FileSpan) -> Result<(), Wrong> {
    match (regex.captures_len()..=100).find(|group| to.contains(&format!("{{{group}}}"))) {
        Some(group) => Err((place.clone(), format!("the regular expression has no group {group}"))),
        None => Ok(()),
    }
}

impl Matching {
    fn new(settings: &corefile::NameMatch) -> Result<Self, Wrong> {
        Ok(match settings {
            corefile::NameMatch::Exact(name) => Self::Exact(name.clone()),
            corefile::NameMatch::Prefix(name) => Self::Prefix(name.clone()),
            corefile::NameMatch::Suffix(name) => Self::Suffix(name.clone()),
            corefile::NameMatch::Substring(name) => Self::Substring(name.clone()),
            corefile::NameMatch::Regex(text) => Self::Regex(regex(text)?),
        })
    }

    /// The new name, if a name is meant.
    fn replaced(&self, name: &str, to: &str) -> Option<String> {
        match self {
            Self::Exact(from) => (name == &**from).then(|| to.to_owned()),
            Self::Prefix(from) => name.strip_prefix(&**from).map(|rest| format!("{to}{rest}")),
            Self::Suffix(from) => name.strip_suffix(&**from).map(|rest| format!("{rest}{to}")),
            Self::Substring(from) => name.contains(&**from).then(|| name.replace(&**from, to)),
            Self::Regex(regex) => filled(regex, name, to),
        }
    }
}

/// A replacement with its groups, `{0}` and so on, if a text matches.
fn filled(regex: &Regex, text: &str, to: &str) -> Option<String> {
    let captures = regex.captures(text)?;
    let mut filled = to.to_owned();
    for (group, found) in captures.iter().enumerate() {
        filled = filled.replace(&format!("{{{group}}}"), found.map_or("", |found| found.as_str()));
    }
    Some(filled)
}

impl Rewrite {
    pub(crate) fn new(settings: &corefile::Rewrite) -> Result<Self, Wrong> {
        let change = match &settings.change {
            RewriteChange::Name { from, to, is_reverted, answers } => {
                let answers = answers.iter().map(|answer| {
                    let from = regex(&answer.from)?;
                    has_groups(&from, &answer.to, &answer.from.place)?;
                    Ok(Arc::new(AnswerChange { is_value: answer.is_value, from, to: answer.to.clone() }))
                });
                let from = Matching::new(from)?;
                if let Matching::Regex(regex) = &from {
                    has_groups(regex, to, &settings.place)?;
                }
                let answers = answers.collect::<Result<_, Wrong>>()?;
                Change::Name { from, to: to.clone(), is_reverted: *is_reverted, answers }
            }
            RewriteChange::Type { from, to } => Change::Type { from: *from, to: *to },
            RewriteChange::Class { from, to } => Change::Class { from: *from, to: *to },
            RewriteChange::Ttl { from, least, most } => {
                Change::Ttl { from: Matching::new(from)?, least: *least, most: *most }
            }
            RewriteChange::Option(option) => Change::Option(option.clone()),
            RewriteChange::Rcode { from, old, new } => {
                Change::Rcode { from: Matching::new(from)?, old: *old as u8, new: *new as u8 }
            }
            RewriteChange::Cname { from, to } => {
                let from = Matching::new(from)?;
                if let Matching::Regex(regex) = &from {
                    has_groups(regex, to, &settings.place)?;
                }
                Change::Cname(Arc::new(CnameChange { from, to: to.clone() }))
            }
        };
        Ok(Self { change, continues: settings.continues })
    }
}

/// The question as it is answered, if a rule is for it. An error is a name that is none, or options that do not fit.
pub(crate) fn rewritten(rules: &[Rewrite], exchange: &Exchange) -> Option<Result<Rewritten, ()>> {
    let (query, question) = (exchange.query(), &exchange.question);
    let changes_options = rules.iter().any(|rule| matches!(rule.change, Change::Option(_)));
    let mut options = match changes_options.then(|| Options::of(query)).transpose() {
        Ok(options) => options,
        Err(()) => return Some(Err(())),
    };
    let mut cnames = Vec::new();
    let mut name = name_text(question.name.as_bytes());
    let (mut kind, mut class) = (question.record_type.0, question.class);
    let (mut reverts, mut is_done) = (Vec::new(), false);
    for rule in rules {
        let matches = match &rule.change {
            Change::Name { from, to, is_reverted, answers } => from.replaced(&name, to).map(|new| {
                if *is_reverted {
                    reverts.push(match from {
                        Matching::Suffix(suffix) => Revert::End { new: to.clone(), old: suffix.clone() },
                        _ => Revert::Under { new: new.clone(), old: name.clone() },
                    });
                }
                reverts.extend(answers.iter().cloned().map(Revert::Regex));
                name = new;
            }),
            Change::Type { from, to } => (kind == *from).then(|| kind = *to),
            Change::Class { from, to } => (class == *from).then(|| class = *to),
            Change::Ttl { from, least, most } => from.replaced(&name, "").map(|_| {
                reverts.push(Revert::Ttl { least: *least, most: *most });
            }),
            Change::Option(option) => {
                let question = options::Question { name: &name, kind };
                options.as_mut().and_then(|options| options.apply(option, exchange, question))
            }
            Change::Rcode { from, old, new } => from.replaced(&name, "").map(|_| {
                reverts.push(Revert::Rcode { old: *old, new: *new });
            }),
            // Which aliases are meant is seen in the answer.
            Change::Cname(change) => {
                cnames.push(change.clone());
                Some(())
            }
        };
        is_done |= matches.is_some();
        if matches.is_some() && !rule.continues {
            break;
        }
    }
    is_done.then(|| {
        let wire = name_wire(&name).ok_or(())?;
        let end = Question::end(query).map_err(|_| ())?;
        let (before, after) = (query.get(..HEADER).ok_or(())?, query.get(end..).unwrap_or_default());
        let query = [before, &wire, &kind.to_be_bytes(), &class.to_be_bytes(), after].concat();
        let query = match &options {
            Some(options) => options.written(query)?,
            None => query,
        };
        Ok(Rewritten { query, reverts, cnames })
    })
}

impl Rewritten {
    /// An answer to the new question as one to the old.
    pub(crate) fn reverted(&self, query: &[u8], answer: &[u8]) -> Option<Vec<u8>> {
        let mut decoded = Decoded::read(answer).ok()?;
        let sections = [&mut decoded.answer, &mut decoded.authority, &mut decoded.additional];
        for record in sections.into_iter().flatten() {
            for revert in self.reverts.iter().rev() {
                revert.apply(record)?;
            }
        }
        let mut message = encoded(query, answer, &decoded);
        for revert in self.reverts.iter().rev() {
            if let (Revert::Rcode { old, new }, Some(flags)) = (revert, message.get_mut(3))
                && *flags & 0x0f == *old
            {
                *flags = *flags & 0xf0 | new;
            }
        }
        Some(message)
    }

    /// The first alias of an answer that leads elsewhere: the records up to it, which then lead to a new name.
    pub(crate) fn led_elsewhere(&self, answer: &[u8]) -> Option<(Vec<Record>, Vec<u8>)> {
        if self.cnames.is_empty() {
            return None;
        }
        let mut before = Vec::new();
        for mut record in Decoded::read(answer).ok()?.answer {
            if record.kind != RecordType::CNAME {
                continue;
            }
            let target = name_text(&record.data);
            let new = self.cnames.iter().rev().find_map(|change| change.from.replaced(&target, &change.to));
            // A name that leads to itself, or to what is none, stays as it is.
            let new = new.filter(|new| *new != target).and_then(|new| name_wire(&new));
            if let Some(new) = new {
                record.data.clone_from(&new);
                before.push(record);
                return Some((before, new));
            }
            before.push(record);
        }
        None
    }
}

impl Revert {
    /// None if what comes of it is no name.
    fn apply(&self, record: &mut Record) -> Option<()> {
        match self {
            Self::Ttl { least, most } => record.ttl = record.ttl.clamp(*least, *most),
            Self::Rcode { .. } => {}
            Self::Regex(change) => {
                let new = |name: &str| filled(&change.from, name, &change.to);
                if change.is_value { change_value(record, new)? } else { change_owner(record, new)? }
            }
            Self::Under { new, old } => {
                let back = |name: &str| {
                    let before = name.strip_suffix(&**new)?;
                    (before.is_empty() || before.ends_with('.')).then(|| format!("{before}{old}"))
                };
                change_owner(record, back)?;
                change_value(record, back)?;
            }
            Self::End { new, old } => {
                let back = |name: &str| name.strip_suffix(&**new).map(|before| format!("{before}{old}"));
                change_owner(record, back)?;
                change_value(record, back)?;
            }
        }
        Some(())
    }
}

fn change_owner(record: &mut Record, new: impl Fn(&str) -> Option<String>) -> Option<()> {
    if let Some(name) = new(&name_text(&record.owner)) {
        record.owner = name_wire(&name)?;
    }
    Some(())
}

/// Changes the name that a record leads to, if it leads to one.
fn change_value(record: &mut Record, new: impl Fn(&str) -> Option<String>) -> Option<()> {
    let before = match record.kind.0 {
        2 | 5 | 6 | 12 | 39 => 0,
        15 => 2,
        33 => 6,
        _ => return Some(()),
    };
    let (fixed, rest) = record.data.split_at_checked(before)?;
    let mut end = 0;
    while let Some(length) = rest.get(end).copied().filter(|length| (1..64).contains(length)) {
        end += 1 + usize::from(length);
    }
    let (target, after) = rest.split_at_checked(end + 1)?;
    if let Some(name) = new(&name_text(target)) {
        record.data = [fixed, &name_wire(&name)?, after].concat();
    }
    Some(())
}
