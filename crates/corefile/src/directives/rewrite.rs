//! `rewrite [stop|continue] FIELD …`: questions that are answered as others.

mod edns0;

pub use edns0::{OptionAction, OptionData, OptionRewrite};

use crate::form::{ANY, Form, many};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::{FileSpan, Text};
use namewall_policy::dns_codes::{CLASSES, RCODES, TYPES};
use std::sync::Arc;

pub(crate) const REWRITE: Form = many("rewrite", "[stop|continue] name|type|class|ttl|edns0|rcode|cname …", 0, ANY);

#[derive(Clone, PartialEq, Debug)]
pub struct Rewrite {
    pub change: RewriteChange,
    /// Whether later rules are looked at after this one has matched.
    pub continues: bool,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub enum RewriteChange {
    Name {
        from: NameMatch,
        to: Arc<str>,
        /// Whether names in the answer that are under the new name are put back under the old one.
        is_reverted: bool,
        answers: Vec<AnswerRewrite>,
    },
    Type {
        from: u16,
        to: u16,
    },
    Class {
        from: u16,
        to: u16,
    },
    /// TTLs of the answer are at least and at most this long.
    Ttl {
        from: NameMatch,
        least: u32,
        most: u32,
    },
    /// What upstreams are told beside the question.
    Option(OptionRewrite),
    /// The code of the answer, for names that are meant.
    Rcode {
        from: NameMatch,
        old: u16,
        new: u16,
    },
    /// An alias in the answer whose target is meant leads elsewhere, and its new target is looked up.
    Cname {
        from: NameMatch,
        to: Arc<str>,
    },
}

/// Which names are meant. Names are in lower case, and end with a dot.
#[derive(Clone, PartialEq, Debug)]
pub enum NameMatch {
    Exact(Arc<str>),
    Prefix(Arc<str>),
    Suffix(Arc<str>),
    Substring(Arc<str>),
    Regex(Text),
}

/// A change of records of the answer.
#[derive(Clone, PartialEq, Debug)]
pub struct AnswerRewrite {
    /// The name that a record leads to, and not its owner's.
    pub is_value: bool,
    pub from: Text,
    pub to: Arc<str>,
}

const NAME_USAGE: &str =
    "write `rewrite name [exact|prefix|suffix|substring|regex] FROM TO [answer auto|name|value …]`";

pub(crate) fn read(line: &Line, report: &mut Report) -> Option<Rewrite> {
    // The words may stand in a block, each line of which goes on with them.
    let mut words: Vec<&Token> = line.args.iter().collect();
    for inner in line.lines() {
        words.push(&inner.name);
        words.extend(&inner.args);
    }
    let mut rest = &words[..];
    let mut continues = false;
    if let Some((first, after)) = rest.split_first()
        && matches!(&*first.text.to_ascii_lowercase(), "stop" | "continue")
    {
        continues = first.text.eq_ignore_ascii_case("continue");
        rest = after;
    }
    let Some((field, args)) = rest.split_first() else {
        report.error("missing-argument", line.place(), "`rewrite` needs a field").help(NAME_USAGE);
        return None;
    };
    let change = match &*field.text.to_ascii_lowercase() {
        "name" => name(field, args, report),
        "type" => pair(field, args, report).and_then(|[from, to]| {
            Some(RewriteChange::Type { from: report.code(from, &TYPES)?, to: report.code(to, &TYPES)? })
        }),
        "class" => pair(field, args, report).and_then(|[from, to]| {
            Some(RewriteChange::Class { from: report.code(from, &CLASSES)?, to: report.code(to, &CLASSES)? })
        }),
        "ttl" => ttl(field, args, report),
        "edns0" => edns0::read(field, args, report).map(RewriteChange::Option),
        "cname" => cname(field, args, report),
        "rcode" => rcode(field, args, report),
        "answer" => not_served(field, "write it behind a name: `rewrite name FROM TO answer name FROM TO`", report),
        _ => {
            let words = ["name", "type", "class", "ttl", "edns0", "rcode", "cname"].map(|word| (word, ()));
            report.word(field, &words);
            None
        }
    };
    change.map(|change| Rewrite { change, continues, place: line.place().clone() })
}

fn not_served(field: &Token, instead: &str, report: &mut Report) -> Option<RewriteChange> {
    let what = format!("`rewrite {}` is CoreDNS', and not served here", field.text);
    report.error("not-served", &field.place, what).help(instead);
    None
}

fn pair<'w>(field: &Token, args: &[&'w Token], report: &mut Report) -> Option<[&'w Token; 2]> {
    let [from, to] = args else {
        report
            .error("missing-argument", &field.place, format!("`rewrite {}` has two words behind it", field.text))
            .help(format!("write `rewrite {} FROM TO`", field.text));
        return None;
    };
    Some([from, to])
}

/// As CoreDNS writes names: in lower case, with a dot at the end.
fn whole(text: &str) -> Arc<str> {
    let lower = text.to_ascii_lowercase();
    if lower.ends_with('.') { lower.into() } else { format!("{lower}.").into() }
}

/// No name has two dots in a row: nobody could ask for it.
fn no_empty_label(word: &Token, report: &mut Report) {
    if word.text.contains("..") {
        let what = format!("`{}` has an empty label", word.text);
        report.error("bad-name", &word.place, what).help("write one dot between two labels");
    }
}

fn text_of(word: &Token) -> Text {
    Text { text: word.text.clone(), place: word.place.clone() }
}

/// Which names, and the words behind.
fn from<'a, 'w>(field: &Token, args: &'a [&'w Token], report: &mut Report) -> Option<(NameMatch, &'a [&'w Token])> {
    let short = |report: &mut Report| {
        report
            .error("missing-argument", &field.place, format!("`rewrite {}` needs more words", field.text))
            .help(NAME_USAGE);
    };
    let [first, second, rest @ ..] = args else {
        short(report);
        return None;
    };
    // Two words alone are an exact name.
    if rest.is_empty() {
        no_empty_label(first, report);
        return Some((NameMatch::Exact(whole(&first.text)), &args[1..]));
    }
    if !first.text.eq_ignore_ascii_case("regex") {
        no_empty_label(second, report);
    }
    let text = whole(&second.text);
    let chosen = match &*first.text.to_ascii_lowercase() {
        "exact" => NameMatch::Exact(text),
        "prefix" => NameMatch::Prefix(text),
        "suffix" => NameMatch::Suffix(text),
        "substring" => NameMatch::Substring(text),
        "regex" => NameMatch::Regex(text_of(second)),
        _ => {
            let words = [("exact", ()), ("prefix", ()), ("suffix", ()), ("substring", ()), ("regex", ())];
            report.word(first, &words);
            return None;
        }
    };
    Some((chosen, rest))
}

fn name(field: &Token, args: &[&Token], report: &mut Report) -> Option<RewriteChange> {
    let (from, rest) = from(field, args, report)?;
    let (to, mut rest) = rest.split_first()?;
    no_empty_label(to, report);
    // As with CoreDNS, the answer to an exact name is always put back.
    let mut is_reverted = matches!(from, NameMatch::Exact(_));
    let mut answers: Vec<AnswerRewrite> = Vec::new();
    let mut is_first = true;
    while let Some((word, after)) = rest.split_first() {
        let after = match &*word.text {
            "answer" => after,
            // Further changes need not say it again.
            "auto" | "name" | "value" if !is_first => rest,
            _ => {
                report.error("extra-argument", &word.place, "only `answer` may follow the new name").help(NAME_USAGE);
                return None;
            }
        };
        is_first = false;
        match after {
            [word, after @ ..] if &*word.text == "auto" => (is_reverted, rest) = (true, after),
            [word, from, to, after @ ..] if matches!(&*word.text, "name" | "value") => {
                let is_value = &*word.text == "value";
                answers.push(AnswerRewrite { is_value, from: text_of(from), to: whole(&to.text) });
                rest = after;
            }
            _ => {
                report
                    .error("missing-argument", &word.place, "`answer` is followed by what it changes")
                    .help("write `answer auto`, `answer name FROM TO` or `answer value FROM TO`");
                return None;
            }
        }
    }
    let is_explicit = answers.iter().any(|answer| !answer.is_value);
    if is_reverted && is_explicit && !matches!(from, NameMatch::Exact(_)) {
        report
            .error("bad-word", &field.place, "`answer auto` and `answer name` both change the names of records")
            .help("remove one of them");
    }
    Some(RewriteChange::Name { from, to: whole(&to.text), is_reverted, answers })
}

/// `[exact|…] NAME FROM TO`, with codes by name or number.
fn rcode(field: &Token, args: &[&Token], report: &mut Report) -> Option<RewriteChange> {
    let (name, [old, new]) = match args {
        [name @ .., old, new] if matches!(name.len(), 1 | 2) => (name, [old, new]),
        _ => {
            report
                .error("missing-argument", &field.place, "`rewrite rcode` has a name and two codes behind it")
                .help("write `rewrite rcode [exact|prefix|suffix|substring|regex] NAME FROM TO`");
            return None;
        }
    };
    let from = match name {
        [name] => {
            no_empty_label(name, report);
            NameMatch::Exact(whole(&name.text))
        }
        // One word more than a name stands where `from` looks for what follows.
        _ => from(field, &args[..args.len() - 1], report)?.0,
    };
    // The upper bits of longer codes are EDNS0's, and no answer of a forwarder has them.
    let mut code = |word: &Token| {
        let code = match word.text.parse() {
            Ok(number) => number,
            Err(_) => report.code(word, &RCODES)?,
        };
        if code > 15 {
            let what = format!("`{}` is a code of EDNS0, which `rewrite rcode` does not change", word.text);
            report.error("bad-word", &word.place, what).help("write a code up to 15, like `NXDOMAIN`");
            return None;
        }
        Some(code)
    };
    let (old, new) = (code(old), code(new));
    Some(RewriteChange::Rcode { from, old: old?, new: new? })
}

/// `[exact|…] FROM TO`. As with CoreDNS, only exact names get a dot at the end by themselves.
fn cname(field: &Token, args: &[&Token], report: &mut Report) -> Option<RewriteChange> {
    let (kind, [old, new]) = match args {
        [old, new] => ("exact", [old, new]),
        [kind, old, new] => (&*kind.text, [old, new]),
        _ => {
            report
                .error("missing-argument", &field.place, "`rewrite cname` has an old and a new target behind it")
                .help("write `rewrite cname [exact|prefix|suffix|substring|regex] FROM TO`");
            return None;
        }
    };
    let lower = |word: &Token| -> Arc<str> { word.text.to_ascii_lowercase().into() };
    let (from, to) = match &*kind.to_ascii_lowercase() {
        "exact" => (NameMatch::Exact(whole(&old.text)), whole(&new.text)),
        "prefix" => (NameMatch::Prefix(lower(old)), lower(new)),
        "suffix" => (NameMatch::Suffix(lower(old)), lower(new)),
        "substring" => (NameMatch::Substring(lower(old)), lower(new)),
        "regex" => (NameMatch::Regex(Text { text: lower(old), place: old.place.clone() }), lower(new)),
        _ => {
            report.word(args[0], &["exact", "prefix", "suffix", "substring", "regex"].map(|word| (word, ())));
            return None;
        }
    };
    Some(RewriteChange::Cname { from, to })
}

fn ttl(field: &Token, args: &[&Token], report: &mut Report) -> Option<RewriteChange> {
    let (from, rest) = from(field, args, report)?;
    let [word] = rest else {
        report
            .error("missing-argument", &field.place, "`rewrite ttl` ends with a number of seconds")
            .help("write `rewrite ttl [exact|…] NAME SECONDS` or `… LEAST-MOST`");
        return None;
    };
    let number = |text: &str, or: u32| if text.is_empty() { Some(or) } else { text.parse().ok() };
    let read = match word.text.split_once('-') {
        Some((least, most)) => number(least, 0).zip(number(most, i32::MAX as u32)),
        None => word.text.parse().ok().map(|ttl| (ttl, ttl)),
    };
    match read.filter(|(least, most)| least <= most && *most <= i32::MAX as u32 && &*word.text != "-") {
        Some((least, most)) => Some(RewriteChange::Ttl { from, least, most }),
        None => {
            report
                .error("bad-word", &word.place, format!("`{}` is no TTL", word.text))
                .help("write seconds, like `30`, or a range, like `30-300`");
            None
        }
    }
}
