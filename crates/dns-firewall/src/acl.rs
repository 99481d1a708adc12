//! `acl`: who may ask for what. Rules of `firewall` are asked before.

use crate::message::is_under;
use crate::reply::explained;
use namewall_corefile::{Acl, AclAction};
use namewall_dns::wire::{Header, Question, Rcode, reply as plain};
use std::net::IpAddr;

/// Extended errors (RFC 8914 §4): "Blocked" and "Filtered".
const BLOCKED: u16 = 15;
const FILTERED: u16 = 17;

/// What a client gets whose question does not pass: a reply, or silence.
#[derive(Clone)]
pub(crate) enum Denied {
    Reply(Vec<u8>),
    Silence,
}

impl Denied {
    /// What the client gets, in words.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            Self::Silence => "nothing",
            Self::Reply(reply) => match Header::read(reply).map(|header| (header.rcode, header.is_truncated)) {
                Ok((Rcode::REFUSED, _)) => "REFUSED",
                Ok((Rcode::NX_DOMAIN, _)) => "NXDOMAIN",
                Ok((Rcode::SERV_FAIL, _)) => "SERVFAIL",
                Ok((_, true)) => "an answer that is cut off",
                _ => "NOERROR without data",
            },
        }
    }
}

/// None if the question passes. The first policy that matches counts, of the first list that has one.
pub(crate) fn denied(lists: &[Acl], client: IpAddr, question: &Question) -> Option<AclAction> {
    let client = client.to_canonical();
    let policies = lists.iter().filter(|list| list.zones.iter().any(|zone| is_under(&question.name, zone)));
    let mut matching = policies.filter_map(|list| {
        list.policies.iter().find(|policy| {
            let is_type = policy.types.as_ref().is_none_or(|types| types.contains(&question.record_type.0));
            let is_client =
                |blocks: &Vec<_>| blocks.iter().any(|cidr: &namewall_policy::addr::Cidr| cidr.contains(client));
            is_type && policy.clients.as_ref().is_none_or(is_client)
        })
    });
    matching.next().map(|policy| policy.action).filter(|action| *action != AclAction::Allow)
}

/// What the client gets whose question an action stops.
pub(crate) fn denial(action: AclAction, query: &[u8]) -> Denied {
    match action {
        AclAction::Filter => Denied::Reply(explained(plain::failure(query, Rcode::NO_ERROR), FILTERED, "")),
        AclAction::Drop => Denied::Silence,
        AclAction::Block | AclAction::Allow => {
            Denied::Reply(explained(plain::failure(query, Rcode::REFUSED), BLOCKED, ""))
        }
    }
}
