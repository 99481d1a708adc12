//! A pod's address is closed from the moment it is anybody's until its policies
//! are in place:
//!
//! ```text
//! forward, input  egress   no class; the source is of this node's blocks      ─► no pod that is known? drop
//! forward         ingress  no class; the destination is of this node's blocks ─► no pod that is known? drop
//! ```

use super::{LOG_BURST, LOG_RATE, Render};
use crate::nflog::DENY;
use crate::nft::rule::{Action as Do, End, Rule, Test};
use crate::nft::set::{self, Version};
use crate::nft::table::Table;

const ENDS: [(End, &str); 2] = [(End::Source, "closed-source"), (End::Destination, "closed-destination")];
/// The text in the log of denials, in place of a rule's name.
const WHY: &str = "address of the pod network that no pod has";

impl Render<'_> {
    /// The end of a base chain.
    pub(super) fn closed_rules(&self, end: End) -> Vec<Rule> {
        if self.scope.closed.is_empty() {
            return Vec::new();
        }
        let chain = ENDS.iter().find(|(one, _)| *one == end).map_or("", |(_, chain)| chain);
        let leads = |version| Rule::new([within(end, version, set::CLOSED)], Do::Jump(chain.to_owned()));
        Version::BOTH.map(leads).to_vec()
    }

    pub(super) fn closed_chains(&self, table: &mut Table) {
        if self.scope.closed.is_empty() {
            return;
        }
        for (end, name) in ENDS {
            let known = Version::BOTH.map(|version| Rule::new([within(end, version, set::PODS)], Do::Return));
            let chain = table.chains.entry(name.to_owned()).or_default();
            chain.rules = known.into_iter().chain(self.log_and_drop(WHY)).collect();
        }
    }

    /// The end of a chain that denies without a policy: `why` stands in the log in the place of a rule.
    pub(super) fn log_and_drop(&self, why: &str) -> [Rule; 2] {
        let limit = Test::AtMost { a_second: LOG_RATE, burst: LOG_BURST };
        let prefix = format!("{DENY}{why}");
        let log = Rule::new([limit], Do::Log { group: self.scope.log_group, prefix });
        let drop = Rule { tests: Vec::new(), actions: vec![Do::Count, Do::Drop], comment: Some(why.to_owned()) };
        [log, drop]
    }

    pub(super) fn fill_closed(&self, table: &mut Table) {
        if !self.scope.closed.is_empty() {
            self.fill_blocks(table, set::CLOSED, &self.scope.closed.iter().copied().collect());
        }
    }
}

fn within(end: End, version: Version, twins: set::Twins) -> Test {
    Test::Within { end, version, set: twins[version].to_owned() }
}
