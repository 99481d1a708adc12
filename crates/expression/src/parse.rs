//! Words to a tree, with govaluate's precedences. From what binds strongest:
//!
//! ```text
//! ! - ~ (before a value)     **     * / %     + -     << >>     & | ^
//! == != < <= > >= =~ !~ in     not     && and     || or     ?: ??
//! ```
//!
//! Operators of one line are taken from the left; `?:` from the right.

use crate::Fact;
use crate::error::{Problem, Span};
use crate::function::Function;
use crate::token::{Mark, Token, tokens};
use crate::tree::{Calculation, Form, Operator, OrderComparison, Tree};

/// The longest text that is read.
pub(crate) const LONGEST: usize = 64 * 1024;
/// How deep parentheses and the like may be inside each other. The parser recurs so often, a few calls each.
const DEEPEST: u32 = 100;
/// How high a tree may be: operators of one line make it higher without any parentheses.
const HIGHEST: u32 = 250;

/// How strong operators bind.
const OR: u8 = 1;
const AND: u8 = 2;
const COMPARISON: u8 = 4;
const BITS: u8 = 5;
const SHIFT: u8 = 6;
const SUM: u8 = 7;
const PRODUCT: u8 = 8;
const POWER: u8 = 9;

fn strength(calculation: Calculation) -> u8 {
    match calculation {
        Calculation::BitAnd | Calculation::BitOr | Calculation::BitXor => BITS,
        Calculation::ShiftLeft | Calculation::ShiftRight => SHIFT,
        Calculation::Minus => SUM,
        Calculation::Times | Calculation::Divide | Calculation::Modulo => PRODUCT,
        Calculation::Power => POWER,
    }
}

const MINUS: Mark = Mark::Calculate(Calculation::Minus);

pub(crate) fn parse(text: &str) -> Result<Tree, Problem> {
    if text.len() > LONGEST {
        let message = format!("the expression is {} bytes long; {LONGEST} is the most", text.len());
        return Err(Problem::new(Span::new(0, 0), message));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, end: Span::new(text.len(), text.len()) };
    if parser.tokens.is_empty() {
        return Err(Problem::new(Span::new(0, 0), "the expression is empty"));
    }
    let tree = parser.expression()?;
    match parser.peek() {
        None => Ok(tree),
        Some(Token::Mark(Mark::Close)) => Err(Problem::new(parser.place(), "no parenthesis is open here")),
        Some(Token::Mark(Mark::Comma)) => Err(Problem::new(parser.place(), "a comma stands only between parentheses")),
        Some(_) => Err(Problem::new(parser.place(), "an operator is missing before this")),
    }
}

struct Parser {
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: u32,
    end: Span,
}

/// What stands between two values.
enum Infix {
    Or,
    And,
    Operator(Operator),
    /// `IP in-cidr(172.28.0.0/24)`, as the original form (docs/semantics.md, S9) writes it.
    Call(Function),
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn place(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |&(_, span)| span)
    }

    fn is_at(&self, mark: Mark) -> bool {
        self.peek() == Some(&Token::Mark(mark))
    }

    fn take(&mut self, mark: Mark) -> bool {
        let is = self.is_at(mark);
        self.at += usize::from(is);
        is
    }

    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, Problem>) -> Result<T, Problem> {
        if self.depth == DEEPEST {
            return Err(Problem::new(self.place(), format!("more than {DEEPEST} things are inside each other here")));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn tree(&self, form: Form, span: Span) -> Result<Tree, Problem> {
        let tree = Tree::new(form, span);
        if tree.height > HIGHEST {
            let message = format!("more than {HIGHEST} operators are applied to each other here");
            return Err(Problem::new(span, message));
        }
        Ok(tree)
    }

    /// `a ? b : c` and all that binds stronger.
    fn expression(&mut self) -> Result<Tree, Problem> {
        self.deeper(|parser| {
            let condition = parser.otherwise()?;
            if !parser.take(Mark::Question) {
                return Ok(condition);
            }
            let then = parser.expression()?;
            let otherwise = match parser.take(Mark::Colon) {
                true => parser.expression()?,
                // As govaluate has it: nothing, if it is not so.
                false => Tree::new(Form::Text(String::new()), then.span),
            };
            let span = condition.span.to(otherwise.span);
            parser.tree(Form::Choice(Box::new([condition, then, otherwise])), span)
        })
    }

    fn otherwise(&mut self) -> Result<Tree, Problem> {
        let mut left = self.operators(OR)?;
        while self.take(Mark::Otherwise) {
            let right = self.operators(OR)?;
            let span = left.span.to(right.span);
            left = self.tree(Form::Otherwise(Box::new([left, right])), span)?;
        }
        Ok(left)
    }

    /// Operators that bind at least so strong, and what they stand between.
    fn operators(&mut self, weakest: u8) -> Result<Tree, Problem> {
        let mut left = match self.is_at(Mark::Not) && weakest < COMPARISON {
            true => self.not()?,
            false => self.prefixed()?,
        };
        while let Some((infix, strength, length)) = self.infix() {
            if strength < weakest {
                break;
            }
            self.at += length;
            left = self.with(left, infix, strength)?;
        }
        Ok(left)
    }

    /// The value on the left, the operator, and what follows.
    fn with(&mut self, left: Tree, infix: Infix, strength: u8) -> Result<Tree, Problem> {
        let operator = match infix {
            Infix::Call(function) => {
                let span = left.span;
                return self.call(function, span, vec![left]);
            }
            Infix::Operator(operator @ Operator::In { .. }) if self.is_at(Mark::Open) => {
                let start = self.place();
                self.at += 1;
                let (items, end) = self.items(Vec::new())?;
                let list = self.tree(Form::List(items), start.to(end))?;
                let span = left.span.to(list.span);
                return self.tree(Form::Pair(operator, Box::new([left, list])), span);
            }
            Infix::Operator(operator) => Some(operator),
            Infix::And | Infix::Or => None,
        };
        let right = self.operators(strength + 1)?;
        let span = left.span.to(right.span);
        let form = match (operator, left) {
            (Some(operator), left) => Form::Pair(operator, Box::new([left, right])),
            (None, Tree { form: Form::All(mut items), .. }) if strength == AND => {
                items.push(right);
                Form::All(items)
            }
            (None, Tree { form: Form::Any(mut items), .. }) if strength == OR => {
                items.push(right);
                Form::Any(items)
            }
            (None, left) if strength == AND => Form::All(vec![left, right]),
            (None, left) => Form::Any(vec![left, right]),
        };
        self.tree(form, span)
    }

    /// The operator that comes next, how strong it binds, and how many tokens it is.
    fn infix(&self) -> Option<(Infix, u8, usize)> {
        let operator = |operator, strength| Some((Infix::Operator(operator), strength, 1));
        let mark = match self.peek()? {
            Token::Mark(mark) => *mark,
            Token::Name { name, bare: true } => {
                // The parenthesis is taken with it.
                let is_called = matches!(self.tokens.get(self.at + 1), Some((Token::Mark(Mark::Open), _)));
                let function = Function::named(name).filter(|function| *function == Function::InCidr);
                return function.filter(|_| is_called).map(|function| (Infix::Call(function), COMPARISON, 2));
            }
            _ => return None,
        };
        match mark {
            Mark::Or => Some((Infix::Or, OR, 1)),
            Mark::And => Some((Infix::And, AND, 1)),
            Mark::Equal => operator(Operator::Equal { negated: false }, COMPARISON),
            Mark::NotEqual => operator(Operator::Equal { negated: true }, COMPARISON),
            Mark::Less => operator(Operator::Order(OrderComparison::Less), COMPARISON),
            Mark::LessOrEqual => operator(Operator::Order(OrderComparison::LessOrEqual), COMPARISON),
            Mark::Greater => operator(Operator::Order(OrderComparison::Greater), COMPARISON),
            Mark::GreaterOrEqual => operator(Operator::Order(OrderComparison::GreaterOrEqual), COMPARISON),
            Mark::Matches => operator(Operator::Matches { negated: false }, COMPARISON),
            Mark::MatchesNot => operator(Operator::Matches { negated: true }, COMPARISON),
            Mark::In => operator(Operator::In { negated: false }, COMPARISON),
            Mark::Not => matches!(self.tokens.get(self.at + 1), Some((Token::Mark(Mark::In), _))).then_some((
                Infix::Operator(Operator::In { negated: true }),
                COMPARISON,
                2,
            )),
            Mark::Plus => operator(Operator::Plus, SUM),
            Mark::Calculate(calculation) => operator(Operator::Calculate(calculation), strength(calculation)),
            Mark::Open | Mark::Close | Mark::Comma | Mark::Question | Mark::Colon => None,
            Mark::Otherwise | Mark::Bang | Mark::Tilde => None,
        }
    }

    /// `not` and the comparison after it.
    fn not(&mut self) -> Result<Tree, Problem> {
        let start = self.place();
        self.at += 1;
        let inner = self.deeper(|parser| match parser.is_at(Mark::Not) {
            true => parser.not(),
            false => parser.operators(COMPARISON),
        })?;
        let span = start.to(inner.span);
        self.tree(Form::Not(Box::new(inner)), span)
    }

    fn prefixed(&mut self) -> Result<Tree, Problem> {
        let start = self.place();
        let prefix = match self.peek() {
            Some(Token::Mark(mark @ (Mark::Bang | MINUS | Mark::Tilde))) => *mark,
            _ => return self.value(),
        };
        self.at += 1;
        let inner = self.deeper(Self::prefixed)?;
        let span = start.to(inner.span);
        let form = match (prefix, inner.form) {
            // A literal again, so that `label(name, -1)` can be checked.
            (MINUS, Form::Number(number)) => Form::Number(0.0 - number),
            (MINUS, form) => Form::Negative(Box::new(Tree { form, ..inner })),
            (Mark::Tilde, form) => Form::Flipped(Box::new(Tree { form, ..inner })),
            (_, form) => Form::Not(Box::new(Tree { form, ..inner })),
        };
        self.tree(form, span)
    }

    fn value(&mut self) -> Result<Tree, Problem> {
        let place = self.place();
        let Some((token, _)) = self.tokens.get_mut(self.at) else {
            return Err(Problem::new(self.end, "a value is missing at the end"));
        };
        let form = match token {
            Token::Text(text) => Form::Text(std::mem::take(text)),
            Token::Number(number) => Form::Number(*number),
            Token::Bool(is) => Form::Bool(*is),
            Token::Address(address) => Form::Address(*address),
            Token::Network(network) => Form::Network(*network),
            Token::Name { name, bare } => {
                let (name, bare) = (std::mem::take(name), *bare);
                self.at += 1;
                return self.named(name, bare, place);
            }
            Token::Mark(Mark::Open) => {
                self.at += 1;
                return self.parenthesis(place);
            }
            Token::Mark(Mark::Not) => {
                return Err(Problem::new(place, "`not` binds weaker than what stands before it")
                    .suggest("put it into parentheses: (not …)"));
            }
            Token::Mark(_) => return Err(Problem::new(place, "a value is missing before this")),
        };
        self.at += 1;
        self.tree(form, place)
    }

    /// A value in parentheses, or a list of them.
    fn parenthesis(&mut self, start: Span) -> Result<Tree, Problem> {
        if self.is_at(Mark::Close) {
            return Err(Problem::new(start.to(self.place()), "there is nothing between the parentheses"));
        }
        let first = self.expression()?;
        if self.is_at(Mark::Close) {
            let span = start.to(self.place());
            self.at += 1;
            return Ok(Tree { span, ..first });
        }
        if !self.take(Mark::Comma) {
            return Err(self.unclosed());
        }
        let (items, end) = self.items(vec![first])?;
        self.tree(Form::List(items), start.to(end))
    }

    /// Values between commas, to the closing parenthesis; and where that is.
    fn items(&mut self, mut items: Vec<Tree>) -> Result<(Vec<Tree>, Span), Problem> {
        loop {
            items.push(self.expression()?);
            let place = self.place();
            if self.take(Mark::Close) {
                return Ok((items, place));
            }
            if !self.take(Mark::Comma) {
                return Err(self.unclosed());
            }
        }
    }

    fn unclosed(&self) -> Problem {
        match self.peek() {
            None => Problem::new(self.end, "a parenthesis is not closed"),
            Some(_) => Problem::new(self.place(), "an operator, a comma or a parenthesis is missing before this"),
        }
    }

    /// A fact, or a function with its arguments.
    fn named(&mut self, name: String, bare: bool, place: Span) -> Result<Tree, Problem> {
        if bare && self.take(Mark::Open) {
            let Some(function) = Function::named(&name) else {
                let problem = Problem::new(place, format!("there is no function `{name}`"));
                return Err(match Function::nearest(&name) {
                    Some(nearest) => problem.suggest(format!("did you mean `{nearest}`?")),
                    None => problem,
                });
            };
            return self.call(function, place, Vec::new());
        }
        let fact = Fact::named(&name);
        if bare
            && let Fact::Label(_) = fact
            && let Some(operator) = hidden_operator(&name)
        {
            return Err(Problem::new(place, format!("`{name}` is one name, that nobody sets"))
                .suggest(format!("write spaces around `{operator}` to calculate, or brackets if it is a name")));
        }
        self.tree(Form::Fact(fact), place)
    }

    /// The rest of a call, whose parenthesis is open already.
    fn call(&mut self, function: Function, start: Span, given: Vec<Tree>) -> Result<Tree, Problem> {
        let place = self.place();
        let (arguments, end) = match self.take(Mark::Close) {
            true => (given, place),
            false => self.items(given)?,
        };
        let span = start.to(end);
        let (fewest, most, written) = function.arguments();
        if !(fewest..=most).contains(&arguments.len()) {
            let wrong = if arguments.len() < fewest { "few" } else { "many" };
            let message = format!("`{}` has too {wrong} arguments", function.name());
            return Err(Problem::new(span, message).suggest(format!("write {written}")));
        }
        self.tree(Form::Call(function, arguments), span)
    }
}

/// The operator that was probably meant in a name such as `size/2` or `port-1024`: what stands before it
/// is a fact of its own.
fn hidden_operator(name: &str) -> Option<char> {
    // Their names are short; beyond that there is none to be found.
    let mut joints = name.match_indices(['/', '-']).take_while(|(at, _)| *at <= 32);
    let of_a_fact = |&(at, _): &(usize, &str)| !matches!(Fact::named(&name[..at]), Fact::Label(_));
    joints.find(of_a_fact).and_then(|(_, joint)| joint.chars().next())
}
