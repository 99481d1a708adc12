//! Tree to [`Node`]: kinds are checked as far as they can be seen, and literals become what they are
//! compared with. An expression that passes can still have no value for some question, but not because of
//! how it is written.

mod call;
mod compare;
mod literal;
mod vocabulary;

use super::computed::Computed;
use super::error::{Problem, Span};
use super::names::Fold;
use super::node::Node;
use super::token::read_number;
use super::tree::{Form, Operator, Tree};
use crate::{Fact, Kind};
use std::collections::HashSet;
use std::sync::Arc;

/// An expression that is done.
pub(super) struct Compiled {
    pub(super) node: Node,
    /// The facts it looks at, in the order of the text.
    pub(super) facts: Vec<Fact>,
    /// Where each of them stands first.
    pub(super) places: Vec<Span>,
    /// Text that facts are compared with.
    pub(super) literals: Vec<(Fact, Box<str>)>,
    /// The files of lists that it asks.
    pub(super) lists: Vec<(Arc<str>, Span)>,
}

pub(super) fn compile(text: &str, tree: Tree) -> Result<Compiled, Problem> {
    let mut compiler = Compiler {
        text,
        facts: Vec::new(),
        places: Vec::new(),
        literals: Vec::new(),
        lists: Vec::new(),
        known: HashSet::new(),
        patterns: 0,
    };
    let built = compiler.build(tree)?;
    let Compiler { facts, places, literals, lists, .. } = compiler;
    Ok(Compiled { node: built.node, facts, places, literals, lists })
}

struct Compiler<'t> {
    text: &'t str,
    facts: Vec<Fact>,
    places: Vec<Span>,
    literals: Vec<(Fact, Box<str>)>,
    lists: Vec<(Arc<str>, Span)>,
    known: HashSet<Fact>,
    /// How many patterns there are already.
    patterns: usize,
}

/// A piece that is done. Without a kind, it depends on the question what it is; with one, it may still not
/// be set.
struct Built {
    node: Node,
    kind: Option<Kind>,
    span: Span,
}

impl Built {
    /// The text of a literal.
    fn text(&self) -> Option<&str> {
        match &self.node {
            Node::Constant(Computed::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn is(&self, kinds: &[Kind]) -> bool {
        self.kind.is_none_or(|kind| kinds.contains(&kind))
    }

    fn fold(&self) -> Fold {
        match self.kind {
            Some(Kind::Name) => Fold::Name,
            Some(Kind::Word) => Fold::Case,
            _ => Fold::Exact,
        }
    }
}

impl Compiler<'_> {
    /// As it is written.
    fn quote(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }

    fn build(&mut self, tree: Tree) -> Result<Built, Problem> {
        let span = tree.span;
        let constant = |value, kind| (Node::Constant(value), Some(kind));
        let (node, kind) = match tree.form {
            Form::Text(text) => constant(Computed::Text(text.into()), Kind::Text),
            Form::Number(number) => constant(Computed::Number(number), Kind::Number),
            Form::Bool(is) => constant(Computed::Bool(is), Kind::Bool),
            Form::Address(address) => constant(Computed::Address(address), Kind::Address),
            Form::Network(network) => constant(Computed::Network(network), Kind::Network),
            Form::Fact(fact) => {
                let kind = fact.kind();
                if self.known.insert(fact.clone()) {
                    self.facts.push(fact.clone());
                    self.places.push(span);
                }
                (Node::Fact(fact, kind), Some(kind))
            }
            Form::List(items) => (Node::List(self.nodes(items)?), Some(Kind::List)),
            Form::All(items) => (Node::All(self.nodes(items)?), Some(Kind::Bool)),
            Form::Any(items) => (Node::Any(self.nodes(items)?), Some(Kind::Bool)),
            Form::Not(inner) => (Node::Not(Box::new(self.build(*inner)?.node)), Some(Kind::Bool)),
            Form::Negative(inner) => (Node::Negative(Box::new(self.number(*inner, "-")?), span), Some(Kind::Number)),
            Form::Flipped(inner) => (Node::Flipped(Box::new(self.number(*inner, "~")?), span), Some(Kind::Number)),
            Form::Pair(operator, pair) => return self.pair(operator, *pair, span),
            Form::Choice(choice) => {
                let [condition, then, otherwise] = *choice;
                let condition = self.build(condition)?.node;
                let (then, otherwise) = (self.build(then)?, self.build(otherwise)?);
                let kind = either(&then, &otherwise);
                (Node::Choice(Box::new([condition, then.node, otherwise.node])), kind)
            }
            Form::Otherwise(pair) => {
                let [value, otherwise] = *pair;
                let (value, otherwise) = (self.build(value)?, self.build(otherwise)?);
                let kind = either(&value, &otherwise);
                (Node::Otherwise(Box::new([value.node, otherwise.node])), kind)
            }
            Form::Call(function, arguments) => return self.call(function, arguments, span),
        };
        Ok(Built { node, kind, span })
    }

    /// Notes the text that a fact is compared with.
    fn note(&mut self, one: &Built, other: &Built) {
        if let (Node::Fact(fact, _), Some(text)) = (&one.node, other.text()) {
            self.literals.push((fact.clone(), text.into()));
        }
    }

    fn nodes(&mut self, trees: Vec<Tree>) -> Result<Box<[Node]>, Problem> {
        trees.into_iter().map(|tree| self.build(tree).map(|built| built.node)).collect()
    }

    fn pair(&mut self, operator: Operator, pair: [Tree; 2], span: Span) -> Result<Built, Problem> {
        let (node, kind) = match operator {
            Operator::In { negated } => return self.membership(pair, negated, span),
            Operator::Matches { negated } => return self.matches(pair, negated, span),
            Operator::Equal { negated } => {
                let sides = self.sides(pair)?;
                return self.equality(sides, negated, span);
            }
            Operator::Order(order) => {
                let sides = self.sides(pair)?;
                return self.order(sides, order, span);
            }
            Operator::Plus => {
                let [left, right] = self.sides(pair)?;
                let kind = self.sum(&left, &right)?;
                (Node::Plus(Box::new([left.node, right.node]), span), kind)
            }
            Operator::Calculate(calculation) => {
                let [left, right] = pair;
                let sides = [self.number(left, calculation.sign())?, self.number(right, calculation.sign())?];
                (Node::Calculate(calculation, Box::new(sides), span), Some(Kind::Number))
            }
        };
        Ok(Built { node, kind, span })
    }

    fn sides(&mut self, [left, right]: [Tree; 2]) -> Result<[Built; 2], Problem> {
        Ok([self.build(left)?, self.build(right)?])
    }

    /// What a sum is: text, if one side is.
    fn sum(&self, left: &Built, right: &Built) -> Result<Option<Kind>, Problem> {
        for side in [left, right] {
            if side.kind == Some(Kind::List) {
                return Err(Problem::new(side.span, "a list cannot be added"));
            }
        }
        match (left.kind, right.kind) {
            (Some(a), Some(b)) if a.is_text() || b.is_text() => Ok(Some(Kind::Text)),
            (Some(Kind::Number), Some(Kind::Number)) => Ok(Some(Kind::Number)),
            (Some(a), Some(b)) => {
                let (left_text, right_text) = (self.quote(left.span), self.quote(right.span));
                let message = format!("`{left_text}` is {a} and `{right_text}` is {b}: they have no sum");
                Err(Problem::new(left.span.to(right.span), message))
            }
            _ => Ok(None),
        }
    }

    /// One side of a calculation.
    fn number(&mut self, tree: Tree, sign: &str) -> Result<Node, Problem> {
        let built = self.build(tree)?;
        if let Some(text) = built.text() {
            let number = read_number(text);
            let none = || Problem::new(built.span, format!("`{text}` is not a number, which `{sign}` is for"));
            return number.map(|number| Node::Constant(Computed::Number(number))).ok_or_else(none);
        }
        match built.kind {
            Some(Kind::Number | Kind::Text) | None => Ok(built.node),
            Some(kind) => {
                let message = format!("`{}` is {kind}, and `{sign}` is for numbers", self.quote(built.span));
                Err(Problem::new(built.span, message))
            }
        }
    }
}

/// The kind of what is one or the other. Text that is empty may stand for any kind that is not set.
fn either(a: &Built, b: &Built) -> Option<Kind> {
    match (a.kind?, b.kind?) {
        (kind, _) if b.text() == Some("") => Some(kind),
        (_, kind) if a.text() == Some("") => Some(kind),
        (one, other) if one == other => Some(one),
        (one, other) if one.is_text() && other.is_text() => Some(Kind::Text),
        _ => None,
    }
}
