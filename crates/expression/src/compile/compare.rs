//! Comparisons: what can be compared, and what literals become for it.

use super::vocabulary::can_match;
use super::{Built, Compiler};
use crate::Kind;
use crate::computed::Computed;
use crate::error::{Problem, Span};
use crate::names::{Fold, Words};
use crate::node::{Among, Equal, Matches, Membership, Node, Ordered};
use crate::tree::{Form, OrderComparison, Tree};
use namewall_policy::addr::{AddrSet, Cidr};
use regex::{Regex, RegexBuilder};

/// What a pattern may cost, in bytes: a list of some thousand words, and no trap.
const PATTERN_SIZE: usize = 1 << 20;
/// How many an expression may have, all of which may cost that much. Words need no pattern each: `(a|b|c)`.
const PATTERNS: usize = 100;

impl Compiler<'_> {
    pub(super) fn equality(&mut self, sides: [Built; 2], negated: bool, span: Span) -> Result<Built, Problem> {
        let [left, right] = sides;
        self.note(&left, &right);
        self.note(&right, &left);
        let left = self.spell(left, &right)?;
        let right = self.spell(right, &left)?;
        let [left, right] = self.fit_each_other([left, right], |_| true)?;
        let fold = left.fold().max(right.fold());
        self.comparable(&left, &right)?;
        let network = |side: &Built| side.kind == Some(Kind::Network);
        if network(&left) != network(&right) && left.kind.is_some() && right.kind.is_some() {
            return Err(Problem::new(span, "an address is not equal to a network").suggest("write `in`"));
        }
        let node = Node::Equal(Box::new(Equal { sides: [left.node, right.node], fold, negated }));
        Ok(Built { node, kind: Some(Kind::Bool), span })
    }

    pub(super) fn order(&self, sides: [Built; 2], order: OrderComparison, span: Span) -> Result<Built, Problem> {
        // Names are ordered as texts are: nothing is folded.
        let [left, right] = self.fit_each_other(sides, |kind| kind != Kind::Name)?;
        self.comparable(&left, &right)?;
        for side in [&left, &right] {
            if let Some(kind @ (Kind::Bool | Kind::Network)) = side.kind {
                let message = format!("`{}` is {kind}, which has no order", self.quote(side.span));
                return Err(Problem::new(side.span, message));
            }
        }
        for (one, other) in [(&left, &right), (&right, &left)] {
            if one.text() == Some("")
                && let Some(kind) = other.kind.filter(|kind| !kind.is_text())
            {
                return Err(Problem::new(one.span, format!("{kind} is neither less nor more than the empty text")));
            }
        }
        let node = Node::Order(Box::new(Ordered { sides: [left.node, right.node], order, span }));
        Ok(Built { node, kind: Some(Kind::Bool), span })
    }

    /// Literals of the one side as the other side's kind, if it is one of these.
    fn fit_each_other(&self, [left, right]: [Built; 2], kinds: fn(Kind) -> bool) -> Result<[Built; 2], Problem> {
        let fitting = |side: &Built| side.kind.filter(|kind| kinds(*kind));
        let (left_kind, right_kind) = (fitting(&left), fitting(&right));
        let (left_span, right_span) = (left.span, right.span);
        Ok([self.fit(left, right_kind, right_span)?, self.fit(right, left_kind, left_span)?])
    }

    /// Text is comparable with whatever it may spell; a name, or a word such as a type, spells nothing else.
    fn comparable(&self, left: &Built, right: &Built) -> Result<(), Problem> {
        let (Some(a), Some(b)) = (left.kind, right.kind) else { return Ok(()) };
        let addresses = [Kind::Address, Kind::Network];
        let is_text = a == Kind::Text || b == Kind::Text;
        let problem = |message: String| Problem::new(left.span.to(right.span), message);
        match (a, b) {
            (Kind::List, _) | (_, Kind::List) => {
                Err(problem("a list is not compared".to_owned())
                    .suggest("write `in`, or count() for how many there are"))
            }
            _ if a == b || a.is_text() && b.is_text() || is_text => Ok(()),
            _ if addresses.contains(&a) && addresses.contains(&b) => Ok(()),
            _ => {
                let (left_text, right_text) = (self.quote(left.span), self.quote(right.span));
                Err(problem(format!("`{left_text}` is {a} and `{right_text}` is {b}: they cannot be compared")))
            }
        }
    }

    pub(super) fn membership(&mut self, [left, right]: [Tree; 2], negated: bool, span: Span) -> Result<Built, Problem> {
        let left = self.build(left)?;
        if left.kind == Some(Kind::List) {
            return Err(Problem::new(left.span, "a list is in no list")
                .suggest("`response_ip` is each address of an answer, one after the other"));
        }
        let (left_kind, left_span) = (left.kind, left.span);
        let items = match right.form {
            Form::List(items) => {
                let mut built = Vec::with_capacity(items.len());
                for item in items {
                    let item = self.build(item)?;
                    self.note(&left, &item);
                    let item = self.spell(item, &left)?;
                    let item = self.fit(item, left_kind, left_span)?;
                    if item.kind != Some(Kind::List) {
                        self.comparable(&left, &item)?;
                    }
                    built.push(item);
                }
                built
            }
            _ => {
                let right = self.build(right)?;
                let right = self.fit(right, left_kind.filter(|kind| *kind == Kind::Address), left_span)?;
                if !right.is(&[Kind::List, Kind::Network]) {
                    let message = format!("`{}` is no list, and no network", self.quote(right.span));
                    return Err(
                        Problem::new(right.span, message).suggest("write a list in parentheses, like ('A', 'AAAA')")
                    );
                }
                vec![right]
            }
        };
        let is_of_addresses = |item: &Built| {
            item.kind == Some(Kind::Network) || matches!(item.node, Node::Fact(..) if item.kind == Some(Kind::List))
        };
        let left = match (items.len(), items.iter().find(|item| is_of_addresses(item))) {
            (1, Some(item)) => self.fit(left, Some(Kind::Address), item.span)?,
            // Beside texts it stays one, but must be an address all the same.
            (_, Some(item)) => {
                if let Some(text) = left.text() {
                    let node = Node::Constant(Computed::Text(text.to_owned().into()));
                    self.fit(Built { node, ..left }, Some(Kind::Address), item.span)?;
                }
                left
            }
            (_, None) => left,
        };
        let fold = items.iter().map(Built::fold).fold(left.fold(), Fold::max);
        let among = among(items, &left, fold);
        let node = Node::In(Box::new(Membership { of: left.node, among, fold, negated }));
        Ok(Built { node, kind: Some(Kind::Bool), span })
    }

    pub(super) fn matches(&mut self, [left, right]: [Tree; 2], negated: bool, span: Span) -> Result<Built, Problem> {
        let left = self.build(left)?;
        if let Some(kind @ (Kind::List | Kind::Network)) = left.kind {
            let message = format!("`{}` is {kind}, and patterns are for text", self.quote(left.span));
            return Err(Problem::new(left.span, message));
        }
        let trees = match right.form {
            Form::List(items) => items,
            _ => vec![right],
        };
        let is_caseless = left.fold() != Fold::Exact;
        let mut patterns = Vec::with_capacity(trees.len());
        for tree in trees {
            let Form::Text(pattern) = tree.form else {
                return Err(Problem::new(tree.span, "a pattern is text in quotes, so that it can be checked now"));
            };
            if let Node::Fact(fact, _) = &left.node {
                self.literals.push((fact.clone(), pattern.as_str().into()));
            }
            self.patterns += 1;
            if self.patterns > PATTERNS {
                return Err(Problem::new(
                    tree.span,
                    format!("this is one pattern more than {PATTERNS}, which is the most"),
                ));
            }
            let regex = regex(&pattern, is_caseless).map_err(|message| Problem::new(tree.span, message))?;
            can_match(&left.node, tree.span, |text| regex.is_match(text))?;
            patterns.push(regex);
        }
        let has_end = |regex: &Regex| regex.as_str().contains('$') || regex.as_str().contains(r"\z");
        let bare = left.kind == Some(Kind::Name) && patterns.iter().any(has_end);
        let test = Matches { of: left.node, patterns: patterns.into(), bare, negated };
        Ok(Built { node: Node::Matches(Box::new(test)), kind: Some(Kind::Bool), span })
    }
}

/// The quickest way to look a value up among them.
fn among(items: Vec<Built>, left: &Built, fold: Fold) -> Among {
    if items.iter().all(|item| item.text().is_some()) {
        return Among::Words(Words::new(items.iter().filter_map(Built::text).map(Box::from), fold));
    }
    if left.kind == Some(Kind::Address) && items.len() > 1 {
        let set: Option<AddrSet> =
            items.iter().map(|item| network(&item.node)).collect::<Option<Vec<Cidr>>>().map(AddrSet::from_iter);
        if let Some(set) = set {
            return Among::Addresses(set);
        }
    }
    Among::Items(items.into_iter().map(|item| item.node).collect())
}

/// The network, or the address as one, if it is known.
pub(super) fn network(node: &Node) -> Option<Cidr> {
    match node {
        Node::Constant(Computed::Network(network)) => Some(*network),
        Node::Constant(Computed::Address(address)) => Some(Cidr::host(*address)),
        _ => None,
    }
}

fn regex(pattern: &str, is_caseless: bool) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern).case_insensitive(is_caseless).size_limit(PATTERN_SIZE).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        // It draws the pattern over several lines; what is wrong is in the last.
        error => {
            let told = error.to_string();
            let reason = told.lines().last().unwrap_or_default();
            format!("the pattern cannot be read: {}", reason.trim_start_matches("error: "))
        }
    })
}
