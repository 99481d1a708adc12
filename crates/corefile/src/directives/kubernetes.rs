//! `kubernetes [ZONE…] { … }`: names of a cluster, and where the facts about pods come from.

use crate::form::{ANY, Form, Words, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::selector::selector;
use crate::values::{path, tls};
use crate::{FileSpan, HttpUrl, Tls, Zone};
use namewall_policy::labels::Selector;
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
    StartupTimeout,
    ApiServerQps,
    ApiServerBurst,
    ApiServerMaxInflight,
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
        (KubernetesOption::StartupTimeout, once("startup_timeout", "DURATION", 1, 1)),
        (KubernetesOption::ApiServerQps, once("apiserver_qps", "NUMBER", 1, 1)),
        (KubernetesOption::ApiServerBurst, once("apiserver_burst", "NUMBER", 1, 1)),
        (KubernetesOption::ApiServerMaxInflight, once("apiserver_max_inflight", "NUMBER", 1, 1)),
    ],
    not_served: &[
        ("upstream", "CoreDNS has removed it: external names are always looked up"),
        ("resyncperiod", "CoreDNS has removed it: changes are watched"),
        ("transfer", "zones are not transferred"),
        ("multicluster", "forward the zone to a server that has it: ServiceImports are not read here"),
        ("zonal", "remove it: there are no names of topology zones here"),
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
    /// Which Services, EndpointSlices and pods count.
    pub labels: Selector,
    /// Which namespaces count.
    pub namespace_labels: Option<Selector>,
    pub pods: PodMode,
    pub endpoint_pod_names: bool,
    pub ttl: Duration,
    pub has_endpoints: bool,
    pub fallthrough: Vec<Zone>,
    pub ignore_empty_services: bool,
    /// How long the start waits for the API server.
    pub startup_timeout: Duration,
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
        labels: Selector::everything(),
        namespace_labels: None,
        pods: PodMode::default(),
        endpoint_pod_names: false,
        ttl: Duration::from_secs(5),
        has_endpoints: true,
        fallthrough: Vec::new(),
        ignore_empty_services: false,
        startup_timeout: Duration::from_secs(5),
        place: line.place().clone(),
    };
    for (option, line) in report.options(line, &OPTIONS) {
        kubernetes.set(option, &line.args, report);
    }
    let is_reverse = |zone: &Zone| zone.is_reverse();
    if !kubernetes.zones.is_empty() && kubernetes.zones.iter().all(is_reverse) {
        report
            .error("bad-zone", line.place(), "names of addresses lead to names of a zone, and none is named")
            .help("write the cluster's zone, too: `kubernetes cluster.local in-addr.arpa ip6.arpa`");
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
            KubernetesOption::Labels => self.labels = read_selector(args, report).unwrap_or_default(),
            KubernetesOption::NamespaceLabels => self.namespace_labels = read_selector(args, report),
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
            KubernetesOption::StartupTimeout => {
                self.startup_timeout = report.duration(&args[0]).unwrap_or(self.startup_timeout);
            }
            KubernetesOption::ApiServerQps
            | KubernetesOption::ApiServerBurst
            | KubernetesOption::ApiServerMaxInflight => {
                let why = "it has no effect: the API server is asked for a list and then only watched";
                report.hint("no-effect", &args[0].place, why).help("remove it");
            }
        }
    }
}

/// A selector, whose words may be apart.
fn read_selector(args: &[Token], report: &mut Report) -> Option<Selector> {
    let text = args.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ");
    match selector(&text) {
        Ok(selector) => Some(selector),
        Err(why) => {
            report.error("bad-selector", &args[0].place, why).help("write it like `app=web,tier in (front, back)`");
            None
        }
    }
}
