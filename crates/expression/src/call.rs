//! What the functions do, with arguments that are only known when they are asked.

use crate::Facts;
use crate::compare::number;
use crate::computed::Computed;
use crate::entropy::entropy;
use crate::error::{Fault, Span};
use crate::function::Function;
use crate::names::{Fold, is_under, labels};
use crate::node::{Evaluated, Node, is_in_any, looked_up};
use crate::private::is_private;
use crate::random::random;
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) arguments: Box<[Node]>,
    /// What does not matter in the first argument.
    pub(crate) fold: Fold,
    pub(crate) span: Span,
}

impl Call {
    pub(crate) fn value<'a>(&'a self, facts: &'a dyn Facts) -> Evaluated<Computed<'a>> {
        let Some((first, others)) = self.arguments.split_first() else {
            return Ok(Computed::Number(random()));
        };
        let value = first.value(facts)?;
        Ok(match self.function {
            Function::InCidr => Computed::Bool(match looked_up(&value, self.span)? {
                Some(address) => is_in_any(address, others, facts, self.span)?,
                None => false,
            }),
            Function::Atoi => Computed::Number(self.whole(&value)?),
            Function::Random => {
                let below = self.number(&value)?.floor();
                if below < 1.0 {
                    return Err(self.fault(format!("there is no whole number from 0 and below {below}")));
                }
                Computed::Number((random() * below).floor())
            }
            Function::Lower => Computed::Text(lower(value.into_text())),
            Function::HasPrefix => {
                let text = value.into_text();
                Computed::Bool(any_text(others, facts, &|prefix| self.fold.starts(&text, prefix))?)
            }
            Function::HasSuffix => {
                let text = value.into_text();
                Computed::Bool(any_text(others, facts, &|suffix| self.fold.ends(&text, suffix))?)
            }
            // It has a node of its own: its lists are always known.
            Function::InList => return Err(self.fault("a list is a file, in quotes")),
            Function::Under => {
                let name = value.into_text();
                Computed::Bool(any_text(others, facts, &|domain| is_under(&name, domain))?)
            }
            Function::Label => {
                let at = match others {
                    [at] => self.number(&at.value(facts)?)?,
                    _ => 0.0,
                };
                if at.fract() != 0.0 {
                    return Err(self.fault(format!("`{at}` is no whole number")));
                }
                Computed::Text(match value.into_text() {
                    Cow::Borrowed(name) => Cow::Borrowed(label(name, at as i64)),
                    Cow::Owned(name) => Cow::Owned(label(&name, at as i64).to_owned()),
                })
            }
            Function::Count => Computed::Number(match value {
                Computed::List(items) => items.len(),
                Computed::Addresses(addresses) => addresses.len(),
                value => labels(&value.into_text()).count(),
            } as f64),
            Function::Len => Computed::Number(match value {
                Computed::List(items) => items.len(),
                Computed::Addresses(addresses) => addresses.len(),
                value => value.into_text().chars().count(),
            } as f64),
            // What is not set is no address, and so not a private one.
            Function::IsPrivate => Computed::Bool(looked_up(&value, self.span)?.is_some_and(is_private)),
            Function::Entropy => Computed::Number(entropy(value.into_text().as_bytes())),
        })
    }

    fn fault(&self, message: impl Into<String>) -> Box<Fault> {
        Fault::new(self.span, message)
    }

    fn number(&self, value: &Computed<'_>) -> Evaluated<f64> {
        number(value).map_err(|message| self.fault(message))
    }

    /// As `strconv.Atoi` reads it: a sign and decimal digits. A fact that is a number already stays one.
    fn whole(&self, value: &Computed<'_>) -> Evaluated<f64> {
        match value {
            Computed::Number(number) => Ok(*number),
            Computed::Text(text) if text.is_empty() => Err(self.fault("what is not set is no whole number")),
            value => {
                let text = value.borrowed().into_text();
                let whole = text.parse::<i64>().map_err(|_| self.fault(format!("`{text}` is no whole number")))?;
                Ok(whole as f64)
            }
        }
    }
}

/// Whether it is so of one of the texts.
fn any_text(nodes: &[Node], facts: &dyn Facts, is: &dyn Fn(&str) -> bool) -> Evaluated<bool> {
    for node in nodes {
        let is_so = match node.value(facts)? {
            Computed::List(items) => items.into_iter().any(|item| is(&item.into_text())),
            value => is(&value.into_text()),
        };
        if is_so {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lower(text: Cow<'_, str>) -> Cow<'_, str> {
    match text.chars().any(|c| c.is_uppercase()) {
        true => Cow::Owned(text.to_lowercase()),
        false => text,
    }
}

/// The label at this place, from the left, or from the right if it is negative; the empty text if there is none.
fn label(name: &str, at: i64) -> &str {
    let at = match usize::try_from(at) {
        Ok(at) => Some(at),
        Err(_) => usize::try_from(at.unsigned_abs()).ok().and_then(|back| labels(name).count().checked_sub(back)),
    };
    at.and_then(|at| labels(name).nth(at)).unwrap_or_default()
}
