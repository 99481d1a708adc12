//! Facts that rules look at, and whether anything in their server block can set them. A rule about a fact that is
//! never set never matches: a deny of it would let everything pass.

use crate::problem::Report;
use crate::suggest::nearest;
use crate::{
    ConfiguredEngine, Encoding, EngineKind, FileSpan, OptionAction, OptionData, OptionRewrite, Point, RewriteChange,
    Rule, RuleKind, ServerBlock, Text,
};
use namewall_expression::Fact;
use std::sync::Arc;

/// What is known of the pod that asks. It comes from the cluster, and not from the Corefile.
const OF_CLIENTS: [&str; 3] =
    ["kubernetes/client-namespace", "kubernetes/client-pod-name", "kubernetes/client-service-account"];
/// Before the name of a label of that pod.
const CLIENT_LABEL: &str = "kubernetes/client-label/";
/// What the name of a question says, in a zone of the directive `kubernetes`.
pub const OF_NAMES: [&str; 6] = [
    "kubernetes/namespace",
    "kubernetes/service",
    "kubernetes/endpoint",
    "kubernetes/kind",
    "kubernetes/port-name",
    "kubernetes/protocol",
];

/// What the directive `geoip` knows of clients.
pub const OF_GEOIP: [&str; 13] = [
    "geoip/city/name",
    "geoip/country/code",
    "geoip/country/name",
    "geoip/country/is_in_european_union",
    "geoip/continent/code",
    "geoip/continent/name",
    "geoip/subdivisions/code",
    "geoip/latitude",
    "geoip/longitude",
    "geoip/timezone",
    "geoip/postalcode",
    "geoip/asn/number",
    "geoip/asn/org",
];
/// What the server counts itself; misspelt they are labels.
const OF_TUNNELS: [&str; 4] = ["label_length", "label_entropy", "client_rate", "client_subdomains"];

/// What in a Corefile asks who the client's pod is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientFact {
    /// A fact like `kubernetes/client-namespace`, or `kubernetes rbac`.
    pub name: Arc<str>,
    pub place: FileSpan,
}

impl ServerBlock {
    /// The first rule, view, engine or option whose outcome depends on the client's pod. Logs are not meant: they decide
    /// nothing.
    pub fn client_fact(&self) -> Option<ClientFact> {
        let found = |name: &str, place: &FileSpan| ClientFact { name: name.into(), place: place.clone() };
        let of_pod = |fact: &Fact| match fact {
            Fact::Label(label) if is_client_fact(label) => Some(label.clone()),
            _ => None,
        };
        let of_view = self.view.iter().flat_map(|view| {
            let facts = view.conditions.iter().flat_map(|condition| condition.facts());
            facts.filter_map(of_pod).map(|label| found(&label, &view.place))
        });
        let of_rules = self.firewalls.iter().flat_map(|list| &list.rules).filter_map(|rule| match &rule.kind {
            RuleKind::Expression { expression, .. } => {
                Some(found(&expression.facts().iter().find_map(of_pod)?, &rule.place))
            }
            RuleKind::Engine { kind: EngineKind::Kubernetes, .. } => Some(found("kubernetes rbac", &rule.place)),
            RuleKind::Engine { .. } => None,
        });
        let of_engines = self.engines.iter().filter_map(|settings| {
            let label = match &settings.engine {
                ConfiguredEngine::Expression => None,
                ConfiguredEngine::Opa(opa) => opa.fields.iter().find_map(|field| of_pod(&field.fact)),
                ConfiguredEngine::Themis(themis) => themis.attributes.iter().find_map(|one| of_pod(&one.fact)),
            };
            Some(found(&label?, &settings.place))
        });
        let of_options = self.rewrites.iter().filter_map(|rewrite| match &rewrite.change {
            RewriteChange::Option(OptionRewrite {
                action:
                    OptionAction::Set(OptionData::Label(label))
                    | OptionAction::Append(OptionData::Label(label))
                    | OptionAction::Replace(OptionData::Label(label)),
                ..
            }) if is_client_fact(label) => Some(found(label, &rewrite.place)),
            _ => None,
        });
        of_view.chain(of_rules).chain(of_engines).chain(of_options).next()
    }
}

/// Whether a fact is about the client's pod.
pub fn is_client_fact(label: &str) -> bool {
    OF_CLIENTS.contains(&label) || label.len() > CLIENT_LABEL.len() && label.starts_with(CLIENT_LABEL)
}

/// Reports facts that nothing sets: an error in an expression. An engine is sent the others without them.
pub(crate) fn lint(server: &ServerBlock, report: &mut Report) {
    let known = Known::of(server);
    let rules = server.firewalls.iter().flat_map(|list| list.rules.iter().map(|rule| (list.point, rule)));
    for (point, rule) in rules {
        let RuleKind::Expression { text, expression, .. } = &rule.kind else { continue };
        for fact in expression.facts() {
            if point == Point::Query && fact.is_of_response() {
                let place = expression.place_of(fact).map_or_else(|| rule.place.clone(), |at| text.piece(at));
                report
                    .error("unset-fact", &place, format!("a query has no `{fact}` yet: it is never set here"))
                    .help("move the rule to `firewall response`");
            }
            let Fact::Label(label) = fact else { continue };
            if !known.can_be_set(label) {
                let place = expression.place_of(fact).map_or_else(|| rule.place.clone(), |at| text.piece(at));
                let help = known.advice(label, rule);
                report.error("unset-fact", &place, format!("`{label}` is never set")).help(help);
            }
        }
    }
    if let Some(view) = &server.view {
        for fact in view.conditions.iter().flat_map(|condition| condition.facts()) {
            let Fact::Label(label) = fact else { continue };
            if !known.can_be_set(label) {
                let help = known.missing(label);
                report.error("unset-fact", &view.place, format!("`{label}` is never set")).help(help);
            }
        }
    }
    for rewrite in &server.rewrites {
        let RewriteChange::Option(OptionRewrite { action, .. }) = &rewrite.change else { continue };
        let (OptionAction::Set(data) | OptionAction::Append(data) | OptionAction::Replace(data)) = action else {
            continue;
        };
        let OptionData::Label(label) = data else { continue };
        // What engines say is not known to `rewrite`.
        if !(Known { themis_engines: 0, labels: known.labels.clone(), ..known }).can_be_set(label) {
            let help = known.missing(label);
            report.error("unset-fact", &rewrite.place, format!("`{label}` is never set")).help(help);
        }
    }
    for settings in &server.engines {
        let facts: Vec<&Fact> = match &settings.engine {
            ConfiguredEngine::Expression => Vec::new(),
            ConfiguredEngine::Opa(opa) => opa.fields.iter().map(|field| &field.fact).collect(),
            ConfiguredEngine::Themis(themis) => themis.attributes.iter().map(|attribute| &attribute.fact).collect(),
        };
        for fact in facts {
            let Fact::Label(label) = fact else { continue };
            if known.can_be_set_before(label, &settings.engine) {
                continue;
            }
            let message = format!("`{label}` is never set");
            if label.contains('/') {
                let help = known.missing(label);
                report.error("unset-fact", &settings.place, message).help(help);
            } else {
                report
                    .warning("unset-fact", &settings.place, message)
                    .help(format!("`{}` is asked without it", settings.name));
            }
        }
    }
}

/// What can be set in a server block.
struct Known {
    /// Of EDNS0, and of default decisions.
    labels: Vec<Arc<str>>,
    has_kubernetes: bool,
    has_geoip: bool,
    /// What a Themis says besides its decision has any name.
    themis_engines: usize,
}

impl Known {
    fn of(server: &ServerBlock) -> Self {
        let mut labels: Vec<Arc<str>> = server.edns0.iter().map(|field| field.label.clone()).collect();
        for settings in &server.engines {
            let decision = match &settings.engine {
                ConfiguredEngine::Expression => None,
                ConfiguredEngine::Opa(opa) => opa.default_decision.as_ref(),
                ConfiguredEngine::Themis(themis) => themis.default_decision.as_ref(),
            };
            labels.extend(decision.iter().flat_map(|decision| &decision.attributes).map(|(name, _)| name.clone()));
        }
        let themis_engines = server.engines.iter().filter(|one| matches!(one.engine, ConfiguredEngine::Themis(_)));
        let (has_kubernetes, has_geoip) = (server.kubernetes.is_some(), !server.geoip.is_empty());
        Self { labels, has_kubernetes, has_geoip, themis_engines: themis_engines.count() }
    }

    fn can_be_set(&self, label: &str) -> bool {
        is_client_fact(label)
            || self.has_kubernetes && OF_NAMES.contains(&label)
            || self.has_geoip && OF_GEOIP.contains(&label)
            || self.labels.iter().any(|known| **known == *label)
            || self.themis_engines > 0 && !label.contains('/')
    }

    /// Whether it may be set when an engine is asked: what a Themis says is not known before.
    fn can_be_set_before(&self, label: &str, engine: &ConfiguredEngine) -> bool {
        let own = usize::from(matches!(engine, ConfiguredEngine::Themis(_)));
        let others = Known { themis_engines: self.themis_engines - own, labels: self.labels.clone(), ..*self };
        others.can_be_set(label)
    }

    /// What to do about a fact of an expression.
    fn advice(&self, label: &str, rule: &Rule) -> String {
        // `type == A` is about a label of that name.
        let is_word = !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        let is_written = |word: &str| rule.text.split_whitespace().any(|piece| piece == word);
        if is_word && is_written(label) {
            return format!("text is in quotes: write `'{label}'`");
        }
        self.missing(label)
    }

    /// What would set a fact.
    fn missing(&self, label: &str) -> String {
        if OF_NAMES.contains(&label) {
            return "add the directive `kubernetes`, which says what names of the cluster are about".to_owned();
        }
        if OF_GEOIP.contains(&label) {
            return "add the directive `geoip DBFILE`, which says where clients are".to_owned();
        }
        let known = OF_CLIENTS.into_iter().chain(OF_NAMES).chain(OF_GEOIP).chain(OF_TUNNELS);
        let names = known.chain(self.labels.iter().map(|label| &**label));
        if let Some(near) = nearest(label, names) {
            return format!("did you mean `{near}`?");
        }
        match label.split_once('/') {
            None => format!("add `request {{ edns0 CODE {label} }}`, or name a fact that is set (docs/expressions.md)"),
            Some(("metadata_edns0", field)) => format!("add `metadata_edns0 {{ {field} CODE }}`"),
            Some((plugin, _)) => format!("nothing here sets facts of `{plugin}`: remove the rule, or ask an engine"),
        }
    }
}

/// Decides for fields of EDNS0 whose encoding is not written: one that rules compare with text that cannot be
/// hexadecimal is read as text.
pub(crate) fn choose_encodings(server: &mut ServerBlock, report: &mut Report) {
    for field in server.edns0.iter_mut().filter(|field| field.is_untyped) {
        let fact = Fact::Label(field.label.clone());
        let rules = server.firewalls.iter().flat_map(|list| &list.rules);
        let (mut text, mut hex): (Option<FileSpan>, Option<FileSpan>) = (None, None);
        for rule in rules {
            let RuleKind::Expression { expression, .. } = &rule.kind else { continue };
            for literal in expression.literals_beside(&fact) {
                let side = if may_be_hexadecimal(literal) { &mut hex } else { &mut text };
                side.get_or_insert_with(|| rule.place.clone());
            }
        }
        match (text, hex) {
            (Some(text), Some(hex)) => {
                let lines =
                    format!("line {} compares it with text, line {} with hexadecimal digits", text.line, hex.line);
                report.error("no-encoding", &field.place, lines).help("write `bytes` or `hex` after the label");
            }
            (Some(text), None) => {
                field.encoding = Encoding::Bytes;
                report
                    .hint("no-encoding", &field.place, format!("it is read as text, because of line {}", text.line))
                    .help("write `bytes` after the label");
            }
            _ => {}
        }
    }
}

/// Whether a text, or a pattern, could be found in hexadecimal digits.
fn may_be_hexadecimal(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // A class like `\w`.
            '\\' => _ = letters.next(),
            '-' | '_' | '.' | '@' | ' ' if !text.contains(['[', '*', '^', '$', '(']) => return false,
            'g'..='z' | 'G'..='Z' => return false,
            _ => {}
        }
    }
    true
}

impl Text {
    /// The place of a piece of it.
    pub(crate) fn piece(&self, piece: std::ops::Range<usize>) -> FileSpan {
        let count =
            |range: std::ops::Range<usize>| self.text.get(range).map_or(0, |piece| piece.chars().count() as u32);
        let column = self.place.column + count(0..piece.start);
        FileSpan { column, length: count(piece).max(1), ..self.place.clone() }
    }
}
