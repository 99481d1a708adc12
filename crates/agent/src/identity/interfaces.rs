//! The interfaces that the guard is given: those of attachments, and for other
//! pods of this node those that the node routes their addresses to.

use super::Attachments;
use crate::addresses::Machine;
use namewall_dataplane::PodInterface;
use namewall_dataplane::netlink::routed::RoutedLink;
use namewall_policy::addr::is_own_to_each_machine;
use namewall_policy::model::NodeId;
use namewall_policy::program::Holder;
use namewall_policy::{Instant, Program};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often routes are looked for while a pod's interface is not known.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The interfaces of this node's pods.
#[derive(Debug)]
pub(crate) struct Interfaces {
    attachments: Arc<Attachments>,
    /// Of pods that have no attachment.
    routed: Vec<RoutedLink>,
    /// Addresses of this node's pods whose interface is not known.
    unknown: BTreeSet<IpAddr>,
    looked_at: Option<Instant>,
}

impl Interfaces {
    pub(crate) fn new(attachments: Arc<Attachments>) -> Self {
        Self { attachments, routed: Vec::new(), unknown: BTreeSet::new(), looked_at: None }
    }

    /// Looks at the routes, if it is time and there are pods without an attachment. True if that makes a difference
    /// for the guard.
    pub(crate) fn follow(&mut self, here: &Here<'_>, machine: &mut dyn Machine, now: Instant) -> bool {
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY) {
            return false;
        }
        self.looked_at = Some(now);
        let mut missing = here.pods();
        for interface in self.attachments.interfaces() {
            missing.retain(|address| !interface.addresses.contains(address));
        }
        let links = if missing.is_empty() { Some(Vec::new()) } else { machine.routed_links() };
        // What cannot be read now stays as it was.
        let Some(links) = links else { return false };
        let mut routed = Vec::new();
        for mut link in links {
            link.addresses.retain(|address| missing.remove(address));
            if !link.addresses.is_empty() {
                routed.push(link);
            }
        }
        self.unknown = missing;
        let is_new = routed != self.routed;
        self.routed = routed;
        is_new
    }

    /// True if the routes were looked at in this turn of the loop.
    pub(crate) fn has_looked(&self, now: Instant) -> bool {
        self.looked_at == Some(now)
    }

    /// All that are known.
    pub(crate) fn all(&self) -> Vec<PodInterface> {
        let routed = self.routed.iter().map(|link| {
            let RoutedLink { name, index, hardware, addresses } = link.clone();
            PodInterface { name, index, hardware, addresses, hears_groups: false }
        });
        let mut all = self.attachments.interfaces();
        let names: BTreeSet<String> = all.iter().map(|interface| interface.name.clone()).collect();
        all.extend(routed.filter(|interface| !names.contains(&interface.name)));
        all
    }

    /// Addresses of this node's pods whose source is told by the address alone.
    pub(crate) fn unknown(&self) -> &BTreeSet<IpAddr> {
        &self.unknown
    }
}

/// A Program and the node that it is enforced on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here<'a> {
    pub(crate) program: &'a Program,
    pub(crate) node: Option<NodeId>,
}

impl Here<'_> {
    /// The addresses of the pods on the node; without a node, of all pods.
    fn pods(&self) -> BTreeSet<IpAddr> {
        let is_here = |holder: &Holder| match holder {
            Holder::Pod(id) => {
                let pod = self.program.member(*id);
                !pod.host_network && (self.node.is_none() || pod.node == self.node)
            }
            _ => false,
        };
        let addresses = self.program.by_address.iter().filter(|(_, holder)| is_here(holder));
        addresses.map(|(address, _)| *address).filter(|address| !is_own_to_each_machine(*address)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeMachine, WEB, ip, program};

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn interfaces() -> Interfaces {
        Interfaces::new(Arc::default())
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
