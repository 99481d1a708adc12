//! Interned parts of workloads. The pods of a Deployment have the same labels, ports and owner, so each is kept once.

use super::workloads::Described;
use namewall_policy::labels::Labels;
use namewall_policy::model::{NamedPort, Owner};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default, Debug)]
pub(crate) struct Pool {
    texts: FxHashSet<Arc<str>>,
    labels: FxHashSet<Labels>,
    ports: FxHashSet<Arc<[NamedPort]>>,
    owners: FxHashSet<Arc<Owner>>,
    /// How many parts there were when all of them were in use.
    used: usize,
}

/// So many parts may be unused: the pods of every Job have labels of their own.
const SPARE: usize = 20_000;

impl Pool {
    /// The parts of these workloads, and no others.
    pub(crate) fn of<'d>(all: impl Iterator<Item = &'d Described>) -> Self {
        let mut pool = Self::default();
        all.for_each(|described| pool.keep(described));
        pool.used = pool.len();
        pool
    }

    fn len(&self) -> usize {
        self.texts.len() + self.labels.len() + self.ports.len() + self.owners.len()
    }

    /// True if more than half of the parts may be unused, so that a new pool saves memory.
    pub(crate) fn is_overgrown(&self) -> bool {
        self.len() > 2 * self.used + SPARE
    }

    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        match self.texts.get(text) {
            Some(known) => known.clone(),
            None => intern(&mut self.texts, text.into()),
        }
    }

    pub(crate) fn labels(&mut self, labels: &BTreeMap<String, String>) -> Labels {
        let labels: Labels = labels.iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        intern(&mut self.labels, labels)
    }

    pub(crate) fn ports(&mut self, ports: Vec<NamedPort>) -> Arc<[NamedPort]> {
        intern(&mut self.ports, ports.into())
    }

    pub(crate) fn owner(&mut self, owner: Owner) -> Arc<Owner> {
        intern(&mut self.owners, Arc::new(owner))
    }

    fn keep(&mut self, described: &Described) {
        let Described { namespace, labels, node, ports, owner, workload, account, .. } = described;
        let pairs = labels.texts().flat_map(|(key, value)| [key, value]);
        let texts = [namespace].into_iter().chain(node).chain(account).chain(pairs);
        self.texts.extend(texts.cloned());
        self.owners.extend(owner.iter().chain(workload).cloned());
        self.labels.insert(labels.clone());
        self.ports.insert(ports.clone());
    }
}

fn intern<T: Clone + Eq + std::hash::Hash>(known: &mut FxHashSet<T>, value: T) -> T {
    match known.get(&value) {
        Some(known) => known.clone(),
        None => {
            known.insert(value.clone());
            value
        }
    }
}
