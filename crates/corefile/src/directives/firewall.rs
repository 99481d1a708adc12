//! `firewall [ZONE…] query|response { RULES }`: the lists of rules. What stands after an action is read by the
//! language of expressions.

use super::decision::OUTCOMES;
use crate::form::{ANY, Form, many, one_of};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::suggest::nearest;
use crate::{FileSpan, Text, Zone};
use namewall_expression::{Expression, Outcome};
use namewall_policy::domain::DomainName;
use std::sync::Arc;

pub(crate) const FIREWALL: Form = many("firewall", "[ZONE…] query|response { … }", 1, ANY);

/// What a rule with an expression can say.
const ACTIONS: [&str; 8] = ["permit", "deny", "allow", "block", "refuse", "drop", "log", "redirect"];
const OPTIONS: [&str; 3] = ["default", "passthrough", "debug_query_suffix"];
const ENGINES: [&str; 4] = ["opa", "themis", "kubernetes", "expression"];

/// A list of rules.
#[derive(Clone, PartialEq, Debug)]
pub struct Firewall {
    pub point: Point,
    pub written: Written,
    pub rules: Vec<Rule>,
    /// What counts at the end of the list, where it is said; see [`Firewall::at_end`].
    pub default: Option<Outcome>,
    /// The line that says so.
    pub default_text: Option<Text>,
    /// Names that pass without a rule.
    pub passthrough: Vec<Zone>,
    /// Queries for `NAME.SUFFIX CH TXT` say how NAME is judged.
    pub debug_query_suffix: Option<DomainName>,
    /// Whether every result is logged.
    pub log: bool,
    /// Its first line, as written.
    pub text: Arc<str>,
    pub place: FileSpan,
}

/// Where a list is asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Point {
    Query,
    Response,
}

/// Which of the two forms a list is written in: they differ in what the end of a list and `drop` mean
/// (S9.1, S9.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Written {
    /// `firewall ZONE query`, for these zones.
    Seed(Vec<Zone>),
    /// `firewall query`, for all that its server has.
    Shipped,
}

impl Firewall {
    /// What counts if no rule said anything (S9.1).
    pub fn at_end(&self) -> Outcome {
        match (self.default, &self.written, self.point) {
            (Some(default), ..) => default,
            (None, Written::Shipped, Point::Response) => Outcome::Allow,
            (None, ..) => Outcome::Block,
        }
    }

    /// Whether `drop` is silence; else it is an answer without data (S9.2).
    pub fn drops_silently(&self) -> bool {
        self.written == Written::Shipped
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    pub kind: RuleKind,
    /// What metrics and logs call it, if not by its place.
    pub name: Option<Arc<str>>,
    /// All of it, as written.
    pub text: Arc<str>,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub enum RuleKind {
    /// What it says if an expression holds.
    Expression {
        /// Never [`Outcome::Undefined`].
        outcome: Outcome,
        /// The word for that: `permit`, where the outcome is to allow.
        action: Arc<str>,
        /// The `expression` directive it names, if it names one.
        engine: Option<Arc<str>>,
        text: Text,
        expression: Arc<Expression>,
    },
    /// What an engine says.
    Engine { kind: EngineKind, name: Arc<str> },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EngineKind {
    Opa,
    Themis,
    /// Kubernetes' own: `kubernetes rbac`.
    Kubernetes,
}

impl EngineKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Opa => "opa",
            Self::Themis => "themis",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// The engines of a server block that rules can name.
pub(crate) struct NamedEngines {
    /// Of `expression`.
    pub(crate) expressions: Vec<Arc<str>>,
    /// Of `opa` and `themis`.
    pub(crate) engines: Vec<(EngineKind, Arc<str>)>,
    pub(crate) has_kubernetes: bool,
}

pub(crate) fn read(line: &Line, known: &NamedEngines, report: &mut Report) -> Option<Firewall> {
    let (last, zones) = line.args.split_last()?;
    let point = report.word(last, &[("query", Point::Query), ("response", Point::Response)])?;
    let zones_read = report.zones(zones);
    let mut firewall = Firewall {
        point,
        written: if zones.is_empty() { Written::Shipped } else { Written::Seed(zones_read) },
        rules: Vec::new(),
        default: None,
        default_text: None,
        passthrough: Vec::new(),
        debug_query_suffix: None,
        log: false,
        text: line.written(),
        place: line.place().clone(),
    };
    if line.block.is_none() {
        report.error("missing-block", line.place(), "a list of rules has a block").help("add `{`, its rules and `}`");
    }
    for rule in line.lines() {
        if !report.is_placeholder(rule) {
            report.no_block(rule);
            firewall.take(rule, known, report);
        }
    }
    Some(firewall)
}

/// Lists of one point without zones are one list, in the order they stand in, as with CoreDNS.
pub(crate) fn merge(lists: Vec<Firewall>, report: &mut Report) -> Vec<Firewall> {
    let mut merged: Vec<Firewall> = Vec::new();
    for list in lists {
        let is_same = |first: &&mut Firewall| {
            first.point == list.point && first.written == Written::Shipped && list.written == Written::Shipped
        };
        match merged.iter_mut().find(is_same) {
            Some(first) => first.add(list, report),
            None => merged.push(list),
        }
    }
    merged
}

impl Firewall {
    /// Goes on with another list.
    fn add(&mut self, other: Self, report: &mut Report) {
        for list in [&*self, &other] {
            if !list.passthrough.is_empty() {
                report
                    .error("two-lists", &list.place, "`passthrough` is for one list, and this one is part of another")
                    .help(format!("write one list: they begin on lines {} and {}", self.place.line, other.place.line));
            }
        }
        match (self.default, other.default) {
            (Some(one), Some(another)) if one != another => {
                let place = other.default_text.as_ref().map_or(&other.place, |text| &text.place);
                report
                    .error("set-twice", place, "a list has one default")
                    .help(format!("the list on line {} goes on here: remove one of them", self.place.line));
            }
            (None, Some(_)) => (self.default, self.default_text) = (other.default, other.default_text),
            _ => {}
        }
        self.rules.extend(other.rules);
        self.debug_query_suffix = self.debug_query_suffix.take().or(other.debug_query_suffix);
        self.log |= other.log;
    }

    fn take(&mut self, line: &Line, known: &NamedEngines, report: &mut Report) {
        let word = &*line.name.text;
        // A block may have an expression engine of this name, as samples of the original form do.
        if word == "rule" && !known.expressions.iter().any(|name| **name == *word) {
            return self.take_named(line, known, report);
        }
        let kind = match (word, &line.args[..]) {
            ("default", args) => return self.set_default(line, args, report),
            ("passthrough", [_, ..]) => return self.passthrough.extend(report.zones(&line.args)),
            ("debug_query_suffix", [suffix]) => return self.debug_query_suffix = report.name(suffix),
            ("log", []) => return self.log = true,
            ("passthrough" | "debug_query_suffix", _) => {
                let usage = if word == "passthrough" { "passthrough SUFFIX…" } else { "debug_query_suffix SUFFIX." };
                report
                    .error("missing-argument", line.place(), format!("`{word}` is not complete"))
                    .help(format!("write `{usage}`"));
                return;
            }
            (word, _) if ACTIONS.contains(&word) => expression(&line.name, line, 0, report),
            ("expression", _) => named_expression(line, known, report),
            (word, _) if known.expressions.iter().any(|name| **name == *word) => {
                action_after(line, 0, report).map(|kind| with_engine(kind, line.name.text.clone()))
            }
            ("opa", _) => engine(EngineKind::Opa, line, known, report),
            ("themis", _) => engine(EngineKind::Themis, line, known, report),
            ("kubernetes", _) => engine(EngineKind::Kubernetes, line, known, report),
            _ => return unknown(line, known, report),
        };
        let (text, place) = (line.written(), line.place().clone());
        self.rules.extend(kind.map(|kind| Rule { kind, name: None, text, place }));
    }

    /// `rule NAME RULE`.
    fn take_named(&mut self, line: &Line, known: &NamedEngines, report: &mut Report) {
        let usage = "write `rule NAME` before a rule, like `rule ads refuse under(name, 'ads.example')`";
        let [name, first, rest @ ..] = &line.args[..] else {
            report.error("missing-argument", line.place(), "`rule` needs a name and a rule").help(usage);
            return;
        };
        let accepted = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if is_reserved(&name.text) || name.text.is_empty() || !name.text.chars().all(accepted) {
            report.error("bad-name", &name.place, format!("`{}` is no name of a rule", name.text)).help(usage);
            return;
        }
        let is_rule = |word: &str| {
            ACTIONS.contains(&word) || ENGINES.contains(&word) || known.expressions.iter().any(|own| **own == *word)
        };
        if !is_rule(&first.text) || &*first.text == "log" && rest.is_empty() {
            report.error("unknown-rule", &first.place, format!("`{}` begins no rule", first.text)).help(usage);
            return;
        }
        let before = self.rules.len();
        self.take(&Line { name: first.clone(), args: rest.to_vec(), block: None }, known, report);
        for rule in &mut self.rules[before..] {
            (rule.name, rule.text, rule.place) = (Some(name.text.clone()), line.written(), line.place().clone());
        }
    }

    fn set_default(&mut self, line: &Line, args: &[Token], report: &mut Report) {
        let [word] = args else {
            report
                .error("missing-argument", line.place(), "`default` is one word")
                .help("write `default allow`, `block`, `refuse` or `drop`");
            return;
        };
        if self.default.is_some() {
            report.error("set-twice", line.place(), "a list has one default").help("remove one of them");
        }
        self.default = report.word(word, &OUTCOMES);
        self.default_text = Some(Text { text: line.written(), place: line.place().clone() });
    }
}

/// The rule of an action, whose expression begins at one of the line's arguments.
fn expression(action: &Token, line: &Line, at: usize, report: &mut Report) -> Option<RuleKind> {
    let (outcome, at) = match &*action.text {
        "redirect" => {
            let Some(to) = line.args.get(at) else {
                report
                    .error("missing-argument", &action.place, "`redirect` needs an address and an expression")
                    .help("write `redirect ADDRESS[:PORT] EXPRESSION`");
                return None;
            };
            (Outcome::Redirect(report.socket(to, 53)?), at + 1)
        }
        "log" => (Outcome::Log, at),
        word => (OUTCOMES.iter().find(|(known, _)| *known == word)?.1, at),
    };
    let Some(text) = line.text_from(at).filter(|text| !text.text.trim().is_empty()) else {
        report.error("missing-argument", &action.place, format!("`{}` needs an expression", action.text)).help(
            match outcome {
                Outcome::Redirect(to) => format!("write `redirect {to} true` for always"),
                _ => format!("write `{} true` for always", action.text),
            },
        );
        return None;
    };
    if let Some(piece) = quoted_piece(line.args.get(at..).unwrap_or_default()) {
        report
            .error("quoted-expression", &piece.place, "a part of an expression is in quotes, and would be a text")
            .help("remove the quotes");
        return None;
    }
    match Expression::parse(&text.text) {
        Ok(expression) => Some(RuleKind::Expression {
            outcome,
            action: action.text.clone(),
            engine: None,
            text,
            expression: Arc::new(expression),
        }),
        Err(error) => {
            let place = text.piece(error.span());
            let help = error.suggestion().unwrap_or("see docs/expressions.md").to_owned();
            report.error("bad-expression", &place, error.message()).help(help);
            None
        }
    }
}

/// A part of an expression in quotes. CoreDNS takes all quotes away before it reads an expression; here
/// they make a text, and a text holds: `true && "false"` would be no, and yes. What is compared with
/// something is meant to be a text.
fn quoted_piece(words: &[Token]) -> Option<&Token> {
    let joins = |word: Option<&Token>| {
        word.is_none_or(|word| matches!(&*word.text, "&&" | "||" | "!" | "(" | ")" | "?" | ":" | "and" | "or" | "not"))
    };
    let operators = ["==", "!=", "=~", "!~", "&&", "||"];
    let is_piece = |(at, word): &(usize, &Token)| {
        let stands_alone = joins(at.checked_sub(1).and_then(|at| words.get(at))) && joins(words.get(at + 1));
        word.is_quoted && (stands_alone || operators.iter().any(|operator| word.text.contains(operator)))
    };
    // A single word in quotes is what is in them, for both.
    (words.len() > 1).then(|| words.iter().enumerate().find(is_piece).map(|(_, word)| word)).flatten()
}

/// Whether a word has a meaning of its own at the beginning of a rule.
pub(crate) fn is_reserved(word: &str) -> bool {
    ACTIONS.contains(&word) || OPTIONS.contains(&word) || ENGINES.contains(&word)
}

/// The rule after an engine's name: an action, then its expression.
fn action_after(line: &Line, at: usize, report: &mut Report) -> Option<RuleKind> {
    let Some(action) = line.args.get(at) else {
        report
            .error("missing-argument", line.place(), "an expression needs an action before it")
            .help(format!("write {}", one_of(ACTIONS.into_iter())));
        return None;
    };
    report.word(action, &ACTIONS.map(|action| (action, ())))?;
    expression(action, line, at + 1, report)
}

fn with_engine(kind: RuleKind, name: Arc<str>) -> RuleKind {
    match kind {
        RuleKind::Expression { outcome, action, text, expression, .. } => {
            RuleKind::Expression { outcome, action, engine: Some(name), text, expression }
        }
        other => other,
    }
}

/// `expression NAME ACTION EXPRESSION`.
fn named_expression(line: &Line, known: &NamedEngines, report: &mut Report) -> Option<RuleKind> {
    let Some(name) = line.args.first() else {
        report
            .error("missing-argument", line.place(), "`expression` needs the name of an engine")
            .help("or leave it away: `permit EXPRESSION`");
        return None;
    };
    if !known.expressions.contains(&name.text) {
        report
            .error("unknown-engine", &name.place, format!("there is no expression engine `{}`", name.text))
            .help(format!("add `expression {}` to the server block", name.text));
        return None;
    }
    action_after(line, 1, report).map(|kind| with_engine(kind, name.text.clone()))
}

/// `KIND NAME`.
fn engine(kind: EngineKind, line: &Line, known: &NamedEngines, report: &mut Report) -> Option<RuleKind> {
    let word = kind.word();
    let Some((name, params)) = line.args.split_first() else {
        report.error("missing-argument", line.place(), format!("`{word}` needs the name of an engine")).help(
            if kind == EngineKind::Kubernetes {
                "write `kubernetes rbac`".into()
            } else {
                format!("write `{word} NAME`")
            },
        );
        return None;
    };
    let is_known = match kind {
        EngineKind::Kubernetes => known.has_kubernetes && &*name.text == "rbac",
        _ => known.engines.iter().any(|(of, known)| *of == kind && *known == name.text),
    };
    if !is_known {
        let message = format!("there is no {word} engine `{}` in this server block", name.text);
        let problem = report.error("unknown-engine", &name.place, message);
        let names = known.engines.iter().filter(|(of, _)| *of == kind).map(|(_, name)| &**name);
        if kind == EngineKind::Kubernetes {
            problem.help(if known.has_kubernetes {
                "write `kubernetes rbac`"
            } else {
                "add the directive `kubernetes`"
            });
        } else if let Some(near) = nearest(&name.text, names) {
            problem.help(format!("did you mean `{near}`?"));
        } else {
            problem.help(format!("add `{word} {} {{ … }}`", name.text));
        }
        return None;
    }
    if let Some(extra) = params.first() {
        let message = format!("`{word} {}` takes no arguments", name.text);
        report.error("extra-argument", &extra.place, message).help("remove it: the engine's policy decides alone");
        return None;
    }
    Some(RuleKind::Engine { kind, name: name.text.clone() })
}

fn unknown(line: &Line, known: &NamedEngines, report: &mut Report) {
    let word = &line.name.text;
    let problem = report.error("unknown-rule", line.place(), format!("`{word}` begins no rule"));
    if let Some((kind, name)) = known.engines.iter().find(|(_, name)| name == word) {
        problem.help(format!("write `{} {name}`", kind.word()));
        return;
    }
    let words = ACTIONS.iter().chain(&OPTIONS).chain(&ENGINES).copied();
    match nearest(word, words.chain(known.expressions.iter().map(|name| &**name))) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(format!("rules begin with {}, or the kind of an engine", one_of(ACTIONS.into_iter()))),
    }
}
