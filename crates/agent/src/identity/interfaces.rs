//! The interfaces that the guard is given: those of attachments; for other pods
//! of this node those that the container runtime's network namespaces lead to;
//! and then those that the node routes the pods' addresses to.

use super::{Attachments, SeenChanges};
use crate::addresses::Machine;
use namewall_cni::sandboxes::Sandboxes;
use namewall_dataplane::netlink::routed::RoutedLink;
use namewall_dataplane::netlink::shared::SharedLink;
use namewall_dataplane::nft::rule::Hardware;
use namewall_dataplane::{PodInterface, PodNamespace, SecondStatus};
use namewall_policy::addr::Cidr;
use namewall_policy::addr::is_own_to_each_machine;
use namewall_policy::model::{NodeId, WorkloadId};
use namewall_policy::program::Holder;
use namewall_policy::{Instant, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often interfaces are looked for where nothing tells of a change.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An interface, and the addresses of this node's pods that it leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Found {
    name: String,
    index: u32,
    hardware: Option<Hardware>,
    addresses: Vec<IpAddr>,
    /// What the node routes that way, if the pod is one of those that have the addresses, and nobody knows which.
    shared: Option<Vec<Cidr>>,
}

/// The interfaces of this node's pods.
#[derive(Debug)]
pub(crate) struct Interfaces {
    attachments: Arc<Attachments>,
    /// The file with what the container runtime says of its pods.
    file: PathBuf,
    /// What it said last; None if nobody asks it.
    sandboxes: Option<Sandboxes>,
    /// Of pods that have no attachment.
    found: Vec<Found>,
    /// Addresses of this node's pods whose interface is not known.
    unknown: BTreeSet<IpAddr>,
    looked_at: Option<Instant>,
    /// Links of the node have changed since the last turn.
    has_new_links: bool,
    /// Changes to tables inside pods' network namespaces.
    seen: SeenChanges,
}

impl Interfaces {
    pub(crate) fn new(attachments: Arc<Attachments>, file: PathBuf) -> Self {
        let (found, unknown) = (Vec::new(), BTreeSet::new());
        let seen = SeenChanges::default();
        Self { attachments, file, sandboxes: None, found, unknown, looked_at: None, has_new_links: false, seen }
    }

    /// With what the process before knew of changes inside pods' network namespaces.
    pub(crate) fn with_seen(self, seen: SeenChanges) -> Self {
        Self { seen, ..self }
    }

    /// Stores what this process knows of them.
    pub(crate) fn store_seen(&mut self, seen: BTreeMap<String, u32>) {
        let unreached = self.attachments.unreached().into_iter().map(|(id, _)| id.container);
        self.seen.store(seen, unreached);
    }

    /// Looks for the interfaces of pods without an attachment, if it is time or links have changed. True if that makes a
    /// difference for the guard.
    pub(crate) fn follow(&mut self, here: &Here<'_>, machine: &mut dyn Machine, now: Instant) -> bool {
        self.has_new_links = machine.links_have_changed();
        let is_due = self.looked_at.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        let may_be_found = self.has_new_links && !self.unknown.is_empty();
        if !is_due && !may_be_found {
            return false;
        }
        self.looked_at = Some(now);
        let mut missing = here.pods();
        for interface in self.attachments.interfaces() {
            missing.retain(|address| !interface.addresses.contains(address));
        }
        let known = self.sandboxes.take();
        self.sandboxes = Sandboxes::read(&self.file).map(|said| said.or_else(known));
        // What cannot be read now stays as it was.
        let Some(mut found) = self.of_sandboxes(&mut missing, machine) else { return false };
        let links = if missing.is_empty() { Some(Vec::new()) } else { machine.routed_links() };
        let Some(links) = links else { return false };
        for RoutedLink { name, index, hardware, mut addresses } in links {
            addresses.retain(|address| missing.remove(address));
            if !addresses.is_empty() {
                found.push(Found { name, index, hardware, addresses, shared: None });
            }
        }
        let shared = if missing.is_empty() { Some(Vec::new()) } else { machine.shared_links(&missing) };
        let Some(mut shared) = shared else { return false };
        let attached = self.attachments.interfaces();
        shared.retain(|link| !found.iter().any(|known| known.index == link.index));
        shared.retain(|link| !attached.iter().any(|known| known.index == link.index));
        found.extend(shared.into_iter().map(|SharedLink { name, index, addresses, blocks }| Found {
            name,
            index,
            hardware: None,
            addresses,
            shared: Some(blocks),
        }));
        self.unknown = missing;
        let is_new = found != self.found;
        self.found = found;
        is_new
    }

    /// The interfaces that the runtime's network namespaces lead to, for addresses that are missing. A pod counts by the
    /// addresses that its network plugin gave it, which it cannot change.
    fn of_sandboxes(&self, missing: &mut BTreeSet<IpAddr>, machine: &mut dyn Machine) -> Option<Vec<Found>> {
        let pods = self.sandboxes.iter().flat_map(|sandboxes| &sandboxes.pods);
        let wanted: Vec<_> = pods
            .filter(|pod| pod.addresses.iter().any(|address| missing.contains(address)))
            .filter_map(|pod| Some((pod.host.as_ref()?, &pod.addresses)))
            .collect();
        if wanted.is_empty() {
            return Some(Vec::new());
        }
        let links = machine.pod_links(&wanted.iter().map(|(host, _)| host.index).collect())?;
        let mut found = Vec::new();
        for (host, addresses) in wanted {
            // The kernel gives the index of a removed interface to another one: such an entry is stale.
            let Some(link) = links.iter().find(|link| link.index == host.index && link.name == host.name) else {
                continue;
            };
            let addresses: Vec<IpAddr> = addresses.iter().copied().filter(|address| missing.remove(address)).collect();
            let hardware = Some(link.hardware);
            let (name, index) = (host.name.clone(), host.index);
            found.push(Found { name, index, hardware, addresses, shared: None });
        }
        Some(found)
    }

    /// The network namespaces of pods that can be reached.
    pub(crate) fn namespaces(&self) -> Vec<PodNamespace> {
        let mut all = self.attachments.namespaces();
        all.iter_mut().for_each(|pod| pod.last_seen = self.seen.before(&pod.id));
        all
    }

    /// How many attached pods have a network namespace that cannot be reached.
    pub(crate) fn unreached(&self) -> usize {
        self.attachments.unreached().len()
    }

    /// What became of the tables in them.
    pub(crate) fn enforced_inside(&self, pods: &[SecondStatus]) {
        self.attachments.enforced_inside(pods);
    }

    /// Opens sockets in the namespaces of which nobody has passed any, where this process may enter them. True if there
    /// are namespaces that could not be reached before.
    pub(crate) fn reach_more(&self) -> bool {
        for (id, netns) in self.attachments.untried() {
            // Without the right to enter it, the process that installs the CNI plugin passes sockets.
            if let Ok(sockets) = namewall_cni::pod_sockets(&netns) {
                self.attachments.reach(&id, sockets);
            }
        }
        self.attachments.take_reached()
    }

    /// True if links of the node have changed when it was last followed.
    pub(crate) fn has_new_links(&self) -> bool {
        self.has_new_links
    }

    /// All that are known.
    pub(crate) fn all(&self) -> Vec<PodInterface> {
        let found = self.found.iter().map(|found| {
            let Found { name, index, hardware, addresses, shared } = found.clone();
            match shared {
                Some(blocks) => PodInterface::shared(SharedLink { name, index, addresses, blocks }),
                None => {
                    let (extra, is_shared) = (Vec::new(), false);
                    PodInterface { name, index, hardware, addresses, extra, is_shared, hears_groups: false }
                }
            }
        });
        let mut all = self.attachments.interfaces();
        let names: BTreeSet<String> = all.iter().map(|interface| interface.name.clone()).collect();
        all.extend(found.filter(|interface| !names.contains(&interface.name)));
        all
    }

    /// Addresses of this node's pods whose source is told by the address alone.
    pub(crate) fn unknown(&self) -> &BTreeSet<IpAddr> {
        &self.unknown
    }

    /// What the container runtime said last; None if nobody asks it.
    pub(crate) fn sandboxes(&self) -> Option<&Sandboxes> {
        self.sandboxes.as_ref()
    }
}

/// A Program and the node that it is enforced on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'a> {
    pub(crate) program: &'a Program,
    pub(crate) node: Option<NodeId>,
}

impl Here<'_> {
    /// The pods with addresses on the node; without a node, all pods.
    fn addressed(&self) -> impl Iterator<Item = (IpAddr, WorkloadId)> {
        let is_here = |id: WorkloadId| {
            let pod = self.program.member(id);
            !pod.host_network && (self.node.is_none() || pod.node == self.node)
        };
        self.program.by_address.iter().filter_map(move |(address, holder)| match holder {
            Holder::Pod(id) if is_here(*id) => Some((*address, *id)),
            _ => None,
        })
    }

    /// Their addresses.
    fn pods(&self) -> BTreeSet<IpAddr> {
        self.addressed().map(|(address, _)| address).filter(|address| !is_own_to_each_machine(*address)).collect()
    }

    /// Those pods, each for every address that it has.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = WorkloadId> {
        self.addressed().map(|(_, pod)| pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DB, FakeMachine, WEB, ip, program};
    use namewall_cni::HostLink;
    use namewall_cni::sandboxes::SandboxLink;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn interfaces() -> Interfaces {
        Interfaces::new(Arc::default(), "/nonexistent".into())
    }

    #[test]
    fn s1_9_a_network_namespace_of_the_runtime_names_a_pods_interface() {
        let folder = std::env::temp_dir().join(format!("namewall-interfaces-{}", std::process::id()));
        let file = folder.join("sandboxes.json");
        let (program, mut machine) = (program(&[]), FakeMachine::new(&[]));
        let mut all = Interfaces::new(Arc::default(), file.clone());
        let here = Here { program: &program, node: None };
        all.follow(&here, &mut machine, at(0));
        assert_eq!((all.unknown().len(), all.sandboxes()), (2, None));
        let pod = |name: &str, address: &str, host: Option<(&str, u32)>| SandboxLink {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: "u1".to_owned(),
            addresses: vec![ip(address)],
            host: host.map(|(name, index)| HostLink { name: name.to_owned(), index }),
            problem: None,
        };
        // Of another pod's interface only the name is known, of a third's nothing; the fourth is not of this cluster.
        let pods = vec![
            pod("web", WEB, Some(("veth1", 7))),
            pod("db", DB, Some(("veth2", 8))),
            pod("other", "10.9.9.9", Some(("veth3", 9))),
            pod("none", "10.9.9.8", None),
        ];
        let said = Sandboxes { pods, ..Sandboxes::default() };
        said.write(&file).expect("it is written");
        machine.link("veth1", 7);
        machine.link("renamed", 8);
        machine.link("veth3", 9);
        assert!(all.follow(&here, &mut machine, at(0)), "links have changed, so it looks at once");
        let names: Vec<String> = all.all().into_iter().map(|interface| interface.name).collect();
        assert_eq!(names, ["veth1"]);
        assert_eq!(all.unknown().iter().copied().collect::<Vec<_>>(), [ip(DB)]);
        // A route is the last resort.
        machine.route("cali1", 11, DB);
        assert!(all.follow(&here, &mut machine, at(1)));
        assert_eq!((all.all().len(), all.unknown().len()), (2, 0));
        // A runtime that is away for a while takes no guard away; one without the pod does.
        let away = Sandboxes { error: Some("away".to_owned()), ..Sandboxes::default() };
        away.write(&file).expect("it is written");
        all.follow(&here, &mut machine, at(2));
        assert_eq!((all.all().len(), all.unknown().len()), (2, 0));
        assert_eq!(all.sandboxes().and_then(|said| said.error.as_deref()), Some("away"));
        Sandboxes::default().write(&file).expect("it is written");
        all.follow(&here, &mut machine, at(3));
        std::fs::remove_dir_all(&folder).ok();
        assert_eq!(all.unknown().iter().copied().collect::<Vec<_>>(), [ip(WEB)]);
    }

    #[test]
    fn s1_10_where_nobody_knows_whose_an_interface_is_it_is_shared_until_somebody_does() {
        let (program, mut machine) = (program(&[]), FakeMachine::new(&[]));
        let mut all = interfaces();
        let here = Here { program: &program, node: None };
        machine.port("veth1", 7);
        machine.port("veth2", 8);
        assert!(all.follow(&here, &mut machine, at(0)));
        let shared = |all: &Interfaces| {
            let shared = all.all().into_iter().filter(|interface| interface.is_shared);
            shared.map(|interface| (interface.name, interface.addresses)).collect::<Vec<_>>()
        };
        let both: Vec<IpAddr> = all.unknown().iter().copied().collect();
        assert_eq!(both.len(), 2, "the address still decides");
        assert_eq!(shared(&all), [("veth1".to_owned(), both.clone()), ("veth2".to_owned(), both)]);
        machine.route("veth1", 7, WEB);
        assert!(all.follow(&here, &mut machine, at(1)));
        assert_eq!(shared(&all), [("veth2".to_owned(), vec![ip(DB)])]);
    }

    #[test]
    fn s1_9_a_route_to_a_pod_names_its_interface() {
        let (program, mut machine) = (program(&[]), FakeMachine::new(&[]));
        let mut all = interfaces();
        let here = Here { program: &program, node: None };
        assert!(!all.follow(&here, &mut machine, at(0)));
        assert!(all.unknown().contains(&ip(WEB)), "{:?}", all.unknown());
        machine.route("cali1", 7, WEB);
        machine.route("other", 8, "198.51.100.1");
        assert!(!all.follow(&here, &mut machine, at(0)), "not looked at again so soon");
        assert!(all.follow(&here, &mut machine, at(1)));
        assert!(!all.unknown().contains(&ip(WEB)));
        let names: Vec<String> = all.all().into_iter().map(|interface| interface.name).collect();
        assert_eq!(names, ["cali1"], "only addresses of pods count");
        machine.fail(true);
        assert!(!all.follow(&here, &mut machine, at(2)));
        assert_eq!(all.all().len(), 1, "what cannot be read now stays as it was");
    }
}
