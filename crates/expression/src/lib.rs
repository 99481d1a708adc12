//! The rule language of the DNS firewall: `in-cidr(client_ip, 10.0.0.0/8) and type == 'A'`. [`Fact`] is what a
//! rule can look at, [`Expression`] is the condition of a rule, and [`Outcome`] is what a rule decides. There is no
//! I/O here.
//!
//! The language is govaluate's, which the shipped CoreDNS plugins use, with what the original form (docs/semantics.md, S9) adds:
//! names with `/` and `-` as they are, `and`, `or` and `not`, networks without quotes, and values that need not be text.
//! `docs/expressions.md` tells users all of it.
//!
//! A text goes through three rooms once, when a Corefile is read: `token` and `parse` make a tree of it,
//! `compile` checks its kinds and makes a `node`, and whatever is wrong by then stops the start with its
//! place marked. Questions only meet the node.
//!
//! # What is decided here
//!
//! - What is not set is the empty text (S9.4). It equals only empty text; `<` and its like between it and a
//!   number or an address are false, and so is `in-cidr` of it; `under` nothing; `??` gives the other side.
//!   To calculate with it, or to `atoi` it, is an error.
//! - Labels come as text. Against a number, an address or a truth value, text counts for what it spells; what
//!   spells nothing of the kind is unequal, and an error where an order is asked for. Two texts are compared
//!   as text, as in govaluate, even if both spell numbers.
//! - True is what is not empty, not 0, not false, and not a text that spells 0 or false: a label `trusted=false`
//!   must not open anything.
//! - A name is equal to another in any case, with or without the dot at its end; a type, a class, a protocol
//!   and a code in any case.
//! - An error that can be seen is found at the start. What is left depends on the question, and is an
//!   [`EvaluationError`].

mod calculate;
mod call;
mod compare;
mod compile;
mod computed;
mod entropy;
mod error;
mod fact;
mod function;
mod list;
mod names;
mod node;
mod outcome;
mod parse;
mod private;
mod random;
mod suggest;
mod token;
mod tree;

pub use computed::Computed;
pub use entropy::entropy;
pub use error::{EvaluationError, ExpressionError};
pub use fact::{Fact, Facts, Kind, ListedAt, Phase, Value};
pub use outcome::Outcome;

use compile::Compiled;
use error::Span;
use node::Node;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// An expression of a rule, checked and ready.
pub struct Expression {
    text: Box<str>,
    node: Node,
    facts: Box<[Fact]>,
    /// Where each of the facts stands first.
    places: Box<[Span]>,
    /// Text that facts are compared with.
    literals: Box<[(Fact, Box<str>)]>,
    /// The files of lists that it asks, and where each stands.
    lists: Box<[(Arc<str>, Span)]>,
}

impl Expression {
    /// Parses and checks an expression. The error marks the place in the text.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let read = parse::parse(text).and_then(|tree| compile::compile(text, tree));
        let compiled = read.map_err(|problem| ExpressionError::new(text, problem))?;
        let Compiled { node, facts, places, literals, lists } = compiled;
        Ok(Self {
            text: text.into(),
            node,
            facts: facts.into(),
            places: places.into(),
            literals: literals.into(),
            lists: lists.into(),
        })
    }

    /// Whether its value counts as true (S9.4).
    pub fn is_true(&self, facts: &dyn Facts) -> Result<bool, EvaluationError> {
        self.node.holds(facts).map_err(|fault| EvaluationError::new(&self.text, *fault))
    }

    /// The value of the expression for these facts.
    pub fn evaluate<'a>(&'a self, facts: &'a dyn Facts) -> Result<Computed<'a>, EvaluationError> {
        self.node.value(facts).map_err(|fault| EvaluationError::new(&self.text, *fault))
    }

    /// Every fact it may look at, each once, in the order of the text.
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Where in the text a fact stands first, in bytes.
    pub fn place_of(&self, fact: &Fact) -> Option<Range<usize>> {
        let at = self.facts.iter().position(|known| known == fact)?;
        self.places.get(at).map(|span| span.range())
    }

    /// The texts and patterns that a fact is compared with.
    pub fn literals_beside(&self, fact: &Fact) -> impl Iterator<Item = &str> {
        self.literals.iter().filter(move |(known, _)| known == fact).map(|(_, text)| &**text)
    }

    /// The files of the lists that it asks, with the place of each in the text, in bytes.
    pub fn lists(&self) -> impl Iterator<Item = (&Arc<str>, Range<usize>)> {
        self.lists.iter().map(|(file, span)| (file, span.range()))
    }

    /// Whether its value depends on the address of the answer that is being judged, so that each is judged
    /// (S9.3).
    pub fn is_of_response_address(&self) -> bool {
        self.facts.contains(&Fact::ResponseIp)
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The facts it looks at for this question, with their values, for whoever is told why.
    pub fn shown(&self, facts: &dyn Facts) -> Vec<(String, String)> {
        let listener = Listener { facts, read: RefCell::default(), lists: RefCell::default() };
        // An error is told by whoever evaluates it in earnest.
        let _ = self.is_true(&listener);
        let (read, lists) = (listener.read.into_inner(), listener.lists.into_inner());
        let read = read.into_iter().map(|fact| (fact.to_string(), facts.get(&fact).to_string()));
        read.chain(lists).collect()
    }
}

/// The same text is the same expression.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        Self::parse(text)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Facts that remember which of them were asked for.
struct Listener<'a> {
    facts: &'a dyn Facts,
    read: RefCell<Vec<Fact>>,
    /// The lists that were asked, with what they say.
    lists: RefCell<Vec<(String, String)>>,
}

impl Facts for Listener<'_> {
    fn get(&self, fact: &Fact) -> Value<'_> {
        let mut read = self.read.borrow_mut();
        if !read.contains(fact) {
            read.push(fact.clone());
        }
        self.facts.get(fact)
    }

    fn listed(&self, list: &str, name: &str) -> Result<Option<ListedAt>, String> {
        let listed = self.facts.listed(list, name)?;
        let said = listed.map_or_else(|| "not listed".to_owned(), |at| format!("line {}", at.line));
        self.lists.borrow_mut().push((list.to_owned(), said));
        Ok(listed)
    }
}
