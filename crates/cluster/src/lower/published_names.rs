//! Names that are read here (S5.2) and that the published schemas refuse. They
//! count as written; `check` says that an API server will not take them.

use super::scope::Scope;

/// Whose schema.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// `domainNames` of policy.networking.k8s.io.
    PolicyApi,
    /// `dnsName` of an EgressFirewall.
    EgressFirewall,
}

/// Why the schema refuses a name.
pub(crate) fn refusal(text: &str, schema: Schema) -> Option<&'static str> {
    let policy_api = schema == Schema::PolicyApi;
    let (wildcard, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
    let labels: Vec<&str> = name.strip_suffix('.').unwrap_or(name).split('.').collect();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let ends = |label: &&str| edge(label.as_bytes().first()) && edge(label.as_bytes().last());
    if name.starts_with('*') {
        Some("a wildcard is one `*`")
    } else if !name.is_ascii() {
        Some("only ASCII is accepted; write the A-label, xn--…")
    } else if !policy_api && name.contains('_') {
        Some("`_` is not accepted")
    } else if !labels.iter().all(ends) {
        Some("every label starts and ends with a letter or digit")
    } else if policy_api && labels.len() < 2 {
        Some(if wildcard { "behind `*.` two labels are needed" } else { "two labels are needed" })
    } else {
        None
    }
}

pub(crate) fn warn(scope: &mut Scope<'_>, text: &str, refusal: Option<&str>, path: &str) {
    if let Some(why) = refusal {
        scope.warning("refused-name", path, format!("the API server refuses `{text}`: {why}"));
    }
}
