//! `in-list`: the caller loads the lists, and answers through `Facts::listed`.

use crate::error::{Fault, Span};
use crate::node::{Evaluated, Node};
use crate::{Facts, Value};
use std::sync::Arc;

/// `in-list`
#[derive(Debug)]
pub(crate) struct InList {
    pub(crate) of: Node,
    /// The files of the lists.
    pub(crate) lists: Box<[Arc<str>]>,
    pub(crate) span: Span,
}

impl InList {
    /// Whether one of the lists covers the name. What is not set is on no list.
    pub(crate) fn holds(&self, facts: &dyn Facts) -> Evaluated<bool> {
        let name = match self.of.fact(facts) {
            Some(Value::Text(name)) => name,
            _ => self.of.value(facts)?.into_text(),
        };
        for list in &self.lists {
            if facts.listed(list, &name).map_err(|message| Fault::new(self.span, message))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
