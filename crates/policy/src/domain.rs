//! Names and patterns of names. Labels are compared, never text: `evilfoo.com`
//! is not under `foo.com`.

mod table;

pub use table::{Effect, PatternId, PatternTable, RulePattern};

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A DNS name: lower-case A-labels, without the trailing dot.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DomainName(Arc<str>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a name must not be empty")]
    Empty,
    #[error("`{0}` has an empty label; labels are separated by single dots")]
    EmptyLabel(String),
    #[error("the label `{0}` is longer than 63 bytes")]
    LongLabel(String),
    #[error("the name is {0} bytes long; 253 is the most")]
    Long(usize),
    #[error("`{0}` has `{1}` in it; letters, digits, `-` and `_` are accepted")]
    Character(String, char),
    #[error("the label `{0}` begins or ends with `-`")]
    Hyphen(String),
    #[error("`{0}` is not a valid international name")]
    Idna(String),
    #[error("`*` stands only as the whole first label, like *.example.com (in `{0}`)")]
    Wildcard(String),
    #[error("a wildcard needs a name after it, like *.example.com")]
    BareWildcard,
    #[error("`{0}` is an address; write it as a network, like {0}/32")]
    Address(String),
}

impl DomainName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of these labels, as they come from the wire; none if a policy could not name it.
    pub fn from_labels<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut text = String::with_capacity(64);
        for label in labels {
            let accepted = |&byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            let label = std::str::from_utf8(label).ok().filter(|text| text.bytes().all(|byte| accepted(&byte)))?;
            if label.is_empty() || label.len() > 63 || label.starts_with('-') || label.ends_with('-') {
                return None;
            }
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(label);
        }
        text.make_ascii_lowercase();
        // Only what ends in a digit may be an address, and is not a name then.
        let is_address =
            || text.ends_with(|c: char| c.is_ascii_hexdigit()) && crate::addr::parse_address(&text).is_some();
        (!text.is_empty() && text.len() <= 253 && !is_address()).then(|| Self(text.into()))
    }

    /// A name as a status or the kernel keeps it: also that of a wildcard record, `*.example.com`. Such a name stands
    /// for all names with another label in place of the `*`, so the patterns that match it are those that match all
    /// of them.
    pub fn parse_recorded(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix("*.") {
            Some(parent) => Ok(Self(format!("*.{}", parent.parse::<Self>()?).into())),
            None => text.parse(),
        }
    }

    /// The names under which addresses of this one are recorded: its own, and that of the wildcard record over it.
    pub fn recorded_as(&self) -> impl Iterator<Item = Self> {
        let parent = self.0.split_once('.').map(|(_, parent)| Self(format!("*.{parent}").into()));
        std::iter::once(self.clone()).chain(parent)
    }

    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether it is `domain` with one or more labels in front.
    pub fn is_under(&self, domain: &DomainName) -> bool {
        self.label_before(domain).is_some()
    }

    /// What stands before `.domain`, if the name is under it.
    fn label_before(&self, domain: &DomainName) -> Option<&str> {
        self.0.strip_suffix(&*domain.0)?.strip_suffix('.')
    }

    /// The name and its parents, longest first: a.b.c, b.c, c.
    pub fn suffixes(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.0.match_indices('.').map(|(at, _)| at + 1));
        starts.map(|at| &self.0[at..])
    }
}

impl FromStr for DomainName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_empty() {
            return Err(NameError::Empty);
        }
        let lower = if bare.is_ascii() {
            bare.to_ascii_lowercase()
        } else {
            let ascii = idna::domain_to_ascii(bare).map_err(|_| NameError::Idna(text.to_owned()))?;
            ascii.strip_suffix('.').unwrap_or(&ascii).to_owned()
        };
        for label in lower.split('.') {
            check_label(&lower, label)?;
        }
        if lower.len() > 253 {
            return Err(NameError::Long(lower.len()));
        }
        if crate::addr::parse_address(&lower).is_some() {
            return Err(NameError::Address(lower));
        }
        Ok(Self(lower.into()))
    }
}

fn check_label(name: &str, label: &str) -> Result<(), NameError> {
    if label.is_empty() {
        return Err(NameError::EmptyLabel(name.to_owned()));
    }
    if label.contains('*') {
        return Err(NameError::Wildcard(name.to_owned()));
    }
    if let Some(bad) = label.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))) {
        return Err(NameError::Character(name.to_owned(), bad));
    }
    if label.len() > 63 {
        return Err(NameError::LongLabel(label.to_owned()));
    }
    if label.starts_with('-') || label.ends_with('-') {
        return Err(NameError::Hyphen(label.to_owned()));
    }
    Ok(())
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What `*.` means where a pattern was written (S5.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wildcard {
    /// One or more labels: AdminNetworkPolicy, ClusterNetworkPolicy, ClusterEgressFirewall.
    Subdomains,
    /// Exactly one label: EgressFirewall, DNSNameResolver.
    OneLabel,
}

/// Which names a rule speaks of.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DomainPattern {
    /// The name itself and nothing else.
    Exact(DomainName),
    /// Every name with one or more labels before this one; never this one.
    Subdomains(DomainName),
    /// Every name with exactly one label before this one.
    OneLabel(DomainName),
}

impl DomainPattern {
    /// Reads a pattern as the kind that carries it means it.
    pub fn parse(text: &str, wildcard: Wildcard) -> Result<Self, NameError> {
        if matches!(text, "*" | "**" | "*." | "**.") {
            return Err(NameError::BareWildcard);
        }
        if let Some(rest) = text.strip_prefix("*.") {
            let domain = rest.parse()?;
            return Ok(match wildcard {
                Wildcard::Subdomains => Self::Subdomains(domain),
                Wildcard::OneLabel => Self::OneLabel(domain),
            });
        }
        if let (Some(rest), Wildcard::Subdomains) = (text.strip_prefix("**."), wildcard) {
            return Ok(Self::Subdomains(rest.parse()?));
        }
        text.parse().map(Self::Exact)
    }

    pub fn matches(&self, name: &DomainName) -> bool {
        match self {
            Self::Exact(domain) => name == domain,
            Self::Subdomains(domain) => name.is_under(domain),
            Self::OneLabel(domain) => name.label_before(domain).is_some_and(|front| !front.contains('.')),
        }
    }

    /// A name it matches, that no one is likely to have. That of any subdomain has two labels more, so that a pattern
    /// of one label does not speak for it.
    pub fn example(&self) -> DomainName {
        match self {
            Self::Exact(domain) => domain.clone(),
            Self::Subdomains(domain) => DomainName(format!("_any._any.{domain}").into()),
            Self::OneLabel(domain) => DomainName(format!("_any.{domain}").into()),
        }
    }

    /// As a user writes it.
    pub fn written(&self) -> String {
        match self {
            Self::Exact(domain) => domain.to_string(),
            Self::Subdomains(domain) | Self::OneLabel(domain) => format!("*.{domain}"),
        }
    }

    /// The name without its wildcard.
    pub fn domain(&self) -> &DomainName {
        match self {
            Self::Exact(domain) | Self::Subdomains(domain) | Self::OneLabel(domain) => domain,
        }
    }

    /// Whether every name that `other` matches is matched by `self`.
    pub fn covers(&self, other: &DomainPattern) -> bool {
        match (self, other) {
            (Self::Subdomains(a), Self::Subdomains(b) | Self::OneLabel(b)) => a == b || b.is_under(a),
            (Self::OneLabel(a), Self::OneLabel(b)) => a == b,
            (Self::Exact(a), Self::Exact(b)) => a == b,
            (_, Self::Exact(b)) => self.matches(b),
            _ => false,
        }
    }

    /// Whether it is a wildcard over a whole public suffix, like `*.co.uk` (S5.3).
    pub fn covers_public_suffix(&self) -> bool {
        let (Self::Subdomains(domain) | Self::OneLabel(domain)) = self else {
            return false;
        };
        psl::suffix(domain.as_str().as_bytes())
            .is_some_and(|suffix| suffix.is_known() && suffix.as_bytes() == domain.as_str().as_bytes())
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(domain) => write!(f, "{domain}"),
            Self::Subdomains(domain) => write!(f, "*.{domain} (any subdomain)"),
            Self::OneLabel(domain) => write!(f, "*.{domain} (one label)"),
        }
    }
}

impl fmt::Debug for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod recorded_tests {
    use super::*;

    #[test]
    fn s8_6_the_name_of_a_wildcard_record_is_matched_by_patterns_that_cover_all_its_names() {
        let record = DomainName::parse_recorded("*.wild.example.").expect("a record");
        assert_eq!(record.to_string(), "*.wild.example");
        for (pattern, way, expected) in [
            ("*.wild.example", Wildcard::OneLabel, true),
            ("*.wild.example", Wildcard::Subdomains, true),
            ("*.example", Wildcard::Subdomains, true),
            ("*.example", Wildcard::OneLabel, false),
            ("a.wild.example", Wildcard::OneLabel, false),
            ("wild.example", Wildcard::OneLabel, false),
            ("*.a.wild.example", Wildcard::OneLabel, false),
        ] {
            let pattern = DomainPattern::parse(pattern, way).expect("a pattern");
            assert_eq!(pattern.matches(&record), expected, "{pattern:?}");
        }
        for (name, expected) in [("a.wild.example", true), ("a.b.wild.example", false), ("wild.example", false)] {
            let name: DomainName = name.parse().expect("a name");
            assert_eq!(name.recorded_as().any(|one| one == record), expected, "{name}");
        }
        assert!("*.wild.example".parse::<DomainName>().is_err(), "nobody asks for it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> DomainName {
        text.parse().unwrap()
    }

    fn pattern(text: &str, wildcard: Wildcard) -> DomainPattern {
        DomainPattern::parse(text, wildcard).unwrap()
    }

    #[test]
    fn s5_1_three_patterns_named_apart() {
        let exact = pattern("kubernetes.io", Wildcard::Subdomains);
        assert!(exact.matches(&name("kubernetes.io")));
        for other in ["www.kubernetes.io", "my-kubernetes.io", "wikipedia.org"] {
            assert!(!exact.matches(&name(other)), "{other}");
        }
        for text in ["*.kubernetes.io", "**.kubernetes.io"] {
            let tree = pattern(text, Wildcard::Subdomains);
            assert!(tree.matches(&name("blog.kubernetes.io")));
            assert!(tree.matches(&name("latest.blog.kubernetes.io")));
            assert!(!tree.matches(&name("kubernetes.io")));
            assert!(!tree.matches(&name("evilkubernetes.io")));
        }
        let one = pattern("*.example.com", Wildcard::OneLabel);
        assert!(one.matches(&name("sub1.example.com")));
        assert!(!one.matches(&name("sub2.sub1.example.com")));
        assert!(!one.matches(&name("example.com")));
        assert!(DomainPattern::parse("**.example.com", Wildcard::OneLabel).is_err());
    }

    #[test]
    fn s5_2_labels_from_the_wire_are_a_name_only_if_a_policy_can_write_it() {
        let from = |labels: &[&str]| DomainName::from_labels(labels.iter().map(|label| label.as_bytes()));
        assert_eq!(from(&["WWW", "Example", "com"]), Some(name("www.example.com")));
        assert_eq!(from(&["_dmarc", "a_b", "example"]), Some(name("_dmarc.a_b.example")));
        let refused: [&[&str]; 8] =
            [&[], &["a.b", "example"], &["*", "example"], &["a b"], &["-a"], &["a-"], &["192", "0", "2", "1"], &["é"]];
        for labels in refused {
            assert_eq!(from(labels), None, "{labels:?}");
        }
    }

    #[test]
    fn s5_2_names_in_any_case_with_a_dot_and_in_unicode() {
        assert_eq!(name("WWW.Example.COM."), name("www.example.com"));
        assert_eq!(name("bücher.example").as_str(), "xn--bcher-kva.example");
        assert_eq!(name("_dmarc.a_b.example").as_str(), "_dmarc.a_b.example");
    }

    #[test]
    fn s5_2_limits_and_characters() {
        let label = "a".repeat(63);
        assert!(format!("{label}.example").parse::<DomainName>().is_ok());
        assert!(format!("{label}a.example").parse::<DomainName>().is_err());
        let long = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        assert_eq!(long.len(), 253);
        assert!(long.parse::<DomainName>().is_ok());
        assert!(format!("{long}b").parse::<DomainName>().is_err());
        for bad in ["", ".", "a..b", ".a", "a^b.c", "a[b.c", "-a.b", "a-.b", "a b.c", "10.0.0.1"] {
            assert!(bad.parse::<DomainName>().is_err(), "{bad}");
        }
        for bad in ["*", "a.*.b", "*a.b", "a*.b", "*.*.b", "***.b"] {
            assert!(DomainPattern::parse(bad, Wildcard::Subdomains).is_err(), "{bad}");
        }
    }

    #[test]
    fn s5_3_whole_public_suffixes_are_seen() {
        for text in ["*.com", "*.co.uk"] {
            assert!(pattern(text, Wildcard::Subdomains).covers_public_suffix(), "{text}");
        }
        for text in ["*.example.com", "com", "*.internal-zone"] {
            assert!(!pattern(text, Wildcard::Subdomains).covers_public_suffix(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_table_finds_what_the_patterns_match(
            texts in proptest::collection::vec("(\\*\\.)?[ab]\\.([ab]\\.)?[ab]", 0..12),
            one in proptest::collection::vec(any::<bool>(), 12),
            denies in proptest::collection::vec(any::<bool>(), 12),
            asked in "[ab](\\.[ab]){0,4}",
        ) {
            let mut table = PatternTable::default();
            for ((text, one), denies) in texts.iter().zip(one).zip(denies) {
                let names = pattern(text, if one { Wildcard::OneLabel } else { Wildcard::Subdomains });
                let pattern = if denies { RulePattern::deny(names) } else { RulePattern::allow(names) };
                let id = table.intern(&pattern);
                prop_assert_eq!(table.intern(&pattern), id);
                prop_assert_eq!(table.get(id), &pattern);
            }
            let asked = name(&asked);
            let mut found = table.matching(&asked);
            found.sort();
            let slow: Vec<_> = table.iter().filter(|(_, p)| p.names.matches(&asked)).map(|(id, _)| id).collect();
            prop_assert_eq!(found, slow);
        }

        #[test]
        fn covers_never_claims_too_much(
            a in "(\\*\\.)?[ab](\\.[ab]){0,2}", b in "(\\*\\.)?[ab](\\.[ab]){0,2}",
            one_a in any::<bool>(), one_b in any::<bool>(), asked in "[ab](\\.[ab]){0,4}",
        ) {
            let kind = |one| if one { Wildcard::OneLabel } else { Wildcard::Subdomains };
            let (a, b, asked) = (pattern(&a, kind(one_a)), pattern(&b, kind(one_b)), name(&asked));
            prop_assert!(!(a.covers(&b) && b.matches(&asked)) || a.matches(&asked));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
            if let Ok(read) = DomainPattern::parse(&text, Wildcard::Subdomains) {
                let again: DomainName = read.domain().as_str().parse().unwrap();
                prop_assert_eq!(&again, read.domain());
            }
        }
    }
}
