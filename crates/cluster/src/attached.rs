//! Addresses of pods that the node knows before the API server does: the node's
//! container runtime has given them, and `status.podIPs` follows a second later.

use crate::document::Document;
use crate::kinds::{self, MIRROR_ANNOTATION};
use crate::lower::Described;
use crate::store::Key;
use crate::yaml::{Node, Value};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The uid of a pod, as a digest: an agent keeps a hundred thousand, and compares one with another of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PodUid(u64);

impl PodUid {
    pub fn of(text: &str) -> Self {
        let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// The uid that a runtime has for the pod of a document. Of a static pod the API server has a mirror with a uid of
    /// its own, which names the other.
    pub(crate) fn read(document: &Document) -> Option<Self> {
        let metadata = document.node.get("metadata")?;
        let mirrored = metadata.get("annotations").and_then(|annotations| annotations.get(MIRROR_ANNOTATION));
        mirrored.or_else(|| metadata.get("uid")).and_then(Node::as_str).map(Self::of)
    }
}

/// A pod of this node, and the addresses that its runtime gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodAddresses {
    pub pod: Key,
    pub uid: PodUid,
    pub addresses: Arc<[IpAddr]>,
    /// The link-local address of its interface, which no status has. It is the pod's for as long as the interface is.
    pub link_local: Option<Ipv6Addr>,
    /// True if the runtime gave them while somebody watched: a status that is known already is older. A pod whose
    /// sandbox is made anew has the old one's addresses in its status until kubelet writes the new ones.
    pub is_new: bool,
}

#[derive(Debug)]
struct Given {
    by: PodAddresses,
    /// The addresses in the status when these were given, which they replace.
    replaced: Arc<[IpAddr]>,
}

impl Given {
    fn is_of(&self, pod: &Described) -> bool {
        // Manifests in files need not have a uid.
        !pod.host_network && pod.uid.is_none_or(|uid| uid == self.by.uid)
    }

    /// Whether the status says nothing yet, or nothing new.
    fn counts_for(&self, pod: &Described) -> bool {
        self.is_of(pod) && (pod.addresses.is_empty() || pod.addresses == self.replaced)
    }
}

/// All that were given.
#[derive(Default, Debug)]
pub(crate) struct Attached(BTreeMap<Key, Given>);

impl Attached {
    /// Takes these in place of those before. Returns the pods for which that makes a difference.
    pub(crate) fn replace<'a>(
        &mut self,
        pods: &[PodAddresses],
        known: impl Fn(&Key) -> Option<&'a Described>,
    ) -> Vec<Key> {
        let Self(given) = self;
        let mut changed = Vec::new();
        given.retain(|key, one| {
            let stays = pods.contains(&one.by);
            if !stays {
                changed.push(key.clone());
            }
            stays
        });
        for by in pods.iter().filter(|by| !given.contains_key(&by.pod)).cloned().collect::<Vec<_>>() {
            let known = known(&by.pod).filter(|_| by.is_new);
            let replaced = known.map(|pod| pod.addresses.clone()).unwrap_or_default();
            changed.push(by.pod.clone());
            given.insert(by.pod.clone(), Given { by, replaced });
        }
        changed
    }

    /// The addresses of a pod: those of its status, unless the node knows newer ones.
    pub(crate) fn addresses_of(&self, key: &Key, pod: &Described) -> Arc<[IpAddr]> {
        let Some(given) = self.0.get(key).filter(|given| given.is_of(pod)) else { return pod.addresses.clone() };
        let addresses = if given.counts_for(pod) { &given.by.addresses } else { &pod.addresses };
        match given.by.link_local {
            Some(link_local) if !addresses.is_empty() => addresses.iter().copied().chain([link_local.into()]).collect(),
            _ => addresses.clone(),
        }
    }

    /// The pods that have the addresses that they were given.
    pub(crate) fn counting<'a>(
        &'a self,
        known: impl Fn(&Key) -> Option<&'a Described> + 'a,
    ) -> impl Iterator<Item = &'a Key> {
        let has_them = move |key: &Key, given: &Given| {
            known(key).is_some_and(|pod| {
                let has = |address| pod.addresses.contains(address);
                given.counts_for(pod) || (given.is_of(pod) && given.by.addresses.iter().all(has))
            })
        };
        self.0.iter().filter(move |(key, given)| has_them(key, given)).map(|(key, _)| key)
    }
}

/// Gives the pod of a document its addresses, if it is one of these and has none of its own. Returns which one, also if
/// the document has these addresses itself; with others it is another pod.
pub fn give_addresses(document: &mut Document, pods: &[PodAddresses]) -> Option<Key> {
    if document.kind() != Some(kinds::POD.name) {
        return None;
    }
    let (namespace, name) = (document.namespace().unwrap_or("default"), document.name()?);
    let uid = PodUid::read(document);
    let is_it = |one: &&PodAddresses| {
        *one.pod.namespace == *namespace && *one.pod.name == *name && uid.is_none_or(|uid| uid == one.uid)
    };
    let one = pods.iter().find(is_it)?;
    let status = document.node.entry("status")?;
    let has_address = status.get("podIP").is_some_and(|ip| !ip.is_null()) || status.get("podIPs").is_some();
    if has_address {
        let items = match status.get("podIPs").map(|list| &list.value) {
            Some(Value::Seq(items)) => items.as_slice(),
            _ => &[],
        };
        let listed = items.iter().filter_map(|item| item.get("ip"));
        let listed = listed.chain(status.get("podIP")).filter_map(|ip| ip.as_str()?.parse().ok());
        let listed: Vec<IpAddr> = listed.collect();
        return one.addresses.iter().all(|address| listed.contains(address)).then(|| one.pod.clone());
    }
    let mark = status.mark;
    let list = status.entry("podIPs")?;
    let items = one.addresses.iter().map(|address| {
        let mut item = Node::null(mark);
        if let Some(ip) = item.entry("ip") {
            *ip = Node { mark, value: Value::String(address.to_string().into()) };
        }
        item
    });
    list.value = Value::Seq(items.collect());
    Some(one.pod.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::kinds::POD;
    use crate::store::Store;
    use serde_json::{Value as Json, json};

    fn pod(uid: &str, addresses: &[&str]) -> Json {
        let ips: Vec<Json> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
        json!({"metadata": {"namespace": "shop", "name": "web", "uid": uid}, "spec": {"nodeName": "n1"},
               "status": {"phase": "Pending", "podIPs": ips}})
    }

    fn given(uid: &str, address: &str, is_new: bool) -> PodAddresses {
        let pod = Key { namespace: "shop".into(), name: "web".into() };
        let addresses = [address.parse().expect("one")].into();
        PodAddresses { pod, uid: PodUid::of(uid), addresses, link_local: None, is_new }
    }

    #[test]
    fn s1_9_a_manifest_may_have_the_addresses_that_the_runtime_gave() {
        let attach = |status: &str, address: &str| {
            let text =
                format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: shop}}, status: {status}}}");
            let (mut documents, findings) = Document::read_all(&"pod.yaml".into(), &text);
            assert!(findings.is_empty());
            give_addresses(&mut documents[0], &[given("u1", address, true)]).is_some()
        };
        for status in ["{}", "{podIP: 10.0.0.1}", "{podIPs: [{ip: 'fd00::1'}, {ip: 10.0.0.1}]}"] {
            assert!(attach(status, "10.0.0.1"), "{status}");
        }
        for status in ["{podIP: 10.0.0.1}", "{podIPs: []}", "{podIPs: 7}"] {
            assert!(!attach(status, "10.0.0.2"), "{status}");
        }
    }

    struct Trial(Store);

    impl Trial {
        fn new() -> Self {
            let mut store = Store::default();
            store.read(&Settings::default());
            Self(store)
        }

        fn apply(&mut self, pod: &Json) -> &mut Self {
            self.0.apply(POD.preferred(), pod);
            self
        }

        fn attach(&mut self, pods: &[PodAddresses]) -> &mut Self {
            self.0.attach(pods);
            self
        }

        /// What the pod has, and whether that is what it was given.
        fn says(&mut self, addresses: &[&str], counts: bool) -> &mut Self {
            let read = self.0.read(&Settings::default());
            let has: Vec<String> =
                read.lowered.snapshot.workloads[0].addresses.iter().map(ToString::to_string).collect();
            assert_eq!(
                (has.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), self.0.attached().count() == 1),
                (addresses, counts)
            );
            self
        }
    }

    #[test]
    fn s1_9_what_the_node_gave_counts_until_the_status_says_otherwise() {
        let one = [given("u1", "10.0.0.7", true)];
        let mut trial = Trial::new();
        trial.apply(&pod("u1", &[])).says(&[], false);
        trial.attach(&one).says(&["10.0.0.7"], true);
        trial.apply(&pod("u1", &["10.0.0.7", "fd00::7"])).says(&["10.0.0.7", "fd00::7"], true);
        trial.apply(&pod("u1", &["10.0.0.8"])).says(&["10.0.0.8"], false);
        trial.apply(&pod("u1", &[])).attach(&[]).says(&[], false);
    }

    #[test]
    fn s1_9_what_was_given_waits_for_the_pod_of_that_uid() {
        let one = [given("u2", "10.0.0.7", true)];
        let mut trial = Trial::new();
        trial.attach(&one).apply(&pod("u1", &["10.0.0.6"])).says(&["10.0.0.6"], false);
        trial.apply(&pod("u2", &[])).says(&["10.0.0.7"], true);
    }

    #[test]
    fn s1_9_a_new_sandbox_replaces_what_the_status_has_of_the_old_one() {
        let mut trial = Trial::new();
        trial.apply(&pod("u1", &["10.0.0.6"])).attach(&[given("u1", "10.0.0.7", true)]).says(&["10.0.0.7"], true);
        trial.apply(&pod("u1", &["10.0.0.7"])).says(&["10.0.0.7"], true);
        // Read from a record: the status may be newer.
        let mut trial = Trial::new();
        trial.apply(&pod("u1", &["10.0.0.6"])).attach(&[given("u1", "10.0.0.7", false)]).says(&["10.0.0.6"], false);
    }

    #[test]
    fn s1_9_the_mirror_of_a_static_pod_is_known_by_the_uid_that_it_mirrors() {
        let mut mirror = pod("u1", &[]);
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "u2"});
        Trial::new().apply(&mirror).attach(&[given("u2", "10.0.0.7", true)]).says(&["10.0.0.7"], true);
    }

    #[test]
    fn s1_9_a_pod_on_the_nodes_network_is_given_nothing() {
        let mut host = pod("u1", &["192.0.2.1"]);
        host["spec"]["hostNetwork"] = true.into();
        Trial::new().apply(&host).attach(&[given("u1", "10.0.0.7", true)]).says(&["192.0.2.1"], false);
    }

    #[test]
    fn a_manifest_without_an_address_is_given_one() {
        let text = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}";
        let give = |text: &str, uid: &str| {
            let mut document = Document::read_all(&"a.yaml".into(), text).0.remove(0);
            let given = give_addresses(&mut document, &[given(uid, "10.0.0.7", true)]).is_some();
            (given, document.node.to_json()["status"]["podIPs"][0]["ip"].as_str().map(str::to_owned))
        };
        assert_eq!(give(text, "u1"), (true, Some("10.0.0.7".to_owned())));
        assert_eq!(give(&text.replace("shop}", "shop, uid: u2}"), "u1"), (false, None));
        assert_eq!(give(&text.replace("name: web", "name: api"), "u1"), (false, None));
        let known = text.replace("shop}}", "shop}, status: {podIP: 10.0.0.6}}");
        assert_eq!(give(&known, "u1"), (false, None));
    }
}
