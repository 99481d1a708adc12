//! The rules by name that are enforced: whose they are, and which addresses they
//! never open.

use namewall_policy::Program;
use namewall_policy::bits::BitSet;
use namewall_policy::domain::{DomainName, DomainPattern, PatternId};
use namewall_policy::lease::{NeverLeased, Refusal, Rules};
use namewall_policy::model::NodeId;
use namewall_policy::program::Holder;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct NameRules {
    program: Program,
    /// The node whose pods ask us.
    node: Option<NodeId>,
    never: NeverLeased,
    /// The patterns of each Class' rules, found when a pod of it asks first.
    names: Arc<Vec<OnceLock<BitSet>>>,
}

impl NameRules {
    pub(crate) fn new(before: Option<&Self>, node: Option<NodeId>, program: &Program, never: &NeverLeased) -> Self {
        // As long as only pods come and go, the patterns of each Class stay the same.
        let is_same = |before: &&Self| {
            let same_classes = Arc::ptr_eq(&before.program.classes, &program.classes);
            same_classes && Arc::ptr_eq(&before.program.rules, &program.rules)
        };
        let names = match before.filter(is_same) {
            Some(before) => before.names.clone(),
            None => Arc::new(program.classes.iter().map(|_| OnceLock::new()).collect()),
        };
        Self { program: program.clone(), node, never: never.clone(), names }
    }

    /// What decides which leases there may be.
    pub(crate) fn of_leases(&self) -> Rules<'_> {
        Rules { program: &self.program, never_leased: &self.never }
    }

    /// True if the address is of a pod of this node.
    pub(crate) fn is_own(&self, client: IpAddr) -> bool {
        let Some(Holder::Pod(id)) = self.program.by_address.get(&client) else { return false };
        let node = self.program.member(*id).node;
        self.node.is_none() || node.is_none() || node == self.node
    }

    /// The patterns of this pod's rules; None if it is no pod, or has no rule by name (S6.10).
    pub(crate) fn names_of(&self, client: IpAddr) -> Option<&BitSet> {
        let class = self.program.class_at(client)?;
        let names = self.names.get(class.index())?.get_or_init(|| self.program.names_of(class));
        (!names.is_empty()).then_some(names)
    }

    /// True if the rules of this pod speak of the same names as before.
    pub(crate) fn are_the_same_for(&self, client: IpAddr, before: &Self) -> bool {
        if Arc::ptr_eq(&self.names, &before.names) && self.program.class_at(client) == before.program.class_at(client) {
            return true;
        }
        let patterns = |rules: &Self| -> BTreeSet<DomainPattern> {
            let ids = rules.names_of(client).into_iter().flat_map(BitSet::iter);
            ids.map(|id| rules.program.patterns.get(PatternId(id as u32)).clone()).collect()
        };
        patterns(self) == patterns(before)
    }

    /// The patterns among these that match the name.
    pub(crate) fn matching(&self, names: &BitSet, name: &DomainName) -> Vec<&DomainPattern> {
        let all = self.program.patterns.matching(name).into_iter();
        all.filter(|PatternId(id)| names.contains(*id as usize)).map(|id| self.program.patterns.get(id)).collect()
    }

    /// All patterns that match the name, of every pod's rules.
    pub(crate) fn all_matching(&self, name: &DomainName) -> impl Iterator<Item = &DomainPattern> {
        self.program.patterns.matching(name).into_iter().map(|id| self.program.patterns.get(id))
    }

    /// Why the name must not open the address (S6.8); None if it may.
    pub(crate) fn refusal(&self, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        self.never.refusal(&self.program, name, address)
    }
}
