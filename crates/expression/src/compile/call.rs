//! Calls: what each function takes.

use super::compare::network;
use super::vocabulary::can_match;
use super::{Built, Compiler, literal};
use crate::Kind;
use crate::call::Call;
use crate::computed::Computed;
use crate::error::{Problem, Span};
use crate::function::Function;
use crate::list::InList;
use crate::names::{Fold, Words};
use crate::node::{Networks, Node, Within};
use crate::tree::{Form, Tree};
use namewall_policy::addr::{AddrSet, Cidr, parse_address};
use std::sync::Arc;

const TEXTS: [Kind; 3] = [Kind::Text, Kind::Word, Kind::Name];

impl Compiler<'_> {
    pub(super) fn call(&mut self, function: Function, arguments: Vec<Tree>, span: Span) -> Result<Built, Problem> {
        let mut trees = arguments.into_iter();
        let Some(first) = trees.next() else {
            return Ok(generic(function, Vec::new(), Fold::Exact, span));
        };
        let first = self.build(first)?;
        let others: Vec<Tree> = trees.collect();
        match function {
            Function::InCidr => self.in_cidr(first, others, span),
            Function::Under => self.under(first, others, span),
            Function::InList => self.in_list(first, others, span),
            Function::HasPrefix | Function::HasSuffix => {
                self.wants(&first, &[Kind::Text, Kind::Word, Kind::Name, Kind::Number, Kind::Address], function)?;
                let (fold, first_kind) = (first.fold(), first.kind);
                let mut arguments = vec![first.node];
                for other in self.spread(others)? {
                    self.wants(&other, &TEXTS, function)?;
                    if let Some(text) = other.text() {
                        let is_so = |word: &str| match function {
                            Function::HasPrefix => fold.starts(word, text),
                            _ => fold.ends(word, text),
                        };
                        can_match(&arguments[0], other.span, is_so)?;
                        if first_kind == Some(Kind::Name) && text.contains('*') {
                            let message = format!("no `*` stands for labels in `{text}`");
                            let domain = text.trim_start_matches("*.");
                            let instead = format!("for all names below it write under(name, '{domain}')");
                            return Err(Problem::new(other.span, message).suggest(instead));
                        }
                    }
                    arguments.push(other.node);
                }
                Ok(generic(function, arguments, fold, span))
            }
            Function::Atoi | Function::Random => {
                self.wants(&first, &[Kind::Number, Kind::Text], function)?;
                Ok(generic(function, vec![first.node], Fold::Exact, span))
            }
            Function::Lower => {
                self.wants(&first, &TEXTS, function)?;
                let kind = first.kind;
                Ok(Built { kind, ..generic(function, vec![first.node], Fold::Exact, span) })
            }
            Function::Label => {
                self.wants(&first, &TEXTS, function)?;
                let kind = if first.kind == Some(Kind::Name) { Kind::Word } else { Kind::Text };
                let mut arguments = vec![first.node];
                for at in self.builds(others)? {
                    self.wants(&at, &[Kind::Number, Kind::Text], function)?;
                    if let Node::Constant(value) = &at.node
                        && value.as_number().is_none_or(|at| at.fract() != 0.0)
                    {
                        let message = format!("`{value}` is no whole number, and labels are counted");
                        return Err(Problem::new(at.span, message));
                    }
                    arguments.push(at.node);
                }
                Ok(Built { kind: Some(kind), ..generic(function, arguments, Fold::Exact, span) })
            }
            Function::Count => {
                self.wants(&first, &[Kind::List, Kind::Text, Kind::Word, Kind::Name], function)?;
                Ok(generic(function, vec![first.node], Fold::Exact, span))
            }
            Function::Len => {
                let kinds = [Kind::List, Kind::Text, Kind::Word, Kind::Name, Kind::Number, Kind::Address];
                self.wants(&first, &kinds, function)?;
                Ok(generic(function, vec![first.node], Fold::Exact, span))
            }
            Function::Entropy => {
                self.wants(&first, &TEXTS, function)?;
                Ok(generic(function, vec![first.node], Fold::Exact, span))
            }
            Function::IsPrivate => {
                self.wants(&first, &[Kind::Address, Kind::Text], function)?;
                let first = address_in(first)?;
                Ok(generic(function, vec![first.node], Fold::Exact, span))
            }
        }
    }

    fn in_cidr(&mut self, first: Built, others: Vec<Tree>, span: Span) -> Result<Built, Problem> {
        if first.kind == Some(Kind::Network) {
            let message = format!("`{}` is a network, and the address comes first", self.quote(first.span));
            return Err(Problem::new(first.span, message).suggest("write in-cidr(address, network)"));
        }
        self.wants(&first, &[Kind::Address, Kind::Text], Function::InCidr)?;
        let first = address_in(first)?;
        let mut networks = Vec::new();
        for other in self.spread(others)? {
            let other = match other.text() {
                Some(text) => match text.parse::<Cidr>() {
                    Ok(network) => Built { node: Node::Constant(Computed::Network(network)), ..other },
                    Err(error) => match parse_address(text) {
                        Some(address) => Built { node: Node::Constant(Computed::Address(address)), ..other },
                        None => return Err(Problem::new(other.span, error.to_string())),
                    },
                },
                None => other,
            };
            self.wants(&other, &[Kind::Network, Kind::Address, Kind::Text, Kind::List], Function::InCidr)?;
            networks.push(other.node);
        }
        let known: Option<Vec<Cidr>> = networks.iter().map(network).collect();
        let networks = match known.as_deref() {
            Some([one]) => Networks::One(*one),
            Some(many) => Networks::Many(many.iter().copied().collect::<AddrSet>()),
            None => {
                let arguments = std::iter::once(first.node).chain(networks).collect();
                return Ok(generic(Function::InCidr, arguments, Fold::Exact, span));
            }
        };
        let node = Node::Within(Box::new(Within { of: first.node, networks, span }));
        Ok(Built { node, kind: Some(Kind::Bool), span })
    }

    fn under(&mut self, first: Built, others: Vec<Tree>, span: Span) -> Result<Built, Problem> {
        self.wants(&first, &TEXTS, Function::Under)?;
        let others = self.spread(others)?;
        let mut domains = Vec::with_capacity(others.len());
        for other in &others {
            self.wants(other, &TEXTS, Function::Under)?;
            match other.text() {
                Some("") => {
                    return Err(Problem::new(other.span, "nothing is under the empty text").suggest("the root is '.'"));
                }
                Some(text) => domains.push(literal::name(text, other.span)?.into_boxed_str()),
                None => {}
            }
        }
        if domains.len() == others.len() {
            let node = Node::Under(Box::new((first.node, Words::new(domains, Fold::Name))));
            return Ok(Built { node, kind: Some(Kind::Bool), span });
        }
        let arguments = std::iter::once(first.node).chain(others.into_iter().map(|other| other.node)).collect();
        Ok(generic(Function::Under, arguments, Fold::Name, span))
    }

    /// The files of lists are read when a Corefile is: they are not made of facts.
    fn in_list(&mut self, first: Built, others: Vec<Tree>, span: Span) -> Result<Built, Problem> {
        self.wants(&first, &TEXTS, Function::InList)?;
        let mut lists: Vec<Arc<str>> = Vec::new();
        for other in self.spread(others)? {
            let Some(file) = other.text().filter(|file| !file.is_empty()) else {
                let message = format!("`{}` is no file of a list", self.quote(other.span));
                return Err(Problem::new(other.span, message).suggest("write its path in quotes, like 'ads.txt'"));
            };
            lists.push(file.into());
            self.lists.push((file.into(), other.span));
        }
        let node = Node::InList(Box::new(InList { of: first.node, lists: lists.into(), span }));
        Ok(Built { node, kind: Some(Kind::Bool), span })
    }

    fn builds(&mut self, trees: Vec<Tree>) -> Result<Vec<Built>, Problem> {
        trees.into_iter().map(|tree| self.build(tree)).collect()
    }

    /// Lists among the arguments are as good as their items.
    fn spread(&mut self, trees: Vec<Tree>) -> Result<Vec<Built>, Problem> {
        let mut all = Vec::with_capacity(trees.len());
        for tree in trees {
            match tree.form {
                Form::List(items) => all.extend(self.spread(items)?),
                _ => all.push(self.build(tree)?),
            }
        }
        Ok(all)
    }

    fn wants(&self, argument: &Built, kinds: &[Kind], function: Function) -> Result<(), Problem> {
        let Some(kind) = argument.kind.filter(|kind| !kinds.contains(kind)) else { return Ok(()) };
        let (_, _, written) = function.arguments();
        let message =
            format!("`{}` is {kind}, which `{}` does not take here", self.quote(argument.span), function.name());
        Err(Problem::new(argument.span, message).suggest(format!("write {written}")))
    }
}

/// An argument whose text, if it is known, must be an address.
fn address_in(argument: Built) -> Result<Built, Problem> {
    match argument.text() {
        Some(text) if !text.is_empty() => {
            let none = || Problem::new(argument.span, format!("`{text}` is not an address"));
            let address = parse_address(text).ok_or_else(none)?;
            Ok(Built { node: Node::Constant(Computed::Address(address)), ..argument })
        }
        _ => Ok(argument),
    }
}

/// A call whose arguments are looked at when it is asked.
fn generic(function: Function, arguments: Vec<Node>, fold: Fold, span: Span) -> Built {
    let kind = match function {
        Function::InCidr | Function::InList | Function::Under | Function::IsPrivate => Kind::Bool,
        Function::HasPrefix | Function::HasSuffix => Kind::Bool,
        Function::Lower | Function::Label => Kind::Text,
        Function::Atoi | Function::Random | Function::Count | Function::Len | Function::Entropy => Kind::Number,
    };
    let call = Call { function, arguments: arguments.into(), fold, span };
    Built { node: Node::Call(Box::new(call)), kind: Some(kind), span }
}
