//! The policies of a cluster: tenants' NetworkPolicies, administrators' tiers,
//! egress firewalls. Of each hundred about 85 are NetworkPolicies, 10 are
//! administrators', 4 EgressFirewalls; a baseline and a few cluster gates stand
//! beside them.

mod admin;
mod firewall;
mod network;

use crate::File;
use crate::layout::Layout;
pub(crate) use firewall::{NO_KUBELETS, NO_METADATA};

/// How many of each kind.
#[derive(Clone, Copy, Debug)]
struct Shares {
    network: usize,
    admin: usize,
    egress_firewalls: usize,
    cluster_gates: usize,
}

impl Shares {
    fn of(layout: &Layout) -> Self {
        let all = layout.cluster.policies;
        let tenants = layout.tenants().count();
        let admin = all / 10;
        // One a namespace is the most there can be.
        let egress_firewalls = (all / 25).min(tenants);
        let cluster_gates = (all / 25).min(3);
        let baseline = usize::from(all > 0);
        Self {
            network: all - admin - egress_firewalls - cluster_gates - baseline,
            admin,
            egress_firewalls,
            cluster_gates,
        }
    }
}

pub(crate) fn files(layout: &Layout) -> Vec<File> {
    let shares = Shares::of(layout);
    if layout.cluster.policies == 0 {
        return Vec::new();
    }
    let file = |name: &str, texts: Vec<String>| File { name: format!("{name}.yaml"), text: texts.concat() };
    vec![
        file("network-policies", network::policies(layout, shares.network)),
        file("admin-policies", admin::policies(layout, shares.admin)),
        file("baseline-policy", vec![admin::baseline()]),
        file("egress-firewalls", firewall::of_namespaces(layout, shares.egress_firewalls)),
        file("cluster-egress-firewalls", firewall::of_cluster(shares.cluster_gates)),
    ]
}
