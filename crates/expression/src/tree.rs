//! What an expression says, as it was written: no kinds yet, and nothing decided.

use crate::Fact;
use crate::error::Span;
use crate::function::Function;
use namewall_policy::addr::Cidr;
use std::net::IpAddr;

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) form: Form,
    pub(crate) span: Span,
    /// How many forms are inside each other: whoever walks the tree recurs so often.
    pub(crate) height: u32,
}

#[derive(Debug)]
pub(crate) enum Form {
    Text(String),
    Number(f64),
    Bool(bool),
    Address(IpAddr),
    Network(Cidr),
    Fact(Fact),
    /// `('A', 'AAAA')`
    List(Vec<Tree>),
    /// `a and b and c`: long ones are usual, and so are flat.
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Not(Box<Tree>),
    /// `-x`
    Negative(Box<Tree>),
    /// `~x`
    Flipped(Box<Tree>),
    Pair(Operator, Box<[Tree; 2]>),
    /// `a ? b : c`
    Choice(Box<[Tree; 3]>),
    /// `a ?? b`
    Otherwise(Box<[Tree; 2]>),
    Call(Function, Vec<Tree>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    Equal { negated: bool },
    In { negated: bool },
    Matches { negated: bool },
    Order(OrderComparison),
    Plus,
    Calculate(Calculation),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderComparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Calculation {
    Minus,
    Times,
    Divide,
    Modulo,
    Power,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl Calculation {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Minus => "-",
            Self::Times => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::Power => "**",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
        }
    }
}

impl Tree {
    pub(crate) fn new(form: Form, span: Span) -> Self {
        let tallest = |trees: &[Tree]| trees.iter().map(|tree| tree.height).max().unwrap_or(0);
        let below = match &form {
            Form::Text(_) | Form::Number(_) | Form::Bool(_) => 0,
            Form::Address(_) | Form::Network(_) | Form::Fact(_) => 0,
            Form::List(trees) | Form::All(trees) | Form::Any(trees) | Form::Call(_, trees) => tallest(trees),
            Form::Not(tree) | Form::Negative(tree) | Form::Flipped(tree) => tree.height,
            Form::Pair(_, pair) | Form::Otherwise(pair) => tallest(&**pair),
            Form::Choice(trees) => tallest(&**trees),
        };
        Self { form, span, height: below + 1 }
    }
}
