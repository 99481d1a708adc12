//! Themis' policies, evaluated in process. Files are read into trees that know
//! their lines (`tree`, `at`), and those into what is declared (`symbols`),
//! looked up (`content`, `selector`), computed (`expression`, `function`) and
//! decided (`combine`). Everything is checked while it is read (`read`): what
//! can still fail later is what a request lacks.
//!
//! It behaves as `pdpserver` does, which `tests/themis_real.rs` holds it to.

mod at;
mod combine;
mod content;
mod expression;
mod function;
mod read;
mod selector;
mod symbols;
#[cfg(test)]
mod tests;
mod tree;

use super::codec::{Attribute, Effect, Response};
use super::value::Type;
use at::{At, SourceFile};
use combine::{Policy, PolicyPart};
use content::Contents;
use expression::Context;
use symbols::Symbols;

pub use at::PolicyError;

/// A file's text. Its name is told where something is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct File<'t> {
    pub name: &'t str,
    pub text: &'t str,
}

/// A policy file with its content files.
#[derive(Debug)]
pub struct Policies {
    symbols: Symbols,
    root: Policy,
}

impl Policies {
    /// The policy is JSON if its name ends in `.json`, else YAML; contents are JSON.
    pub fn read(policy: File<'_>, contents: &[File<'_>]) -> Result<Self, PolicyError> {
        let mut known = Contents::default();
        for content in contents {
            let tree = parse(*content)?;
            content::read(&At::root(&tree, SourceFile { file: content.name, any_case: true }), &mut known)?;
        }
        let tree = parse(policy)?;
        let any_case = policy.name.ends_with(".json");
        let (symbols, root) = read::read(&At::root(&tree, SourceFile { file: policy.name, any_case }), &known)?;
        Ok(Self { symbols, root })
    }

    pub fn decide(&self, attributes: &[Attribute]) -> Response {
        let context = match Context::new(&self.symbols, attributes) {
            Ok(context) => context,
            Err(status) => return Response { effect: Effect::Indeterminate, status, obligations: Vec::new() },
        };
        let decision = self.root.decide(&context);
        let mut status = decision.status.unwrap_or_default();
        let mut obligations = Vec::with_capacity(decision.obligations.len());
        for obligation in decision.obligations {
            match obligation.value.evaluate(&context) {
                Ok(value) => obligations.push(Attribute { name: obligation.name.clone(), value: value.into_owned() }),
                // One that fails is not sent; the decision stands.
                Err(failure) => {
                    let separator = if status.is_empty() { "" } else { "; " };
                    status += &format!("{separator}obligation `{}`: {failure}", obligation.name);
                }
            }
        }
        Response { effect: decision.effect, status, obligations }
    }

    /// What the policy declares of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&Type> {
        self.symbols.get(name).map(|declared| &declared.kind)
    }
}

fn parse(file: File<'_>) -> Result<tree::Node, PolicyError> {
    let wrong = |(line, message)| PolicyError { file: file.name.to_owned(), line, path: String::new(), message };
    tree::parse(file.text).map_err(wrong)
}
