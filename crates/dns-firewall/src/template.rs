//! `template`: answers written by the question. Of Go's templates there is what such answers are made of; the rest is
//! refused when the Corefile is read.

use crate::message::{is_under, text_of};
use crate::reply::{self, Sections};
use namewall_corefile::{self as corefile, FileSpan, Text, Zone};
use namewall_dns::Asked;
use namewall_dns::wire::{Question, Rcode, RecordType, reply as plain};
use namewall_policy::dns_codes::CLASSES;
use namewall_zones::{Record, parse_one};
use regex::{Captures, Regex};
use std::sync::Arc;

/// What may stand between braces.
const USAGE: &str = "there are `.Name`, `.Zone`, `.Class`, `.Type`, `.Remote`, `.Group.NAME`, `index .Match NUMBER` \
                     and `parseInt .Group.NAME BASE BITS`";

#[derive(Debug)]
pub(crate) struct Template {
    class: Option<u16>,
    kind: Option<u16>,
    zones: Vec<Zone>,
    matches: Vec<Regex>,
    answer: Vec<Line>,
    authority: Vec<Line>,
    additional: Vec<Line>,
    rcode: Rcode,
    extended_error: Option<(u16, Arc<str>)>,
    fallthrough: Vec<Zone>,
}

/// A record in pieces.
type Line = Vec<Piece>;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(String),
    Field(Field),
    /// A number in some base that has no more than so many bits, in decimal.
    Number(Field, u32, u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Field {
    Name,
    Zone,
    Class,
    Type,
    Remote,
    Group(String),
    Match(usize),
}

/// What fields are filled with.
struct Filling<'a> {
    asked: &'a Asked<'a>,
    question: &'a Question,
    name: &'a str,
    zone: &'a Zone,
    captures: Option<Captures<'a>>,
}

/// A part that cannot be read, with where it stands.
type Wrong = (FileSpan, String);

impl Template {
    pub(crate) fn new(settings: &corefile::Template, zones: impl FnOnce() -> Vec<Zone>) -> Result<Self, Wrong> {
        let mut matches = Vec::new();
        for text in &settings.matches {
            let regex = Regex::new(&text.text);
            matches.push(regex.map_err(|error| (text.place.clone(), format!("no regular expression: {error}")))?);
        }
        let lines = |texts: &[Text]| texts.iter().map(|text| line(text, &matches)).collect::<Result<Vec<_>, _>>();
        let (answer, authority) = (lines(&settings.answer)?, lines(&settings.authority)?);
        let additional = lines(&settings.additional)?;
        let rcode = u8::try_from(settings.rcode.0).ok().filter(|code| *code < 16).map(Rcode);
        let rcode = rcode.ok_or_else(|| {
            (settings.place.clone(), format!("code {} needs EDNS0; codes up to 15 are served", settings.rcode.0))
        })?;
        Ok(Self {
            class: settings.class,
            kind: settings.kind,
            zones: if settings.zones.is_empty() { zones() } else { settings.zones.clone() },
            matches,
            answer,
            authority,
            additional,
            rcode,
            extended_error: settings.extended_error.clone(),
            fallthrough: settings.fallthrough.clone(),
        })
    }

    /// None if it is not for the question, or has nothing to say and lets others.
    pub(crate) fn answer(&self, asked: &Asked<'_>, question: &Question) -> Option<Vec<u8>> {
        let fitting = self.zones.iter().filter(|zone| is_under(&question.name, zone));
        let zone = fitting.max_by_key(|zone| zone.depth())?;
        let is_meant = |own: Option<u16>, asked: u16| own.is_none_or(|own| own == asked);
        // As with CoreDNS, a question for all types is for every template.
        let is_kind = is_meant(self.kind, question.record_type.0) || question.record_type == RecordType::ANY;
        if !is_meant(self.class, question.class) || !is_kind {
            return None;
        }
        let name = text_of(&question.name);
        let captures = self.matches.iter().find_map(|regex| regex.captures(&name));
        let failure = || Some(plain::failure(asked.query, Rcode::SERV_FAIL));
        if captures.is_none() && !self.matches.is_empty() {
            let goes_on = self.fallthrough.iter().any(|zone| is_under(&question.name, zone));
            return if goes_on { None } else { failure() };
        }
        let filling = Filling { asked, question, name: &name, zone, captures };
        let records = |lines: &[Line]| lines.iter().map(|line| filling.record(line)).collect::<Option<Vec<_>>>();
        let (Some(answer), Some(authority), Some(additional)) =
            (records(&self.answer), records(&self.authority), records(&self.additional))
        else {
            // What came of the question is no record.
            return failure();
        };
        let sections =
            Sections { answer: &answer, authority: &authority, additional: &additional, is_elsewhere: false };
        let message = reply::with_records(asked.query, self.rcode, sections);
        Some(match &self.extended_error {
            Some((code, reason)) => reply::explained(message, *code, reason),
            None => message,
        })
    }
}

impl Filling<'_> {
    fn record(&self, line: &Line) -> Option<Record> {
        let mut text = String::new();
        for piece in line {
            match piece {
                Piece::Text(own) => text.push_str(own),
                Piece::Field(field) => text.push_str(&escaped(&self.value(field))?),
                Piece::Number(field, base, bits) => {
                    let number = u64::from_str_radix(&self.value(field), *base).ok()?;
                    if *bits < 64 && number >> bits != 0 {
                        return None;
                    }
                    text.push_str(&number.to_string());
                }
            }
        }
        parse_one(&text).ok()
    }

    fn value(&self, field: &Field) -> String {
        let captured = |found: Option<regex::Match<'_>>| found.map_or_else(String::new, |one| one.as_str().to_owned());
        match (field, &self.captures) {
            (Field::Name, _) => self.name.to_owned(),
            (Field::Zone, _) => self.zone.to_string(),
            (Field::Class, _) => CLASSES.text(self.question.class).into_owned(),
            (Field::Type, _) => self.question.record_type.to_string(),
            (Field::Remote, _) => self.asked.client.ip().to_canonical().to_string(),
            (Field::Group(name), Some(captures)) => captured(captures.name(name)),
            (Field::Match(at), Some(captures)) => captured(captures.get(*at)),
            // Without an expression everything matches, as a whole.
            (Field::Match(_), None) => self.name.to_owned(),
            (Field::Group(_), None) => String::new(),
        }
    }
}

/// What came from a question must not be taken for syntax: it stays one word.
fn escaped(value: &str) -> Option<String> {
    let mut text = String::with_capacity(value.len());
    let mut is_escape = false;
    for letter in value.chars() {
        if !is_escape && matches!(letter, '"' | ';' | '(' | ')' | '@' | '$') {
            text.push('\\');
        }
        is_escape = letter == '\\' && !is_escape;
        text.push(letter);
    }
    // Half of an escape would take what follows along.
    (!is_escape).then_some(text)
}

/// Reads a record with fields. One without any can be tried at once.
fn line(text: &Text, matches: &[Regex]) -> Result<Line, Wrong> {
    let wrong = |message: String| (text.place.clone(), message);
    let (mut pieces, mut rest) = (Vec::new(), &*text.text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after.split_once("}}").ok_or_else(|| wrong("`{{` is not closed".to_owned()))?;
        pieces.push(Piece::Text(before.to_owned()));
        let piece = piece(inside).ok_or_else(|| wrong(format!("`{{{{{inside}}}}}` is not filled in here; {USAGE}")))?;
        let (Piece::Field(field) | Piece::Number(field, ..)) = &piece else { return Err(wrong(USAGE.to_owned())) };
        let is_there = match field {
            Field::Group(name) => matches.iter().any(|regex| regex.capture_names().flatten().any(|own| own == name)),
            Field::Match(at) => *at == 0 || matches.iter().any(|regex| regex.captures_len() > *at),
            _ => true,
        };
        if !is_there {
            return Err(wrong(format!("no `match` has the group of `{{{{{inside}}}}}`")));
        }
        pieces.push(piece);
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    if let [Piece::Text(record)] = &pieces[..] {
        parse_one(record).map_err(wrong)?;
    }
    Ok(pieces)
}

fn piece(inside: &str) -> Option<Piece> {
    let words: Vec<&str> = inside.split_whitespace().collect();
    let number = |word: &str, most: u32| word.parse().ok().filter(|number| *number <= most);
    match &words[..] {
        ["parseInt", field, base, bits] => {
            let base = number(base, 36).filter(|base| *base >= 2)?;
            Some(Piece::Number(
                plain_field(field)?,
                base,
                number(bits, 64).map(|bits| if bits == 0 { 64 } else { bits })?,
            ))
        }
        ["index", ".Match", at] => Some(Piece::Field(Field::Match(at.parse().ok()?))),
        ["index", ".Group", name] => {
            let name = name.strip_prefix('"')?.strip_suffix('"')?;
            Some(Piece::Field(Field::Group(name.to_owned())))
        }
        [field] => plain_field(field).map(Piece::Field),
        _ => None,
    }
}

fn plain_field(word: &str) -> Option<Field> {
    Some(match word {
        ".Name" => Field::Name,
        ".Zone" => Field::Zone,
        ".Class" => Field::Class,
        ".Type" => Field::Type,
        ".Remote" => Field::Remote,
        _ => Field::Group(word.strip_prefix(".Group.").filter(|name| !name.is_empty())?.to_owned()),
    })
}
