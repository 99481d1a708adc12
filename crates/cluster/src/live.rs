//! The Snapshot of a cluster that lives, kept up with: a pod that comes, changes
//! or goes costs what it is, and not what the cluster is.

use crate::facts::Facts;
use crate::lower::{Behind, Pool, Settings, add_api_server, service_of, workload_of};
use crate::store::Key;
use namewall_policy::model::{DnsConfig, Service, WorkloadId};
use namewall_policy::{Snapshot, asked_labels};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many Roles that may be played by nobody are put up with.
const SPARE_ROLES: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) settings: Settings,
    pub(crate) snapshot: Snapshot,
    /// The keys of the labels that some selector asks for. By others, such as the hash of a template, pods are not
    /// told apart: Roles would come with every rollout.
    asked: FxHashSet<Arc<str>>,
    /// Places that nobody has.
    vacant: Vec<WorkloadId>,
    /// How many Roles there were at first.
    roles: usize,
}

impl Live {
    /// All anew, on a Snapshot that has everything else.
    pub(crate) fn new(settings: Settings, mut snapshot: Snapshot, facts: &mut Facts, pool: &mut Pool) -> Self {
        let services = facts.services.objects.values().filter_map(|fact| fact.now.as_deref());
        let by_services = services.flat_map(|service| &service.selector.requirements).map(|one| one.key());
        let asked: FxHashSet<Arc<str>> =
            asked_labels(&snapshot.policies).into_iter().chain(by_services).map(Arc::from).collect();
        for (key, fact) in &mut facts.pods.objects {
            fact.place = None;
            if let Some(described) = &fact.now {
                let mut workload = workload_of(&mut snapshot, described, Some(&asked));
                workload.addresses = facts.attached.addresses_of(key, described);
                let place = snapshot.add_workload(workload);
                snapshot.set_dns(place, described.dns_config());
                fact.place = Some(place.0);
            }
        }
        let slices = facts.slices.objects.values().filter_map(|fact| fact.now.as_deref());
        for endpoints in slices.filter(|endpoints| endpoints.is_api_server()) {
            add_api_server(&mut snapshot, endpoints.served());
        }
        for fact in facts.services.objects.values_mut() {
            fact.place = None;
        }
        let keys: Vec<Key> = facts.services.objects.keys().cloned().collect();
        for key in keys {
            let Some(service) = lowered(&mut snapshot, facts, &key) else { continue };
            if let Some(fact) = facts.services.objects.get_mut(&key) {
                fact.place = Some(snapshot.services.len() as u32);
                let described = fact.now.iter().filter(|service| service.is_api_server());
                described.for_each(|service| add_api_server(&mut snapshot, service.served()));
            }
            snapshot.services.push(service);
        }
        *pool = Pool::of(facts.pods.all());
        facts.pods.settle();
        facts.services.settle();
        facts.slices.settle();
        let roles = snapshot.roles.len();
        Self { settings, snapshot, asked, vacant: Vec::new(), roles }
    }

    /// What has changed since: pods, and what lies behind these Services. False if it is better begun anew.
    pub(crate) fn follow(&mut self, facts: &mut Facts, mut touched: BTreeSet<Key>) -> bool {
        let mut namespaces: BTreeSet<Arc<str>> = BTreeSet::new();
        for place in std::mem::take(&mut facts.pods.gone) {
            let namespace = self.snapshot.workload(WorkloadId(place)).namespace;
            namespaces.insert(self.snapshot.namespace(namespace).name.clone());
            self.vacate(WorkloadId(place));
        }
        for key in std::mem::take(&mut facts.pods.changed) {
            let Some(fact) = facts.pods.objects.get_mut(&key) else { continue };
            namespaces.insert(key.namespace.clone());
            let Some(described) = &fact.now else {
                fact.place.take().into_iter().for_each(|place| self.vacate(WorkloadId(place)));
                continue;
            };
            let mut workload = workload_of(&mut self.snapshot, described, Some(&self.asked));
            workload.addresses = facts.attached.addresses_of(&key, described);
            let place = fact.place.or_else(|| self.vacant.pop().map(|place| place.0));
            let at = match place {
                Some(place) => place,
                None => self.snapshot.add_workload(workload.clone()).0,
            };
            if *self.snapshot.workload(WorkloadId(at)) != workload {
                self.snapshot.workloads.set(at as usize, workload);
            }
            self.snapshot.set_dns(WorkloadId(at), described.dns_config());
            fact.place = Some(at);
        }
        for namespace in namespaces {
            touched.extend(selecting(facts, &namespace));
        }
        for key in touched {
            let place = facts.services.objects.get(&key).and_then(|fact| fact.place);
            let (Some(place), Some(service)) = (place, lowered(&mut self.snapshot, facts, &key)) else { continue };
            if self.snapshot.services[place as usize] != service {
                self.snapshot.services.set(place as usize, service);
            }
        }
        self.snapshot.roles.len() <= 2 * self.roles + SPARE_ROLES
    }

    fn vacate(&mut self, place: WorkloadId) {
        let vacated = self.snapshot.workload(place).vacated();
        self.snapshot.workloads.set(place.index(), vacated);
        self.snapshot.set_dns(place, DnsConfig::default());
        self.vacant.push(place);
    }
}

/// A Service as it is now.
fn lowered(snapshot: &mut Snapshot, facts: &Facts, key: &Key) -> Option<Service> {
    let described = facts.services.objects.get(key)?.now.as_deref()?;
    let listed = facts.endpoints_of(&described.namespace, &described.name);
    let behind = match listed.is_empty() {
        false => Behind::Listed(listed),
        true => {
            let pods = facts.pods.within(&described.namespace).filter_map(|fact| fact.place);
            Behind::Selected(pods.map(WorkloadId).collect())
        }
    };
    Some(service_of(snapshot, described, &behind))
}

/// The Services of a namespace that select pods themselves, since no object lists their endpoints (yet).
fn selecting(facts: &Facts, namespace: &str) -> Vec<Key> {
    let listed = facts.slices.within(namespace).filter_map(|fact| fact.now.as_deref());
    let listed: FxHashSet<&str> = listed.map(|endpoints| &*endpoints.service).collect();
    let services = facts.services.within(namespace).filter_map(|fact| fact.now.as_deref());
    let selecting = services.filter(|one| !one.selector.is_everything() && !listed.contains(&*one.name));
    selecting.map(|one| Key { namespace: one.namespace.clone(), name: one.name.clone() }).collect()
}
