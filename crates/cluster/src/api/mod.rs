//! The Kubernetes kinds, one file a family, as far as policies can see them.
//! Plain serde types: no validation, no meaning; that is `lower`'s trade.

pub mod admin_network_policy;
pub mod cluster_egress_firewall;
pub mod cluster_network_policy;
pub mod dns_name_resolver;
pub mod egress_firewall;
pub mod meta;
pub mod network_policy;
pub mod node;
pub mod pod;
pub mod service;
