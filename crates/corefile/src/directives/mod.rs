//! The directives, one file a family: their settings and how they are read. None of them does anything.

pub(super) mod acl;
pub(super) mod cache;
mod decision;
pub(super) mod dns64;
pub(super) mod edns0;
pub(super) mod firewall;
pub(super) mod fixed;
pub(super) mod forward;
pub(super) mod geoip;
pub(super) mod hosts;
pub(super) mod kubernetes;
pub(super) mod opa;
pub(super) mod policy;
pub(super) mod process;
pub(super) mod resolver;
pub(super) mod rewrite;
pub(super) mod rpz;
pub(super) mod shaping;
pub(super) mod telling;
pub(super) mod template;
pub(super) mod themis;
pub(super) mod tls;
pub(super) mod view;

pub use acl::{Acl, AclAction, AclPolicy};
pub use cache::{Cache, Prefetch, ServeStale, Share};
pub use decision::Decision;
pub use dns64::Dns64;
pub use edns0::{Edns0, Encoding, Metadata};
pub use firewall::{EngineKind, Firewall, Point, Rule, RuleKind, Written};
pub use fixed::{Chaos, LocalNames};
pub use forward::{Forward, ForwardOrder, HealthCheck, Upstream};
pub use geoip::GeoIp;
pub use hosts::{HostEntry, Hosts, ZoneFile};
pub use kubernetes::{Kubeconfig, Kubernetes, PodMode};
pub use opa::{Opa, OpaAt, OpaField};
pub use process::{Bind, BindAt, Health, Reload};
pub use resolver::DnsNameResolver;
pub use rewrite::{AnswerRewrite, NameMatch, OptionAction, OptionData, OptionRewrite, Rewrite, RewriteChange};
pub use rpz::{Expired, Rpz, RpzFrom};
pub use shaping::{FlagChange, HeaderFlag, HeaderFlags};
pub use telling::{Class, Consolidate, Dnstap, Errors, Level, Log, TapAt};
pub use template::Template;
pub use themis::{Attribute, AttributeKind, Balance, Debugging, DecisionCache, Patience, Themis, ThemisAt};
pub use tls::{ClientAuth, ServerTls};
pub use view::View;

use super::form::{Words, many, once};

/// What a line of a server block is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Directive {
    Acl,
    Any,
    Bind,
    Bufsize,
    Cache,
    Chaos,
    Debug,
    Dns64,
    DnsNameResolver,
    Dnstap,
    Errors,
    Expression,
    File,
    Firewall,
    Forward,
    GeoIp,
    Header,
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
    Minimal,
    Nsid,
    OcpDnsNameResolver,
    Opa,
    Policy,
    Prometheus,
    Ready,
    Reload,
    Request,
    Rewrite,
    Rpz,
    Template,
    Themis,
    Timeouts,
    Tls,
    Trace,
    View,
    Whoami,
}

pub(super) const DIRECTIVES: Words<Directive> = Words {
    served: &[
        (Directive::Acl, acl::ACL),
        (Directive::Any, once("any", "", 0, 0)),
        (Directive::Bind, process::BIND),
        (Directive::Bufsize, shaping::BUFSIZE),
        (Directive::Cache, cache::CACHE),
        (Directive::Chaos, fixed::CHAOS),
        (Directive::Debug, once("debug", "", 0, 0)),
        (Directive::Dns64, dns64::DNS64),
        (Directive::Dnstap, telling::DNSTAP),
        (Directive::DnsNameResolver, resolver::DNSNAMERESOLVER),
        (Directive::Errors, telling::ERRORS),
        (Directive::Expression, many("expression", "NAME", 1, 1)),
        (Directive::File, hosts::FILE),
        (Directive::Firewall, firewall::FIREWALL),
        (Directive::Forward, forward::FORWARD),
        (Directive::GeoIp, geoip::GEOIP),
        (Directive::Header, shaping::HEADER),
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
        (Directive::Minimal, once("minimal", "", 0, 0)),
        (Directive::Nsid, shaping::NSID),
        (Directive::OcpDnsNameResolver, resolver::OCP_DNSNAMERESOLVER),
        (Directive::Opa, opa::OPA),
        (Directive::Policy, policy::POLICY),
        (Directive::Prometheus, process::PROMETHEUS),
        (Directive::Ready, process::READY),
        (Directive::Reload, process::RELOAD),
        (Directive::Request, edns0::REQUEST),
        (Directive::Rewrite, rewrite::REWRITE),
        (Directive::Rpz, rpz::RPZ),
        (Directive::Template, template::TEMPLATE),
        (Directive::Themis, themis::THEMIS),
        (Directive::Timeouts, shaping::TIMEOUTS),
        (Directive::Tls, tls::TLS),
        (Directive::Trace, fixed::TRACE),
        (Directive::View, view::VIEW),
        (Directive::Whoami, once("whoami", "", 0, 0)),
    ],
    not_served: &[
        ("alternate", "write `failover RCODE…` in `forward`"),
        ("auto", "name each zone file with `file`"),
        ("autopath", "remove it: clients look their search paths up themselves"),
        ("azure", "forward its zones to a server that has them"),
        ("cancel", "remove it: queries have a time limit"),
        ("casbin", "write its rules as expressions, or use `opa`"),
        ("clouddns", "forward its zones to a server that has them"),
        ("dnssec", "forward to a server that signs"),
        ("dynupdate", "remove it: zones change with their files"),
        ("erratic", "remove it"),
        ("etcd", "forward its zones to a server that has them"),
        ("fallback", "write `failover RCODE…` in `forward`"),
        ("federation", "remove it: Kubernetes has no federations any more"),
        ("grpc", "use `forward`"),
        ("grpc_server", "serve DNS over TLS or HTTPS: `tls://` or `https://`"),
        ("https", "remove it: connections and streams are bounded by the server"),
        ("https3", "serve DNS over TLS or HTTPS: `tls://` or `https://`"),
        ("k8s_external", "forward its zones to a server that has them"),
        ("multisocket", "remove it: the sockets are the server's own choice"),
        ("nomad", "forward its zones to a server that has them"),
        ("on", "remove it"),
        ("pprof", "remove it"),
        ("proxy", "use `forward`, as CoreDNS does since 1.5"),
        ("proxyproto", "remove it: clients are those of their connections"),
        ("quic", "serve DNS over TLS or HTTPS: `tls://` or `https://`"),
        ("root", "write whole paths"),
        ("route53", "forward its zones to a server that has them"),
        ("secondary", "forward its zones to a server that has them"),
        ("shed", "remove it: what waits is bounded for each client"),
        ("sign", "forward to a server that signs"),
        ("siit", "forward to a server that translates"),
        ("transfer", "remove it: zones are not transferred"),
        ("tsig", "remove it"),
    ],
};

#[cfg(test)]
mod tests {
    use super::DIRECTIVES;
    use std::collections::BTreeSet;

    /// The document has every directive, served or refused, where it belongs.
    #[test]
    fn the_table_of_directives_is_complete() {
        let page = include_str!("../../../../docs/corefile.md");
        let table =
            page.split("## All directives").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
        let words = |is_refused: bool| -> BTreeSet<&str> {
            let rows = table.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
            let rows = rows.filter(|row| row.starts_with("| refused") == is_refused);
            rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect()
        };
        assert_eq!(words(false), DIRECTIVES.names().collect());
        assert_eq!(words(true), DIRECTIVES.not_served.iter().map(|(name, _)| *name).collect());
    }
}
