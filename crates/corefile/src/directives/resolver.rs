//! `ocp_dnsnameresolver { … }`: answers are written to DNSNameResolver objects.

use crate::form::{ANY, Form, Words, once};
use crate::parse::Line;
use crate::problem::Report;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const OCP_DNSNAMERESOLVER: Form = once("ocp_dnsnameresolver", "{ … }", 0, 0);
pub(crate) const DNSNAMERESOLVER: Form = once("dnsnameresolver", "{ … }", 0, 0);

/// An option of `ocp_dnsnameresolver`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ResolverOption {
    Namespaces,
    MinTtl,
    FailureThreshold,
}

const OPTIONS: Words<ResolverOption> = Words {
    served: &[
        (ResolverOption::Namespaces, once("namespaces", "NAMESPACE…", 1, ANY)),
        (ResolverOption::MinTtl, once("minTTL", "SECONDS", 1, 1)),
        (ResolverOption::FailureThreshold, once("failureThreshold", "NUMBER", 1, 1)),
    ],
    not_served: &[],
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DnsNameResolver {
    /// Empty is all.
    pub namespaces: Vec<Arc<str>>,
    /// For answers that say 0.
    pub min_ttl: Duration,
    /// Failures after which a name is let go.
    pub failure_threshold: u32,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> DnsNameResolver {
    let mut read = DnsNameResolver { namespaces: Vec::new(), min_ttl: Duration::from_secs(5), failure_threshold: 5 };
    for (key, option) in report.options(line, &OPTIONS) {
        let first = &option.args[0];
        match key {
            ResolverOption::Namespaces => read.namespaces = option.args.iter().map(|name| name.text.clone()).collect(),
            ResolverOption::MinTtl => read.min_ttl = report.seconds(first, 1..=i32::MAX as u32).unwrap_or(read.min_ttl),
            ResolverOption::FailureThreshold => {
                read.failure_threshold = report.number(first, 1..=i32::MAX as u32).unwrap_or(read.failure_threshold)
            }
        }
    }
    read
}
