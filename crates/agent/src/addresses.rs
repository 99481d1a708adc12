//! The addresses of this machine (S7.2). They are enforced here before anybody
//! else knows them: they are added to the Node that the machine is in whatever
//! the source says. An agent also publishes them for the other nodes.

use namewall_dataplane::Tunnels;
use namewall_dataplane::netlink::routed::{RoutedLink, routed_links};
use namewall_dataplane::netlink::shared::{SharedLink, shared_links};
use namewall_dataplane::netlink::tunnels::tunnels;
use namewall_dataplane::netlink::veth::{PodLink, pod_links};
use namewall_dataplane::netlink::{self, Addresses, Family, LinkNotices, MachineAddresses, Socket};
use namewall_policy::addr::{Cidr, is_own_to_each_machine};
use namewall_policy::model::Node;
use namewall_policy::{Finding, Instant, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long an address that is gone is still taken for this machine's. One that comes and goes all the time is then no
/// change each time, for no node of the cluster.
const LINGER: Duration = Duration::from_secs(30);

/// How often the kernel is asked again where there was no notice of a change.
pub(crate) const READ_EVERY: Duration = Duration::from_secs(10);

/// What an agent asks of the machine it runs on.
pub trait Machine: Debug + Send {
    /// True if addresses may have changed since this was last asked. Does not wait.
    fn has_changed(&mut self) -> bool;

    /// Every address on every interface, and what local routes lead to. None if they cannot be read now.
    fn addresses(&mut self) -> Option<MachineAddresses>;

    /// The interfaces that single addresses are routed to. None if they cannot be read now.
    fn routed_links(&mut self) -> Option<Vec<RoutedLink>>;

    /// True if interfaces may have come or gone since this was last asked. Does not wait.
    fn links_have_changed(&mut self) -> bool;

    /// Those of these interfaces that lead to other network namespaces. None if they cannot be read now.
    fn pod_links(&mut self, wanted: &BTreeSet<u32>) -> Option<Vec<PodLink>>;

    /// The interfaces that lead to one of these addresses each, and nobody knows to which. None if they cannot be read
    /// now.
    fn shared_links(&mut self, wanted: &BTreeSet<IpAddr>) -> Option<Vec<SharedLink>>;

    /// Where it takes packets out of other packets. None if that cannot be read now.
    fn tunnels(&mut self) -> Option<Tunnels>;
}

/// The machine by its kernel's word.
#[derive(Debug)]
pub struct ThisMachine {
    addresses: Addresses,
    routes: Socket,
    links: LinkNotices,
}

impl ThisMachine {
    /// Opens sockets to the kernel, in the thread's network namespace.
    pub fn open() -> Result<Self, netlink::Error> {
        let (links, routes) = (LinkNotices::open()?, Socket::open(Family::NetlinkRoute)?);
        Ok(Self { addresses: Addresses::open()?, routes, links })
    }
}

impl Machine for ThisMachine {
    fn has_changed(&mut self) -> bool {
        self.addresses.have_changed()
    }

    fn addresses(&mut self) -> Option<MachineAddresses> {
        self.addresses.read().inspect_err(|error| warn!(%error, "cannot read the addresses of this machine")).ok()
    }

    fn routed_links(&mut self) -> Option<Vec<RoutedLink>> {
        routed_links(&mut self.routes).inspect_err(|error| warn!(%error, "cannot read the routes to pods")).ok()
    }

    fn links_have_changed(&mut self) -> bool {
        self.links.have_come()
    }

    fn pod_links(&mut self, wanted: &BTreeSet<u32>) -> Option<Vec<PodLink>> {
        pod_links(&mut self.routes, wanted)
            .inspect_err(|error| warn!(%error, "cannot read the interfaces of pods"))
            .ok()
    }

    fn shared_links(&mut self, wanted: &BTreeSet<IpAddr>) -> Option<Vec<SharedLink>> {
        shared_links(&mut self.routes, wanted)
            .inspect_err(|error| warn!(%error, "cannot read the bridges of pods"))
            .ok()
    }

    fn tunnels(&mut self) -> Option<Tunnels> {
        tunnels(&mut self.routes).inspect_err(|error| warn!(%error, "cannot read the tunnels of this machine")).ok()
    }
}

/// What counts as this machine's now: addresses, or tunnel endpoints.
#[derive(Debug)]
pub(crate) struct Held<T> {
    /// Each with the time since when it is gone, if it is.
    since: BTreeMap<T, Option<Instant>>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { since: BTreeMap::new() }
    }
}

impl<T: Ord + Copy> Held<T> {
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.since.keys()
    }

    /// True if that makes a difference.
    pub(crate) fn update(&mut self, seen: &BTreeSet<T>, now: Instant) -> bool {
        for (_, gone) in self.since.iter_mut().filter(|(one, _)| !seen.contains(one)) {
            gone.get_or_insert(now);
        }
        let mut is_new = false;
        for &one in seen {
            is_new |= self.since.insert(one, None).is_none();
        }
        let count = self.since.len();
        self.since.retain(|_, gone| gone.is_none_or(|gone| now.since(gone) < LINGER));
        is_new || self.since.len() != count
    }
}

/// The machine's addresses as its Node has them.
#[derive(Debug)]
pub(crate) struct OwnAddresses {
    machine: Box<dyn Machine>,
    held: Held<IpAddr>,
    /// Networks of local routes whose addresses are too many to be listed. Rules for nodes do not cover them.
    unlisted: BTreeSet<Cidr>,
    read_at: Option<Instant>,
    /// What a source said of nodes, and what was made of it: as long as neither changes, pods can come and go without
    /// that everything is compiled anew.
    added: Option<Added>,
}

#[derive(Debug)]
struct Added {
    to: Arc<Vec<Node>>,
    node: String,
    nodes: Snapshot,
}

impl OwnAddresses {
    pub(crate) fn new(machine: Box<dyn Machine>) -> Self {
        Self { machine, held: Held::default(), unlisted: BTreeSet::new(), read_at: None, added: None }
    }

    pub(crate) fn machine(&mut self) -> &mut dyn Machine {
        &mut *self.machine
    }

    /// Reads the addresses if they have changed, or were not read for a while. True if they are others now.
    pub(crate) fn follow(&mut self, now: Instant) -> bool {
        let is_due = self.read_at.is_none_or(|at| now.since(at) >= READ_EVERY);
        if !self.machine.has_changed() && !is_due {
            return false;
        }
        let Some(MachineAddresses { listed: mut seen, unlisted }) = self.machine.addresses() else {
            // What was known counts on, and it is tried again with the next turn.
            self.read_at = None;
            return false;
        };
        self.read_at = Some(now);
        // Rules for nodes cover these without being told of each (S7.2): the kernel gives one to every interface, so
        // that they change with every pod.
        seen.retain(|address| !is_own_to_each_machine(*address));
        let is_new = self.held.update(&seen, now);
        if is_new {
            self.added = None;
        }
        let has_other_networks = self.unlisted != unlisted;
        self.unlisted = unlisted;
        if let Some(networks) = self.unlisted_networks().filter(|_| has_other_networks) {
            warn!(
                networks,
                "rules for nodes do not cover these networks of local routes, which are too large or in another table \
                 than `local`"
            );
        }
        is_new || has_other_networks
    }

    /// What rules for nodes do not cover of this machine.
    pub(crate) fn finding(&self, node: &str) -> Option<Finding> {
        let networks = self.unlisted_networks()?;
        let message = format!(
            "the machine answers at {networks} by local routes. They have too many addresses to be listed, or a longer \
             route may lead elsewhere: rules for nodes do not cover them. Deny them by `networks` as well and add them \
             to the networks that are never leased, or use routes to single addresses"
        );
        Some(Finding::warning("local-network", format!("Node {node}"), message))
    }

    fn unlisted_networks(&self) -> Option<String> {
        let texts: Vec<String> = self.unlisted.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Those that the other nodes have to know.
    pub(crate) fn all(&self) -> BTreeSet<IpAddr> {
        self.held.since.keys().copied().collect()
    }

    /// True if the address is on an interface, or of a local route, now.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.held.since.get(&address).is_some_and(Option::is_none)
    }

    /// Adds them to the Node of that name. A source that has none of that name gets one.
    pub(crate) fn add_to(&mut self, snapshot: &mut Snapshot, node: &str) {
        let known = self.added.take().filter(|added| Arc::ptr_eq(&added.to, &snapshot.nodes) && added.node == node);
        let added = known.unwrap_or_else(|| {
            let (to, mut nodes) = (snapshot.nodes.clone(), Snapshot::default());
            nodes.clone_nodes(snapshot);
            let id = nodes.ensure_node(node);
            let listed = &mut Arc::make_mut(&mut nodes.nodes)[id.index()].addresses;
            let new = self.held.since.keys().filter(|address| !listed.contains(address)).copied();
            let new: Vec<IpAddr> = new.collect();
            listed.extend(new);
            Added { to, node: node.to_owned(), nodes }
        });
        snapshot.clone_nodes(&added.nodes);
        self.added = Some(added);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeMachine, ip, read};

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn addresses(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| ip(text)).collect()
    }

    fn own(machine: &FakeMachine) -> OwnAddresses {
        OwnAddresses::new(Box::new(machine.clone()))
    }

    #[test]
    fn s7_2_new_addresses_count_at_once_and_those_that_are_gone_a_while() {
        let machine = FakeMachine::new(&["192.0.2.1", "172.17.0.1", "169.254.20.10"]);
        let mut own = own(&machine);
        assert!(own.follow(at(0)));
        assert_eq!(own.all(), addresses(&["192.0.2.1", "172.17.0.1", "169.254.20.10"]));
        assert!(!own.follow(at(1)));
        machine.set(&["192.0.2.1", "198.51.100.9"]);
        assert!(own.follow(at(1)));
        assert_eq!(own.all(), addresses(&["192.0.2.1", "172.17.0.1", "169.254.20.10", "198.51.100.9"]));
        assert!(own.has(ip("198.51.100.9")) && !own.has(ip("172.17.0.1")));
        assert!(!own.follow(at(12)) && !own.follow(at(23)));
        assert!(own.follow(at(34)));
        assert_eq!(own.all(), addresses(&["192.0.2.1", "198.51.100.9"]));
    }

    #[test]
    fn an_address_that_comes_and_goes_is_no_change_each_time() {
        let machine = FakeMachine::new(&["192.0.2.1", "172.17.0.1"]);
        let mut own = own(&machine);
        assert!(own.follow(at(0)));
        for second in 1..100 {
            machine.set(if second % 2 == 0 { &["192.0.2.1", "172.17.0.1"] } else { &["192.0.2.1"] });
            assert!(!own.follow(at(second)), "{second}");
        }
    }

    #[test]
    fn a_lost_notice_is_made_up_for() {
        let machine = FakeMachine::new(&["192.0.2.1"]);
        let mut own = own(&machine);
        assert!(own.follow(at(0)));
        machine.set_unnoticed(&["192.0.2.1", "172.17.0.1"]);
        assert!(!own.follow(at(1)));
        assert!(own.follow(at(10)));
    }

    #[test]
    fn s7_2_networks_that_cannot_be_listed_are_reported() {
        let machine = FakeMachine::new(&["192.0.2.1"]);
        let mut own = own(&machine);
        assert!(own.follow(at(0)));
        assert_eq!(own.finding("n1"), None);
        machine.set_unlisted(&["2001:db8::/64", "198.18.0.0/15"]);
        assert!(own.follow(at(1)) && !own.follow(at(12)));
        let finding = own.finding("n1").expect("it is reported");
        assert_eq!((finding.code, finding.object.as_str()), ("local-network", "Node n1"));
        assert!(finding.message.contains("at 198.18.0.0/15, 2001:db8::/64 by local routes"), "{}", finding.message);
        machine.set_unlisted(&[]);
        assert!(own.follow(at(13)));
        assert_eq!(own.finding("n1"), None);
    }

    #[test]
    fn what_cannot_be_read_changes_nothing_and_is_tried_again() {
        let machine = FakeMachine::new(&["192.0.2.1"]);
        let mut own = own(&machine);
        assert!(own.follow(at(0)));
        machine.set(&["192.0.2.1", "172.17.0.1"]);
        machine.fail(true);
        assert!(!own.follow(at(1)));
        assert_eq!(own.all(), addresses(&["192.0.2.1"]));
        machine.fail(false);
        assert!(own.follow(at(1)));
    }

    #[test]
    fn addresses_that_change_with_every_pod_are_no_change() {
        let machine = FakeMachine::new(&["192.0.2.1", "127.0.0.1", "::1", "fe80::1"]);
        let mut own = own(&machine);
        assert!(own.follow(at(0)));
        assert_eq!(own.all(), addresses(&["192.0.2.1"]));
        machine.set(&["192.0.2.1", "fe80::2"]);
        assert!(!own.follow(at(1)));
    }

    #[test]
    fn they_are_added_after_those_that_the_node_lists_and_nodes_stay_the_same_value() {
        let machine = FakeMachine::new(&["10.0.0.254", "192.0.2.1"]);
        let mut own = own(&machine);
        own.follow(at(0));
        let source = read(&[]).lowered.snapshot;
        let add = |own: &mut OwnAddresses| {
            let mut snapshot = source.clone();
            own.add_to(&mut snapshot, "n1");
            snapshot
        };
        let (first, second) = (add(&mut own), add(&mut own));
        assert_eq!(first.nodes[0].addresses, [ip("192.0.2.1"), ip("10.0.0.254")]);
        assert!(Arc::ptr_eq(&first.nodes, &second.nodes), "pods that change do not change nodes");
        machine.set(&["10.0.0.254", "192.0.2.1", "198.51.100.9"]);
        own.follow(at(1));
        assert_eq!(add(&mut own).nodes[0].addresses.len(), 3);
    }

    #[test]
    fn a_machine_that_no_node_describes_is_one_without_labels() {
        let machine = FakeMachine::new(&["198.51.100.9"]);
        let mut own = own(&machine);
        own.follow(at(0));
        let mut snapshot = Snapshot::default();
        own.add_to(&mut snapshot, "host");
        let node = snapshot.node(snapshot.node_named("host").expect("it is there"));
        assert_eq!((node.addresses.as_slice(), node.labels.iter().count()), (&[ip("198.51.100.9")][..], 0));
    }
}
