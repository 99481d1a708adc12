//! `default_decision`: what counts if an engine fails. Infoblox' plugin wrote it as attributes, with a
//! number for what is done.

use crate::form::{ANY, Form, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use namewall_expression::Outcome;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub(super) const FORM: Form = once("default_decision", "allow|block|refuse|drop", 1, ANY);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub outcome: Outcome,
    /// What is said besides.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

/// What can be written for what is done.
pub(super) const OUTCOMES: [(&str, Outcome); 6] = [
    ("allow", Outcome::Allow),
    ("block", Outcome::Block),
    ("refuse", Outcome::Refuse),
    ("drop", Outcome::Drop),
    ("permit", Outcome::Allow),
    ("deny", Outcome::Block),
];

pub(super) fn read(option: &Line, report: &mut Report) -> Option<Decision> {
    let mut outcome = None;
    let mut attributes = Vec::new();
    let mut redirect_to = None;
    for word in &option.args {
        match word.text.split_once('=') {
            None => outcome = report.word(word, &OUTCOMES),
            Some(("policy_action", number)) => outcome = action(number, word, report),
            Some(("redirect_to", to)) => redirect_to = Some(to.trim_matches('"')),
            Some((name, value)) => attributes.push((name.into(), value.trim_matches('"').into())),
        }
    }
    let address = redirect_to.and_then(|to| to.parse::<IpAddr>().ok());
    let outcome = match (outcome, address) {
        (Some(Outcome::Redirect(_)), Some(to)) => Outcome::Redirect(SocketAddr::new(to, 53)),
        (Some(Outcome::Redirect(_)), None) => {
            report
                .error("bad-decision", option.place(), "a redirect needs an address")
                .help("add `redirect_to=ADDRESS`");
            return None;
        }
        (Some(outcome), _) => {
            attributes.extend(redirect_to.map(|to| ("redirect_to".into(), to.into())));
            outcome
        }
        (None, _) => {
            report
                .error("bad-decision", option.place(), "it is not said what is done")
                .help("write `default_decision allow`, `block`, `refuse` or `drop`");
            return None;
        }
    };
    Some(Decision { outcome, attributes })
}

fn action(number: &str, word: &Token, report: &mut Report) -> Option<Outcome> {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 53));
    let outcome = match number {
        "1" => Outcome::Drop,
        "2" => Outcome::Allow,
        "3" => Outcome::Block,
        "4" => Outcome::Redirect(nowhere),
        "5" => Outcome::Refuse,
        _ => {
            report
                .error("bad-decision", &word.place, format!("`{number}` is not an action"))
                .help("1 is drop, 2 allow, 3 block, 4 redirect, 5 refuse");
            return None;
        }
    };
    Some(outcome)
}
