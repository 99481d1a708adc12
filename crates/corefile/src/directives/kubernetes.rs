//! `kubernetes [ZONE…] { … }`: where the facts about pods come from.

use crate::form::{ANY, Form, Words, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::values::{path, tls};
use crate::{FileSpan, HttpUrl, Tls, Zone};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const KUBERNETES: Form = once("kubernetes", "[ZONE…] { … }", 0, ANY);

/// An option of `kubernetes`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KubernetesOption {
    Endpoint,
    Tls,
    Kubeconfig,
    Namespaces,
    Labels,
    NamespaceLabels,
    Pods,
    EndpointPodNames,
    Ttl,
    NoEndpoints,
    Fallthrough,
    Ignore,
    Multicluster,
}

const OPTIONS: Words<KubernetesOption> = Words {
    served: &[
        (KubernetesOption::Endpoint, once("endpoint", "URL", 1, ANY)),
        (KubernetesOption::Tls, once("tls", "CERT KEY CA", 3, 3)),
        (KubernetesOption::Kubeconfig, once("kubeconfig", "FILE [CONTEXT]", 1, 2)),
        (KubernetesOption::Namespaces, once("namespaces", "NAMESPACE…", 1, ANY)),
        (KubernetesOption::Labels, once("labels", "SELECTOR", 1, ANY)),
        (KubernetesOption::NamespaceLabels, once("namespace_labels", "SELECTOR", 1, ANY)),
        (KubernetesOption::Pods, once("pods", "disabled|insecure|verified", 1, 1)),
        (KubernetesOption::EndpointPodNames, once("endpoint_pod_names", "", 0, 0)),
        (KubernetesOption::Ttl, once("ttl", "SECONDS", 1, 1)),
        (KubernetesOption::NoEndpoints, once("noendpoints", "", 0, 0)),
        (KubernetesOption::Fallthrough, once("fallthrough", "[ZONE…]", 0, ANY)),
        (KubernetesOption::Ignore, once("ignore", "empty_service", 1, 1)),
        (KubernetesOption::Multicluster, once("multicluster", "ZONE…", 1, ANY)),
    ],
    not_served: &[
        ("upstream", "CoreDNS has removed it: external names are always looked up"),
        ("resyncperiod", "CoreDNS has removed it: changes are watched"),
        ("transfer", "zones are not transferred"),
    ],
};

#[derive(Clone, PartialEq, Debug)]
pub struct Kubernetes {
    /// Empty is all of the server's.
    pub zones: Vec<Zone>,
    /// The API server; the cluster's own, if there is none.
    pub endpoint: Option<HttpUrl>,
    pub tls: Option<Tls>,
    pub kubeconfig: Option<Kubeconfig>,
    /// Empty is all.
    pub namespaces: Vec<Arc<str>>,
    /// Selectors, as written.
    pub labels: Option<Arc<str>>,
    pub namespace_labels: Option<Arc<str>>,
    pub pods: PodMode,
    pub endpoint_pod_names: bool,
    pub ttl: Duration,
    pub has_endpoints: bool,
    pub fallthrough: Vec<Zone>,
    pub ignore_empty_services: bool,
    pub multicluster: Vec<Zone>,
    pub place: FileSpan,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kubeconfig {
    pub file: PathBuf,
    pub context: Option<Arc<str>>,
}

/// Which names like `10-0-0-1.shop.pod.cluster.local` are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PodMode {
    #[default]
    Disabled,
    Insecure,
    /// Those of pods that are there.
    Verified,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Kubernetes {
    let mut kubernetes = Kubernetes {
        zones: report.zones(&line.args),
        endpoint: None,
        tls: None,
        kubeconfig: None,
        namespaces: Vec::new(),
        labels: None,
        namespace_labels: None,
        pods: PodMode::default(),
        endpoint_pod_names: false,
        ttl: Duration::from_secs(5),
        has_endpoints: true,
        fallthrough: Vec::new(),
        ignore_empty_services: false,
        multicluster: Vec::new(),
        place: line.place().clone(),
    };
    for (option, line) in report.options(line, &OPTIONS) {
        kubernetes.set(option, &line.args, report);
    }
    if !kubernetes.namespaces.is_empty() && kubernetes.namespace_labels.is_some() {
        report
            .error("bad-word", line.place(), "namespaces are chosen by name or by label, not both")
            .help("remove `namespaces` or `namespace_labels`");
    }
    kubernetes
}

impl Kubernetes {
    fn set(&mut self, option: KubernetesOption, args: &[Token], report: &mut Report) {
        let joined = |args: &[Token]| -> Option<Arc<str>> {
            Some(args.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ").into())
        };
        match option {
            KubernetesOption::Endpoint => {
                if let Some(second) = args.get(1) {
                    report.error("extra-argument", &second.place, "one API server is asked").help("remove the others");
                }
                self.endpoint = report.url(&args[0]);
            }
            KubernetesOption::Tls => self.tls = Some(tls(args)),
            KubernetesOption::Kubeconfig => {
                let context = args.get(1).map(|context| context.text.clone());
                self.kubeconfig = Some(Kubeconfig { file: path(&args[0]), context });
            }
            KubernetesOption::Namespaces => self.namespaces = args.iter().map(|name| name.text.clone()).collect(),
            KubernetesOption::Labels => self.labels = joined(args),
            KubernetesOption::NamespaceLabels => self.namespace_labels = joined(args),
            KubernetesOption::Pods => {
                let modes =
                    [("disabled", PodMode::Disabled), ("insecure", PodMode::Insecure), ("verified", PodMode::Verified)];
                self.pods = report.word(&args[0], &modes).unwrap_or_default();
            }
            KubernetesOption::EndpointPodNames => self.endpoint_pod_names = true,
            KubernetesOption::Ttl => self.ttl = report.seconds(&args[0], 0..=3600).unwrap_or(self.ttl),
            KubernetesOption::NoEndpoints => self.has_endpoints = false,
            KubernetesOption::Fallthrough => self.fallthrough = report.fallthrough(args),
            KubernetesOption::Ignore => {
                self.ignore_empty_services = report.word(&args[0], &[("empty_service", ())]).is_some()
            }
            KubernetesOption::Multicluster => self.multicluster = report.zones(args),
        }
    }
}
