//! The directives, one file a family: their settings and how they are read. None of them does anything.

pub(super) mod cache;
mod decision;
pub(super) mod edns0;
pub(super) mod firewall;
pub(super) mod fixed;
pub(super) mod forward;
pub(super) mod hosts;
pub(super) mod kubernetes;
pub(super) mod opa;
pub(super) mod policy;
pub(super) mod process;
pub(super) mod resolver;
pub(super) mod telling;
pub(super) mod template;
pub(super) mod themis;

pub use cache::{Cache, Prefetch, ServeStale, Share};
pub use decision::Decision;
pub use edns0::{Edns0, Encoding, Metadata};
pub use firewall::{EngineKind, Firewall, Point, Rule, RuleKind, Written};
pub use fixed::{Chaos, LocalNames};
pub use forward::{Forward, ForwardOrder, HealthCheck, Upstream};
pub use hosts::{HostEntry, Hosts, ZoneFile};
pub use kubernetes::{Kubeconfig, Kubernetes, PodMode};
pub use opa::{Opa, OpaAt, OpaField};
pub use process::{Bind, BindAt, Health, Reload};
pub use resolver::DnsNameResolver;
pub use telling::{Class, Consolidate, Dnstap, Errors, Level, Log, TapAt};
pub use template::Template;
pub use themis::{Attribute, AttributeKind, Balance, Debugging, DecisionCache, Patience, Themis, ThemisAt};

use super::form::{Words, many, once};

/// What a line of a server block is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Directive {
    Any,
    Bind,
    Cache,
    Chaos,
    Debug,
    DnsNameResolver,
    Dnstap,
    Errors,
    Expression,
    File,
    Firewall,
    Forward,
    Health,
    Hosts,
    Kubernetes,
    LoadBalancer,
    Loadbalance,
    Local,
    Log,
    Loop,
    Metadata,
    MetadataEdns0,
    OcpDnsNameResolver,
    Opa,
    Policy,
    Prometheus,
    Ready,
    Reload,
    Request,
    Template,
    Themis,
    Trace,
    Whoami,
}

pub(super) const DIRECTIVES: Words<Directive> = Words {
    served: &[
        (Directive::Any, once("any", "", 0, 0)),
        (Directive::Bind, process::BIND),
        (Directive::Cache, cache::CACHE),
        (Directive::Chaos, fixed::CHAOS),
        (Directive::Debug, once("debug", "", 0, 0)),
        (Directive::Dnstap, telling::DNSTAP),
        (Directive::DnsNameResolver, resolver::DNSNAMERESOLVER),
        (Directive::Errors, telling::ERRORS),
        (Directive::Expression, many("expression", "NAME", 1, 1)),
        (Directive::File, hosts::FILE),
        (Directive::Firewall, firewall::FIREWALL),
        (Directive::Forward, forward::FORWARD),
        (Directive::Health, process::HEALTH),
        (Directive::Hosts, hosts::HOSTS),
        (Directive::Kubernetes, kubernetes::KUBERNETES),
        (Directive::LoadBalancer, once("load-balancer", "", 0, 0)),
        (Directive::Loadbalance, once("loadbalance", "[round_robin]", 0, 2)),
        (Directive::Local, fixed::LOCAL),
        (Directive::Log, telling::LOG),
        (Directive::Loop, once("loop", "", 0, 0)),
        (Directive::Metadata, edns0::METADATA),
        (Directive::MetadataEdns0, edns0::METADATA_EDNS0),
        (Directive::OcpDnsNameResolver, resolver::OCP_DNSNAMERESOLVER),
        (Directive::Opa, opa::OPA),
        (Directive::Policy, policy::POLICY),
        (Directive::Prometheus, process::PROMETHEUS),
        (Directive::Ready, process::READY),
        (Directive::Reload, process::RELOAD),
        (Directive::Request, edns0::REQUEST),
        (Directive::Template, template::TEMPLATE),
        (Directive::Themis, themis::THEMIS),
        (Directive::Trace, fixed::TRACE),
        (Directive::Whoami, once("whoami", "", 0, 0)),
    ],
    not_served: &[
        (
            "acl",
            "write a list of rules: `firewall query {`, `refuse in-cidr(client_ip, 192.0.2.0/24)`, `default allow` and \
             `}`, each on a line of its own",
        ),
        ("alternate", "write `failover RCODE…` in `forward`"),
        ("auto", "name each zone file with `file`"),
        ("autopath", "remove it: clients look their search paths up themselves"),
        ("azure", "forward its zones to a server that has them"),
        ("bufsize", "remove it: answers go out as they come"),
        ("cancel", "remove it: queries have a time limit"),
        ("casbin", "write its rules as expressions, or use `opa`"),
        ("clouddns", "forward its zones to a server that has them"),
        ("dns64", "forward to a server that does it"),
        ("dnssec", "forward to a server that signs"),
        ("erratic", "remove it"),
        ("etcd", "forward its zones to a server that has them"),
        ("fallback", "write `failover RCODE…` in `forward`"),
        ("federation", "remove it: Kubernetes has no federations any more"),
        ("geoip", "remove it, and rules that look at `geoip/…`"),
        ("grpc", "use `forward`"),
        ("grpc_server", "serve plain DNS"),
        ("header", "remove it: answers go out as they come"),
        ("https", "serve plain DNS"),
        ("https3", "serve plain DNS"),
        ("k8s_external", "forward its zones to a server that has them"),
        ("minimal", "remove it: answers go out as they come"),
        ("multisocket", "remove it: the sockets are the server's own choice"),
        ("nomad", "forward its zones to a server that has them"),
        ("nsid", "remove it"),
        ("on", "remove it"),
        ("pprof", "remove it"),
        ("proxy", "use `forward`, as CoreDNS does since 1.5"),
        ("quic", "serve plain DNS"),
        ("rewrite", "forward to a server that rewrites"),
        ("root", "write whole paths"),
        ("route53", "forward its zones to a server that has them"),
        ("secondary", "forward its zones to a server that has them"),
        ("sign", "forward to a server that signs"),
        ("timeouts", "remove it: the time limits are the server's own"),
        ("tls", "serve plain DNS; for upstreams write `tls` in `forward`"),
        ("transfer", "remove it: zones are not transferred"),
        ("tsig", "remove it"),
        ("view", "write a list of rules, or a server block of its own"),
    ],
};
