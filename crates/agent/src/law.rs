//! What is in force, as far as learning needs to know it.

use namewall_policy::bits::BitSet;
use namewall_policy::domain::{DomainName, DomainPattern, PatternId};
use namewall_policy::lease::{NeverLeased, Refusal};
use namewall_policy::{Program, Snapshot};
use std::net::IpAddr;
use std::sync::OnceLock;

#[derive(Debug)]
pub(crate) struct Law {
    program: Program,
    never: NeverLeased,
    /// The patterns each Class has rules for, as far as somebody has asked.
    names: Vec<OnceLock<BitSet>>,
}

impl Law {
    pub(crate) fn new(snapshot: &Snapshot, program: &Program, cluster_domain: &DomainName) -> Self {
        let never = NeverLeased::new(snapshot, cluster_domain.clone());
        let names = program.classes.iter().map(|_| OnceLock::new()).collect();
        Self { program: program.clone(), never, names }
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

    pub(crate) fn refusal(&self, name: &DomainName, address: IpAddr) -> Option<Refusal> {
        self.never.refusal(&self.program, name, address)
    }
}
