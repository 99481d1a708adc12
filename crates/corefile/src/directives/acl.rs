//! `acl [ZONE…] { … }`: who may ask for what.

use crate::form::{ANY, Form, Words, many};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::{FileSpan, Zone};
use namewall_policy::addr::{Cidr, parse_address};
use namewall_policy::dns_codes::TYPES;

pub(crate) const ACL: Form = many("acl", "[ZONE…] { … }", 0, ANY);

const USAGE: &str = "[type TYPE…|*] [net CIDR…|*]";
const OPTIONS: Words<AclAction> = Words {
    served: &[
        (AclAction::Allow, many("allow", USAGE, 0, ANY)),
        (AclAction::Block, many("block", USAGE, 0, ANY)),
        (AclAction::Filter, many("filter", USAGE, 0, ANY)),
        (AclAction::Drop, many("drop", USAGE, 0, ANY)),
    ],
    not_served: &[],
};

#[derive(Clone, PartialEq, Debug)]
pub struct Acl {
    /// Empty is all of the server's.
    pub zones: Vec<Zone>,
    /// The first that matches counts.
    pub policies: Vec<AclPolicy>,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Debug)]
pub struct AclPolicy {
    pub action: AclAction,
    /// None is all types.
    pub types: Option<Vec<u16>>,
    /// None is all clients.
    pub clients: Option<Vec<Cidr>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclAction {
    Allow,
    /// REFUSED
    Block,
    /// An answer without data.
    Filter,
    /// Silence.
    Drop,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Acl {
    let mut acl = Acl { zones: report.zones(&line.args), policies: Vec::new(), place: line.place().clone() };
    for (action, line) in report.options(line, &OPTIONS) {
        acl.policies.extend(policy(action, &line.args, report));
    }
    acl
}

/// None if a part of it cannot be read: the Corefile is refused then.
fn policy(action: AclAction, args: &[Token], report: &mut Report) -> Option<AclPolicy> {
    let mut policy = AclPolicy { action, types: None, clients: None };
    let mut rest = args;
    while let Some((section, after)) = rest.split_first() {
        let is_type = report.word(section, &[("type", true), ("net", false)])?;
        let count = after.iter().take_while(|word| !matches!(&*word.text, "type" | "net")).count();
        let (words, further) = after.split_at(count);
        rest = further;
        if words.is_empty() {
            report
                .error("missing-argument", &section.place, format!("nothing follows `{}`", section.text))
                .help(format!("write `{USAGE}`"));
            return None;
        }
        let is_all = words.iter().any(|word| &*word.text == "*");
        match is_type {
            _ if is_all => {}
            true => {
                let read: Option<Vec<u16>> = words.iter().map(|word| report.code(word, &TYPES)).collect();
                policy.types.get_or_insert_default().extend(read?);
            }
            false => {
                let read: Option<Vec<Cidr>> = words.iter().map(|word| client(word, report)).collect();
                policy.clients.get_or_insert_default().extend(read?);
            }
        }
        // `*` beside others is everybody.
        if is_all {
            if is_type { policy.types = None } else { policy.clients = None }
        }
    }
    Some(policy)
}

/// An address, or a block of addresses.
fn client(word: &Token, report: &mut Report) -> Option<Cidr> {
    if let Some(address) = parse_address(&word.text) {
        return Some(Cidr::host(address));
    }
    match word.text.parse() {
        Ok(cidr) => Some(cidr),
        Err(error) => {
            let error: namewall_policy::addr::CidrError = error;
            report.error("bad-word", &word.place, error.to_string()).help("write an address or a block of addresses");
            None
        }
    }
}
