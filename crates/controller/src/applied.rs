//! Which nodes enforce which EgressFirewalls, for their status (S8.1). Pure.
//!
//! A node publishes one digest of all EgressFirewalls that it enforces. Here the
//! digests of the last moments are known, so that a node which is a little behind
//! counts for every firewall that has not changed since. What a node has once said
//! of a generation holds: other firewalls that change do not take it back.

use namewall_cluster::kinds::EGRESS_FIREWALL;
use namewall_cluster::yaml::{Node, Value};
use namewall_cluster::{ENFORCEMENT_ANNOTATION, Key, Store};
use namewall_kubernetes::NodesReport;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// So many digests are known, the newest last.
const MOST_DIGESTS: usize = 256;
/// What OVN-Kubernetes writes for each zone, and for all.
const APPLIED: &str = "EgressFirewall Rules applied";
/// Neither is true of a firewall that is audited.
const AUDITED: &str = "EgressFirewall Rules audited, not enforced";

#[derive(Debug, Default)]
pub(crate) struct AppliedFirewalls {
    firewalls: BTreeMap<Key, Followed>,
    digests: VecDeque<Known>,
    /// How often the firewalls have changed.
    version: u64,
    /// The version of all objects that the firewalls were last looked at in.
    seen: Option<u64>,
}

/// A digest, and the version of the firewalls that has it.
#[derive(Debug)]
struct Known {
    digest: String,
    version: u64,
}

#[derive(Debug)]
struct Followed {
    made: Made,
    /// The first version that has it as it is.
    since: u64,
    /// The nodes that enforce it.
    nodes: BTreeSet<Arc<str>>,
    /// Whether all nodes did, at some time.
    is_applied: bool,
    /// It is evaluated, and not enforced (S11).
    is_audited: bool,
    report: Arc<NodesReport>,
}

/// Another uid or generation is another content.
#[derive(PartialEq, Eq, Debug)]
struct Made {
    uid: String,
    generation: i64,
}

impl AppliedFirewalls {
    /// Takes the firewalls as they are now.
    pub(crate) fn follow(&mut self, store: &Store) {
        let seen = Some(store.versions().texts);
        if self.seen == seen {
            return;
        }
        self.seen = seen;
        let digest = store.digest(&EGRESS_FIREWALL);
        let is_new = self.digests.back().is_none_or(|known| known.digest != digest);
        self.version += u64::from(is_new);
        let mut before = std::mem::take(&mut self.firewalls);
        for (key, document) in store.of(&EGRESS_FIREWALL) {
            let metadata = |field| document.node.get("metadata").and_then(|metadata| metadata.get(field));
            let generation = match metadata("generation") {
                Some(Node { value: Value::Int(number), .. }) => *number,
                _ => 0,
            };
            let uid = metadata("uid").and_then(Node::as_str).unwrap_or_default().to_owned();
            let made = Made { uid, generation };
            let same = before.remove(key).filter(|known| known.made == made);
            let (since, nodes) = (self.version, BTreeSet::new());
            let new = || Followed { made, since, nodes, is_applied: false, is_audited: false, report: Arc::default() };
            let mut followed = same.unwrap_or_else(new);
            // An annotation changes no generation.
            let mode = metadata("annotations").and_then(|all| all.get(ENFORCEMENT_ANNOTATION)).and_then(Node::as_str);
            let is_audited = mode == Some("audit");
            if followed.is_audited != is_audited {
                followed.is_audited = is_audited;
                followed.tell();
            }
            self.firewalls.insert(key.clone(), followed);
        }
        if is_new {
            self.digests.push_back(Known { digest, version: self.version });
        }
        if self.digests.len() > MOST_DIGESTS {
            self.digests.pop_front();
        }
    }

    /// Takes the digests that nodes have published. Only nodes that are `there` count.
    pub(crate) fn take(&mut self, enforced: &BTreeMap<Arc<str>, String>, there: &BTreeSet<Arc<str>>) {
        let version = |digest: &str| self.digests.iter().rev().find(|known| known.digest == digest);
        let nodes: Vec<(&Arc<str>, u64)> = enforced
            .iter()
            .filter(|(node, _)| there.contains(*node))
            .filter_map(|(node, digest)| Some((node, version(digest)?.version)))
            .collect();
        let agents: BTreeSet<&Arc<str>> = enforced.keys().filter(|node| there.contains(*node)).collect();
        for followed in self.firewalls.values_mut().filter(|followed| !followed.is_applied) {
            let before = followed.nodes.len();
            followed.nodes.retain(|node| agents.contains(node));
            let mut has_changed = followed.nodes.len() != before;
            for (node, _) in nodes.iter().filter(|(_, at)| *at >= followed.since) {
                has_changed |= followed.nodes.insert((*node).clone());
            }
            followed.is_applied = !agents.is_empty() && followed.nodes.len() == agents.len();
            if has_changed || followed.is_applied {
                followed.tell();
            }
        }
    }

    /// The status of a firewall, in OVN-Kubernetes' words. None if it is not known.
    pub(crate) fn report(&self, key: &Key) -> Option<Arc<NodesReport>> {
        self.firewalls.get(key).map(|followed| followed.report.clone())
    }
}

impl Followed {
    /// Writes the report anew.
    fn tell(&mut self) {
        let words = if self.is_audited { AUDITED } else { APPLIED };
        let messages = self.nodes.iter().map(|node| format!("{node}: {words}")).collect();
        self.report = Arc::new(NodesReport { status: if self.is_applied { words } else { "" }, messages });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct World {
        store: Store,
        applied: AppliedFirewalls,
        enforced: BTreeMap<Arc<str>, String>,
    }

    impl World {
        /// Two nodes with an agent that has said nothing yet, and one without an agent.
        fn new() -> Self {
            let enforced = ["a", "b"].map(|node| (node.into(), String::new())).into();
            Self { store: Store::default(), applied: AppliedFirewalls::default(), enforced }
        }

        fn put(&mut self, namespace: &str, uid: &str, generation: i64) -> String {
            let metadata = json!({"name": "default", "namespace": namespace, "uid": uid, "generation": generation});
            self.store.apply(EGRESS_FIREWALL.preferred(), &json!({"metadata": metadata, "spec": {"egress": []}}));
            self.applied.follow(&self.store);
            self.store.digest(&EGRESS_FIREWALL)
        }

        fn enforce(&mut self, node: &str, digest: &str) {
            self.enforced.insert(node.into(), digest.to_owned());
            self.applied.take(&self.enforced, &["a", "b", "c"].map(Arc::from).into());
        }

        /// The status of a firewall, and how many messages it has.
        fn told(&self, namespace: &str) -> (&'static str, usize) {
            let key = Key { namespace: namespace.into(), name: "default".into() };
            let report = self.applied.report(&key).expect("it is known");
            (report.status, report.messages.len())
        }
    }

    #[test]
    fn s8_1_a_firewall_is_applied_when_every_node_with_an_agent_enforces_it() {
        let mut world = World::new();
        let digest = world.put("shop", "u", 1);
        world.enforce("a", &digest);
        assert_eq!(world.told("shop"), ("", 1));
        world.enforce("b", &digest);
        assert_eq!(world.told("shop"), (APPLIED, 2));
        world.put("shop", "u", 2);
        world.enforce("a", &digest);
        assert_eq!(world.told("shop"), ("", 0), "another generation is another content");
        world.put("shop", "other", 1);
        world.enforce("a", &digest);
        assert_eq!(world.told("shop"), ("", 0), "so is another object of its name");
    }

    #[test]
    fn s8_1_firewalls_that_change_do_not_keep_others_from_being_applied() {
        let mut world = World::new();
        let digest = world.put("shop", "u", 1);
        for generation in 1..20 {
            world.put("busy", "v", generation);
        }
        world.enforce("a", &digest);
        world.enforce("b", &digest);
        assert_eq!((world.told("shop"), world.told("busy")), ((APPLIED, 2), ("", 0)));
        let digest = world.put("busy", "v", 20);
        world.enforce("a", "of a state that was not seen here");
        assert_eq!(world.told("shop"), (APPLIED, 2), "it is not taken back");
        world.enforce("a", &digest);
        world.enforce("b", &digest);
        assert_eq!(world.told("busy"), (APPLIED, 2));
    }
}
