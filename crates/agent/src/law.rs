//! What is in force, as far as learning needs to know it.

use namewall_policy::Program;
use namewall_policy::bits::BitSet;
use namewall_policy::domain::{DomainName, DomainPattern, PatternId};
use namewall_policy::lease::{NeverLeased, Refusal};
use namewall_policy::model::NodeId;
use namewall_policy::program::Holder;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(crate) struct Law {
    program: Program,
    /// Whose pods ask us.
    node: Option<NodeId>,
    never: NeverLeased,
    /// The patterns each Class has rules for, as far as somebody has asked.
    names: Arc<Vec<OnceLock<BitSet>>>,
}

impl Law {
    pub(crate) fn new(
        before: Option<&Self>,
        node: Option<NodeId>,
        program: &Program,
        cluster_domain: &DomainName,
    ) -> Self {
        let never = NeverLeased::new(cluster_domain.clone());
        // As long as only pods come and go, what was found out stays found out.
        let is_same = |law: &&Self| {
            Arc::ptr_eq(&law.program.classes, &program.classes) && Arc::ptr_eq(&law.program.rules, &program.rules)
        };
        let names = match before.filter(is_same) {
            Some(law) => law.names.clone(),
            None => Arc::new(program.classes.iter().map(|_| OnceLock::new()).collect()),
        };
        Self { program: program.clone(), node, never, names }
    }

    /// Whether it is a pod of this node.
    pub(crate) fn is_own(&self, client: IpAddr) -> bool {
        let Some(Holder::Pod(id)) = self.program.by_address.get(&client) else { return false };
        let node = self.program.member(*id).node;
        self.node.is_none() || node.is_none() || node == self.node
    }

    /// The patterns that rules of this pod speak of; none if it is no pod, or has no such rule (S6.10).
    pub(crate) fn names_of(&self, client: IpAddr) -> Option<&BitSet> {
        let class = self.program.class_at(client)?;
        let names = self.names.get(class.index())?.get_or_init(|| self.program.names_of(class));
        (!names.is_empty()).then_some(names)
    }

    /// Those of them that match the name.
    pub(crate) fn matching(&self, names: &BitSet, name: &DomainName) -> Vec<&DomainPattern> {
        let all = self.program.patterns.matching(name).into_iter();
        all.filter(|PatternId(id)| names.contains(*id as usize)).map(|id| self.program.patterns.get(id)).collect()
    }

    /// All that match the name, whoever's rules speak of them.
    pub(crate) fn all_matching(&self, name: &DomainName) -> impl Iterator<Item = &DomainPattern> {
        self.program.patterns.matching(name).into_iter().map(|id| self.program.patterns.get(id))
    }

    pub(crate) fn refusal(&self, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        self.never.refusal(&self.program, name, address)
    }
}
