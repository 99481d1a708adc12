//! Names as the source's own resolver reads them (S10.4): its search list, the
//! names of Services and pods, ExternalName Services.

use super::world::NamedObject;
use super::{AskError, Host, World};
use crate::domain::DomainName;
use crate::model::{BackendTarget, DnsPolicy, ServiceForm, ServiceId, WorkloadId};
use std::net::IpAddr;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Meaning {
    Service(ServiceId),
    Pod(WorkloadId),
    /// Addresses that the name was answered with.
    Addresses(Vec<IpAddr>),
    /// A name outside the cluster whose addresses are not known.
    Outside(DomainName),
}

/// How a source looks names up.
struct Lookup {
    search: Vec<String>,
    ndots: usize,
    /// Whether it asks the cluster's DNS server.
    in_cluster: bool,
    /// Whether it is no pod. Nobody knows its search list, so `SERVICE.NAMESPACE.svc` is understood as it is.
    is_outside: bool,
}

/// With fewer dots than this the search list comes first, in a pod that asks the cluster's DNS server.
const CLUSTER_NDOTS: usize = 5;
/// The default of the C library.
const NDOTS: usize = 1;
/// One ExternalName may lead to another.
const MOST_LINKS: usize = 16;

impl World<'_> {
    /// What the name means to the source.
    pub(super) fn resolve(&self, from: &Host, host: &Host) -> Result<Meaning, AskError> {
        let (written, is_absolute) = match host {
            Host::Name(name) => (name, false),
            Host::Absolute(name) => (name, true),
            _ => return Err(AskError::Host(host.to_string())),
        };
        let lookup = self.lookup_of(from);
        for candidate in lookup.candidates(written, is_absolute) {
            if let Some(found) = self.known(&candidate, &lookup) {
                return self.follow(found);
            }
        }
        if !self.is_inside(written, is_absolute) {
            return Ok(Meaning::Outside(written.clone()));
        }
        let suggestion = match self.service_missed(from, written) {
            Some((namespace, name)) if !lookup.in_cluster => {
                format!("; it asks the DNS server of its node, which does not know the Service {namespace}/{name}")
            }
            Some((namespace, name)) => {
                let why = match is_absolute {
                    true => "a name that ends in a dot is not searched for".to_owned(),
                    false => format!("its search list does not lead to the Service {namespace}/{name}"),
                };
                format!("; {why}: write {name}.{namespace}.svc.{}", self.cluster_domain.as_str())
            }
            None => self.workload_suggestion(from, written),
        };
        Err(AskError::NoSuchName(host.to_string(), from.to_string(), suggestion))
    }

    /// The question that the source's resolver asks for this host and the name behind it, where an ExternalName Service
    /// leads out of the cluster.
    pub fn external_name(&self, from: &Host, host: &Host) -> Option<(DomainName, DomainName)> {
        let service = match host {
            Host::Object { .. } => match self.find(host).ok()? {
                NamedObject::Service(id) => id,
                NamedObject::Workload(_) => return None,
            },
            Host::Name(name) | Host::Absolute(name) => {
                let lookup = self.lookup_of(from);
                let is_absolute = matches!(host, Host::Absolute(_));
                let mut candidates = lookup.candidates(name, is_absolute).into_iter();
                match candidates.find_map(|candidate| self.known(&candidate, &lookup))? {
                    Meaning::Service(id) => id,
                    _ => return None,
                }
            }
            Host::Address(_) => return None,
        };
        let asked = self.service_name(service)?;
        let mut at = service;
        for _ in 0..MOST_LINKS {
            let ServiceForm::ExternalName(target) = &self.snapshot.services[at.index()].form else { return None };
            match self.service_named(target) {
                Some(next) => at = next,
                None => return Some((asked, target.clone())),
            }
        }
        None
    }

    /// The name that the cluster's DNS has for a Service.
    fn service_name(&self, id: ServiceId) -> Option<DomainName> {
        let service = &self.snapshot.services[id.index()];
        let namespace = &self.snapshot.namespace(service.namespace).name;
        format!("{}.{namespace}.svc.{}", service.name, self.cluster_domain.as_str()).parse().ok()
    }

    fn lookup_of(&self, from: &Host) -> Lookup {
        let workload = match self.find(from) {
            Ok(NamedObject::Workload(id)) => id,
            // From outside there is no search list; names in the cluster's form are understood all the same.
            _ => return Lookup { search: Vec::new(), ndots: NDOTS, in_cluster: true, is_outside: true },
        };
        let member = self.snapshot.workload(workload);
        let namespace = &self.snapshot.namespace(member.namespace).name;
        let config = self.snapshot.dns_of(workload);
        let in_cluster = match config.policy {
            DnsPolicy::ClusterFirst => !member.host_network,
            DnsPolicy::ClusterFirstWithHostNet => true,
            DnsPolicy::Default | DnsPolicy::None => false,
        };
        let domain = self.cluster_domain.as_str();
        let mut search = match in_cluster {
            true => vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()],
            false => Vec::new(),
        };
        search.extend(config.searches.iter().map(|one| one.as_str().to_owned()));
        let default = if in_cluster { CLUSTER_NDOTS } else { NDOTS };
        // With `None` the pod names its servers itself, and they may be the cluster's.
        let in_cluster = in_cluster || config.policy == DnsPolicy::None;
        Lookup { search, ndots: config.ndots.map_or(default, usize::from), in_cluster, is_outside: false }
    }

    /// What there is of this very name.
    fn known(&self, name: &DomainName, lookup: &Lookup) -> Option<Meaning> {
        let answered = || self.names.get(name).filter(|known| !known.is_empty());
        if let Some(addresses) = answered() {
            return Some(Meaning::Addresses(addresses.clone()));
        }
        if !lookup.in_cluster {
            return None;
        }
        let whole = || format!("{}.{}", name.as_str(), self.cluster_domain.as_str()).parse().ok();
        let name = match lookup.is_outside && !name.is_under(self.cluster_domain) {
            true => &whole()?,
            false => name,
        };
        self.service_named(name).map(Meaning::Service).or_else(|| self.pod_named(name))
    }

    /// Where an ExternalName Service leads. A name outside stays the name that is asked for: rules are matched against
    /// the question (S6.2).
    fn follow(&self, found: Meaning) -> Result<Meaning, AskError> {
        let asked = match found {
            Meaning::Service(id) => self.service_name(id),
            _ => None,
        };
        let mut at = found;
        for _ in 0..MOST_LINKS {
            let Meaning::Service(id) = at else { return Ok(at) };
            let service = &self.snapshot.services[id.index()];
            let ServiceForm::ExternalName(target) = &service.form else { return Ok(at) };
            at = match (self.service_named(target), self.names.get(target).filter(|known| !known.is_empty())) {
                (Some(next), _) => Meaning::Service(next),
                (None, Some(addresses)) => Meaning::Addresses(addresses.clone()),
                (None, None) => Meaning::Outside(asked.clone().unwrap_or_else(|| target.clone())),
            };
        }
        let Meaning::Service(id) = at else { return Ok(at) };
        let service = &self.snapshot.services[id.index()];
        let namespace = &self.snapshot.namespace(service.namespace).name;
        Err(AskError::ExternalNameLoop(format!("{namespace}/{}", service.name)))
    }

    /// The same for a Service that was asked for as an object.
    pub(super) fn behind(&self, id: ServiceId) -> Result<Meaning, AskError> {
        self.follow(Meaning::Service(id))
    }

    /// The labels before `svc` or `pod` in a name of the cluster, and which of the two it is.
    fn in_cluster<'n>(&self, name: &'n DomainName) -> Option<(Vec<&'n str>, &'n str)> {
        let inside = name.as_str().strip_suffix(self.cluster_domain.as_str())?.strip_suffix('.')?;
        let mut labels: Vec<&str> = inside.split('.').collect();
        let last = labels.pop()?;
        matches!(last, "svc" | "pod").then_some((labels, last))
    }

    /// `SERVICE.NAMESPACE.svc.cluster.local`.
    fn service_named(&self, name: &DomainName) -> Option<ServiceId> {
        let (labels, "svc") = self.in_cluster(name)? else { return None };
        let [service, namespace] = labels.as_slice() else { return None };
        self.service_at(namespace, service)
    }

    fn service_at(&self, namespace: &str, name: &str) -> Option<ServiceId> {
        let namespace = self.snapshot.namespace_named(namespace)?;
        let at = self.snapshot.services.iter().position(|s| s.namespace == namespace && *s.name == *name)?;
        Some(ServiceId(at as u32))
    }

    /// `POD.SERVICE.NAMESPACE.svc` behind a headless Service, and `10-0-0-1.NAMESPACE.pod`.
    fn pod_named(&self, name: &DomainName) -> Option<Meaning> {
        let (labels, form) = self.in_cluster(name)?;
        match (labels.as_slice(), form) {
            ([pod, service, namespace], "svc") => {
                let service = self.service_at(namespace, service)?;
                let service = &self.snapshot.services[service.index()];
                if service.form != ServiceForm::Headless {
                    return None;
                }
                let mut backends = service.ports.iter().flat_map(|port| &port.backends);
                let found = backends.find_map(|backend| {
                    let id = match backend.target {
                        BackendTarget::Workload(id) => id,
                        BackendTarget::Address(address) => self.program.pod_at(address)?,
                    };
                    (*self.snapshot.workload(id).name == **pod).then_some(id)
                });
                found.map(Meaning::Pod)
            }
            ([dashes, _], "pod") => {
                let v4 = dashes.replace('-', ".").parse::<IpAddr>();
                let address = v4.or_else(|_| dashes.replace('-', ":").parse::<IpAddr>()).ok()?;
                Some(Meaning::Addresses(vec![address]))
            }
            _ => None,
        }
    }

    /// Whether the name can only be meant for something in the cluster: one label, a name under the cluster's domain, or
    /// one that ends in a namespace.
    fn is_inside(&self, name: &DomainName, is_absolute: bool) -> bool {
        if name.is_under(self.cluster_domain) {
            return true;
        }
        let labels: Vec<&str> = name.labels().collect();
        match labels.as_slice() {
            [.., _, "svc"] => true,
            ["localhost"] => false,
            _ if is_absolute => false,
            [_] => true,
            [_, namespace] => self.snapshot.namespace_named(namespace).is_some(),
            _ => false,
        }
    }

    /// The namespace and the name that are probably meant, in the source's own namespace if none is written.
    fn meant<'n>(&self, from: &'n Host, name: &'n DomainName) -> (&'n str, &'n str) {
        let inside = name.as_str().strip_suffix(self.cluster_domain.as_str()).unwrap_or(name.as_str());
        let inside = inside.trim_end_matches('.').trim_end_matches(".svc");
        let own = match from {
            Host::Object { namespace, .. } => namespace.as_str(),
            _ => "default",
        };
        let (name, namespace) = inside.split_once('.').unwrap_or((inside, own));
        (namespace, name)
    }

    /// The Service that is meant, where the source's resolver does not find it.
    fn service_missed<'n>(&self, from: &'n Host, name: &'n DomainName) -> Option<(&'n str, &'n str)> {
        let (namespace, name) = self.meant(from, name);
        self.service_at(namespace, name).map(|_| (namespace, name))
    }

    /// `; did you mean the workload default/web?`
    fn workload_suggestion(&self, from: &Host, name: &DomainName) -> String {
        let (namespace, workload) = self.meant(from, name);
        let host = Host::Object { namespace: namespace.to_owned(), kind: None, name: workload.to_owned() };
        match self.find(&host) {
            Ok(NamedObject::Workload(_)) | Err(AskError::Ambiguous(..)) => {
                format!("; there is no Service of that name. Did you mean the workload {namespace}/{workload}?")
            }
            _ => match self.snapshot.services.iter().find(|service| *service.name == *workload) {
                Some(service) => {
                    let namespace = &self.snapshot.namespace(service.namespace).name;
                    format!("; there is a Service {workload} in namespace {namespace}: write {workload}.{namespace}")
                }
                None => self.suggestion(namespace, workload),
            },
        }
    }
}

impl Lookup {
    /// The names that are tried, in order.
    fn candidates(&self, name: &DomainName, is_absolute: bool) -> Vec<DomainName> {
        if is_absolute {
            return vec![name.clone()];
        }
        let joined = self.search.iter().filter_map(|suffix| format!("{}.{suffix}", name.as_str()).parse().ok());
        let mut all: Vec<DomainName> = joined.collect();
        let dots = name.labels().count() - 1;
        let at = if dots >= self.ndots { 0 } else { all.len() };
        all.insert(at, name.clone());
        all
    }
}
