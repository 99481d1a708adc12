//! Sources that the settings allow certain pods besides their own addresses, for
//! routers, VPNs and virtual addresses. No object of the cluster can say so: a
//! tenant could write it.

use super::Here;
use namewall_dataplane::{ExtraSource, PodInterface};
use namewall_policy::Snapshot;
use namewall_policy::addr::Cidr;
use namewall_policy::model::WorkloadId;
use namewall_policy::program::Holder;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A block with more addresses of others than this is refused: each is a rule at the pod's interface.
const MOST_OTHERS: usize = 256;

/// Pods of a namespace, and a block that they may send from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedSource {
    namespace: String,
    pods: PodNames,
    block: Cidr,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PodNames {
    Exactly(String),
    StartWith(String),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` does not say which pods may send from which addresses; write NAMESPACE/POD=CIDR, like \
     net/vpn-0=10.8.0.0/24, or NAMESPACE/PREFIX*=CIDR"
)]
pub struct NotASource(String);

impl FromStr for AllowedSource {
    type Err = NotASource;

    fn from_str(text: &str) -> Result<Self, NotASource> {
        let wrong = || NotASource(text.to_owned());
        let (pods, block) = text.split_once('=').ok_or_else(wrong)?;
        let (namespace, name) = pods.split_once('/').ok_or_else(wrong)?;
        // Characters of names in Kubernetes.
        let is_name = |text: &str| {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !text.is_empty() && text.chars().all(is_plain)
        };
        let pods = match name.strip_suffix('*') {
            Some(prefix) => PodNames::StartWith(prefix.to_owned()),
            None => PodNames::Exactly(name.to_owned()),
        };
        // A bare `*` would be every pod of the namespace.
        if !is_name(namespace) || !is_name(name.strip_suffix('*').unwrap_or(name)) {
            return Err(wrong());
        }
        let block: Cidr = block.parse().map_err(|_| wrong())?;
        if block.had_host_bits() {
            return Err(wrong());
        }
        Ok(Self { namespace: namespace.to_owned(), pods, block })
    }
}

impl fmt::Display for AllowedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pods {
            PodNames::Exactly(name) => write!(f, "{}/{name}={}", self.namespace, self.block),
            PodNames::StartWith(prefix) => write!(f, "{}/{prefix}*={}", self.namespace, self.block),
        }
    }
}

impl AllowedSource {
    fn is_for(&self, snapshot: &Snapshot, pod: WorkloadId) -> bool {
        let workload = snapshot.workload(pod);
        let is_named = match &self.pods {
            PodNames::Exactly(name) => *name == *workload.name,
            PodNames::StartWith(prefix) => workload.name.starts_with(prefix.as_str()),
        };
        is_named && *self.namespace == *snapshot.namespace(workload.namespace).name
    }

    /// The block without the addresses that others have. None if there are too many of those.
    fn without_others(&self, here: &Here<'_>, own: WorkloadId) -> Option<ExtraSource> {
        let others = here.program.by_address.iter().filter(|(address, holder)| {
            self.block.contains(**address) && !matches!(holder, Holder::Pod(pod) if *pod == own)
        });
        let mut except: Vec<IpAddr> = others.map(|(address, _)| *address).take(MOST_OTHERS + 1).collect();
        except.sort_unstable();
        (except.len() <= MOST_OTHERS).then_some(ExtraSource { block: self.block, except })
    }
}

/// Gives interfaces the sources that the settings allow their pods. Returns the settings that are refused.
pub(crate) fn allow(
    allowed: &[AllowedSource],
    interfaces: &mut [PodInterface],
    snapshot: &Snapshot,
    here: &Here<'_>,
) -> Vec<String> {
    let mut refused = Vec::new();
    if allowed.is_empty() {
        return refused;
    }
    for interface in interfaces {
        if interface.is_shared {
            allow_any(allowed, interface, snapshot, here);
            continue;
        }
        let Some(pod) = only_pod(interface, here) else { continue };
        let mut wanted = allowed.iter().filter(|one| one.is_for(snapshot, pod)).peekable();
        if wanted.peek().is_some() && !is_alone(interface, snapshot) {
            refused.push(format!("other pods claim an address of {}", snapshot.workload_name(pod)));
            continue;
        }
        for one in wanted {
            match one.without_others(here, pod) {
                Some(extra) => interface.extra.push(extra),
                None => refused.push(format!(
                    "{one} allows {} nothing: more than {MOST_OTHERS} addresses in {} are those of other pods and of \
                     nodes; name a smaller block",
                    snapshot.workload_name(pod),
                    one.block
                )),
            }
        }
    }
    refused
}

/// Where nobody knows which of several pods is behind an interface, it may be one that the settings speak of.
fn allow_any(allowed: &[AllowedSource], interface: &mut PodInterface, snapshot: &Snapshot, here: &Here<'_>) {
    for pod in pods(&interface.addresses, here) {
        let wanted = allowed.iter().filter(|one| one.is_for(snapshot, pod));
        for extra in wanted.filter_map(|one| one.without_others(here, pod)) {
            if !interface.extra.contains(&extra) {
                interface.extra.push(extra);
            }
        }
    }
}

/// The pods with these addresses.
fn pods(addresses: &[IpAddr], here: &Here<'_>) -> BTreeSet<WorkloadId> {
    let pod = |address: &IpAddr| match here.program.by_address.get(address) {
        Some(Holder::Pod(pod)) => Some(*pod),
        _ => None,
    };
    addresses.iter().filter_map(pod).collect()
}

/// The pod behind an interface. None if its addresses are those of several pods.
fn only_pod(interface: &PodInterface, here: &Here<'_>) -> Option<WorkloadId> {
    let pods = pods(&interface.addresses, here);
    pods.first().copied().filter(|_| pods.len() == 1)
}

/// True if no two pods claim an address of the interface.
fn is_alone(interface: &PodInterface, snapshot: &Snapshot) -> bool {
    let claims = |address| snapshot.workloads.iter().filter(|workload| workload.addresses.contains(address)).count();
    interface.addresses.iter().all(|address| claims(address) <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DB, WEB, ip, read};
    use namewall_policy::compile;

    #[test]
    fn s1_9_a_source_is_allowed_where_the_pod_is_one_of_several() {
        let snapshot = read(&[]).lowered.snapshot;
        let program = compile(&snapshot).0;
        let here = Here { program: &program, node: None };
        let allowed = ["shop/web*=192.0.2.0/28", "shop/other=10.9.0.0/24"].map(|text| text.parse().expect("a setting"));
        let mut interface = PodInterface { is_shared: true, ..interface("veth1", WEB) };
        interface.addresses.push(ip(DB));
        let mut both = [interface.clone(), PodInterface { addresses: vec![ip(DB)], ..interface }];
        assert_eq!(allow(&allowed, &mut both, &snapshot, &here), Vec::<String>::new());
        let extra = |interface: &PodInterface| interface.extra.iter().map(|one| one.block.to_string()).collect();
        let [first, second]: [Vec<String>; 2] = both.each_ref().map(extra);
        assert_eq!((first, second), (vec!["192.0.2.0/28".to_owned()], Vec::new()));
        assert_eq!(both[0].extra[0].except, [ip("192.0.2.1")], "the node has that one");
    }

    #[test]
    fn a_setting_names_pods_and_a_block() {
        for good in ["net/vpn-0=10.8.0.0/24", "net/vpn-*=fd08::/64", "net/keepalived=192.0.2.7/32"] {
            assert_eq!(good.parse::<AllowedSource>().map(|one| one.to_string()), Ok(good.to_owned()));
        }
        for bad in [
            "",
            "net/vpn",
            "net=10.8.0.0/24",
            "/vpn=10.8.0.0/24",
            "net/=10.8.0.0/24",
            "net/*=10.8.0.0/24",
            "*/vpn=10.8.0.0/24",
            "net/v*n=10.8.0.0/24",
            "net/vpn=10.8.0.0",
            "net/vpn=10.8.0.7/24",
            "net/app=vpn=10.8.0.0/24",
        ] {
            assert!(bad.parse::<AllowedSource>().is_err(), "{bad}");
        }
    }

    fn interface(name: &str, address: &str) -> PodInterface {
        PodInterface {
            name: name.to_owned(),
            index: 1,
            hardware: None,
            addresses: vec![ip(address)],
            extra: Vec::new(),
            is_shared: false,
            hears_groups: false,
        }
    }

    #[test]
    fn s1_9_only_the_pod_that_is_named_gets_them_and_never_what_others_have() {
        let snapshot = read(&[]).lowered.snapshot;
        let (program, _) = compile(&snapshot);
        let here = Here { program: &program, node: None };
        let given = |settings: &[&str]| {
            let allowed: Vec<AllowedSource> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
            let mut interfaces = [interface("web", WEB), interface("db", DB)];
            assert_eq!(allow(&allowed, &mut interfaces, &snapshot, &here), Vec::<String>::new());
            interfaces.map(|interface| interface.extra)
        };
        let block = |text: &str| text.parse::<Cidr>().expect("a block");
        let [web, db] = given(&["shop/web=10.8.0.0/16"]);
        assert_eq!(web, [ExtraSource { block: block("10.8.0.0/16"), except: Vec::new() }]);
        assert_eq!(db, []);
        // Those of the pod itself are its own anyway.
        let [web, _] = given(&["shop/we*=10.0.0.0/16"]);
        assert_eq!(web, [ExtraSource { block: block("10.0.0.0/16"), except: vec![ip(DB)] }]);
        let [web, db] = given(&["shop/web=192.0.2.0/24", "other/web=10.8.0.0/16", "shop/w=10.8.0.0/16"]);
        assert_eq!(web, [ExtraSource { block: block("192.0.2.0/24"), except: vec![ip("192.0.2.1")] }]);
        assert_eq!(db, []);
    }
}
