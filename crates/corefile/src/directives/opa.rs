//! `opa NAME { … }`: an OPA that is asked over HTTP, or Rego policies that are evaluated here.

use super::decision::{self, Decision};
use crate::form::{ANY, Form, Words, many, once};
use crate::lexer::Token;
use crate::parse::Line;
use crate::problem::Report;
use crate::values::{path, tls};
use crate::{FileSpan, Host, HostPort, HttpUrl, Tls};
use namewall_expression::Fact;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const OPA: Form = many("opa", "NAME { … }", 1, 1);

/// An option of `opa`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OpaOption {
    Endpoint,
    Tls,
    Fields,
    Policy,
    Data,
    Query,
    V0,
    Timeout,
    Concurrency,
    DefaultDecision,
}

const OPTIONS: Words<OpaOption> = Words {
    served: &[
        (OpaOption::Endpoint, once("endpoint", "URL", 1, 1)),
        (OpaOption::Tls, once("tls", "CERT KEY CA", 3, 3)),
        (OpaOption::Fields, once("fields", "FIELD…", 1, ANY)),
        (OpaOption::Policy, many("policy", "FILE…", 1, ANY)),
        (OpaOption::Data, many("data", "FILE…", 1, ANY)),
        (OpaOption::Query, once("query", "data.PACKAGE.RULE", 1, 1)),
        (OpaOption::V0, once("v0", "", 0, 0)),
        (OpaOption::Timeout, once("timeout", "DURATION", 1, 1)),
        (OpaOption::Concurrency, once("concurrency", "NUMBER", 1, 1)),
        (OpaOption::DefaultDecision, decision::FORM),
    ],
    not_served: &[],
};

/// What is asked where a Corefile does not say it: the rule of the plugin's own example.
const DEFAULT_PATH: &str = "/v1/data/dns/action";
const DEFAULT_QUERY: &str = "data.dns.action";
/// What is sent where a Corefile does not say it.
const DEFAULT_FIELDS: [&str; 4] = ["client_ip", "name", "rcode", "response_ip"];

#[derive(Clone, PartialEq, Debug)]
pub struct Opa {
    pub at: OpaAt,
    /// What it is told.
    pub fields: Vec<OpaField>,
    pub timeout: Option<Duration>,
    /// How many questions may be under way.
    pub concurrency: Option<u32>,
    /// What counts if it fails.
    pub default_decision: Option<Decision>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum OpaAt {
    /// Over HTTP, at the rule's own URL.
    Remote { url: HttpUrl, tls: Option<Tls> },
    /// In this process.
    Here {
        policies: Vec<PathBuf>,
        data: Vec<PathBuf>,
        /// `data.dns.action`
        query: Arc<str>,
        /// Whether the policies are of Rego's first version.
        is_v0: bool,
    },
}

/// A fact, under the name it is sent by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpaField {
    pub name: Arc<str>,
    pub fact: Fact,
}

pub(crate) fn read(line: &Line, report: &mut Report) -> Opa {
    let mut url: Option<(HttpUrl, FileSpan)> = None;
    let (mut certificates, mut policies, mut data) = (None, Vec::new(), Vec::new());
    let (mut query, mut v0): (Option<&Token>, Option<&Line>) = (None, None);
    let mut fields: Vec<OpaField> = Vec::new();
    let (mut timeout, mut concurrency, mut default_decision) = (None, None, None);
    let mut is_asked_for = false;
    for (key, option) in report.options(line, &OPTIONS) {
        match key {
            OpaOption::Endpoint => {
                is_asked_for = true;
                url = report.url(&option.args[0]).map(|url| (url, option.place().clone()));
            }
            OpaOption::Tls => certificates = Some((tls(&option.args), option.place().clone())),
            OpaOption::Fields => fields = option.args.iter().map(|field| named(&field.text)).collect(),
            OpaOption::Policy => policies.extend(option.args.iter().map(path)),
            OpaOption::Data => data.extend(option.args.iter().map(path)),
            OpaOption::Query => query = Some(&option.args[0]),
            OpaOption::V0 => v0 = Some(option),
            OpaOption::Timeout => timeout = report.duration(&option.args[0]),
            OpaOption::Concurrency => concurrency = report.number(&option.args[0], 1..=65_535),
            OpaOption::DefaultDecision => default_decision = decision::read(option, report),
        }
    }
    if fields.is_empty() {
        fields = DEFAULT_FIELDS.iter().map(|field| named(field)).collect();
    }
    let is_here = !policies.is_empty();
    if let (true, Some((_, place))) = (is_here, &url) {
        report
            .error("two-engines", place, "an OPA is asked over HTTP or evaluated here, not both")
            .help("remove `endpoint` or `policy`");
    }
    let needs_policy = [data.first().map(|_| line.place()), query.map(|query| &query.place), v0.map(Line::place)];
    if let (false, Some(place)) = (is_here, needs_policy.into_iter().flatten().next()) {
        report
            .error("no-policy", place, "`data`, `query` and `v0` are for policies that are evaluated here")
            .help("add `policy FILE…`");
    }
    if let (true, Some((_, place))) = (is_here, &certificates) {
        report.error("extra-option", place, "`tls` is for an OPA that is asked over HTTP").help("remove it");
    }
    let at = if is_here {
        OpaAt::Here { policies, data, query: read_query(query, report), is_v0: v0.is_some() }
    } else {
        if !is_asked_for {
            let message = format!("`{}` has no endpoint", line.args[0].text);
            report
                .warning("no-endpoint", line.place(), message)
                .help(format!("OPA's own port is asked: http://localhost:8181{DEFAULT_PATH}"));
        }
        let tls = certificates.map(|(certificates, _)| certificates);
        OpaAt::Remote { url: url.map_or_else(default_url, |(url, _)| url), tls }
    };
    Opa { at, fields, timeout, concurrency, default_decision }
}

fn named(name: &str) -> OpaField {
    OpaField { name: name.into(), fact: Fact::named(name) }
}

fn default_url() -> HttpUrl {
    let host = Host::Address(std::net::Ipv4Addr::LOCALHOST.into());
    HttpUrl { is_tls: false, at: HostPort { host, port: 8181 }, path: DEFAULT_PATH.into() }
}

fn read_query(token: Option<&Token>, report: &mut Report) -> Arc<str> {
    let Some(token) = token else { return DEFAULT_QUERY.into() };
    let mut parts = token.text.split('.');
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_query = parts.next() == Some("data") && token.text.contains('.') && parts.all(is_name);
    if !is_query {
        report
            .error("bad-query", &token.place, format!("`{}` is not the name of a rule", token.text))
            .help(format!("write its whole name, like `{DEFAULT_QUERY}`"));
    }
    token.text.clone()
}
