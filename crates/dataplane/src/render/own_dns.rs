//! The ports that questions are taken to. They answer for servers that a pod
//! may be denied, so nothing gets there but by `dns/to`:
//!
//! ```text
//! input  egress  was not taken; the port may be one of ours ─► from this node? return; one of ours? drop
//! ```
//! That covers pods of this node, pods of others, which may have their node's
//! address, and Services with one of these ports as a backend.

use super::dns::{Intercept, Listener};
use super::{Render, Scope};
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::table::Table;
use std::collections::BTreeSet;
use std::net::IpAddr;

const OWN: &str = "dns/own";
const REFUSE: &str = "dns/refuse";
/// The text in the log of denials, in place of a rule's name.
const WHY: &str = "DNS port of namewall, where only questions arrive that were taken";

/// From the base chain, by the lowest and the highest port: one test for all other packets.
pub(super) fn leads_there(low: u16, high: u16) -> Rule {
    Rule::new([Test::Port { low, high }], Do::Jump(OWN.to_owned()))
}

impl Render<'_> {
    pub(super) fn own_dns_chain(&self, table: &mut Table, intercept: &Intercept) {
        let at = |end, address| Test::Between { end, low: address, high: address };
        let addresses: BTreeSet<IpAddr> = intercept.listeners.iter().map(|listener| listener.address).collect();
        // The node itself asks from the address that it asks. No link brings that as a source.
        let own = addresses.into_iter().map(|address| Rule::new([at(End::Source, address)], Do::Return));
        let refuse = intercept.listeners.iter().flat_map(|&Listener { address, port, .. }| {
            Scope::ASKED_OVER.map(|protocol| {
                let is_it = [Test::Protocol(protocol), Test::Port { low: port, high: port }];
                let tests: Vec<Test> = is_it.into_iter().chain([at(End::Destination, address)]).collect();
                Rule::new(tests, Do::Goto(REFUSE.to_owned()))
            })
        });
        table.chains.entry(OWN.to_owned()).or_default().rules = own.chain(refuse).collect();
        table.chains.entry(REFUSE.to_owned()).or_default().rules = self.log_and_drop(WHY).to_vec();
    }
}
