//! Labels and the selectors over them (S2.8).

use std::fmt;
use std::sync::Arc;

/// The labels of an object, sorted by key.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

/// The key of a label that stands for labels that cannot be read. It isolates a pod, or all pods of a namespace, in both
/// directions: which policies select it, nobody can tell (S10.1).
pub const UNREADABLE: &str = "namewall.dev/unreadable-labels";

impl Labels {
    /// True if others belong here that could not be read.
    pub fn are_in_doubt(&self) -> bool {
        self.get(UNREADABLE).is_some()
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (&**k, &**v))
    }

    /// As they are kept, to be shared.
    pub fn texts(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of them whose keys are wanted.
    #[must_use]
    pub fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        if self.0.iter().all(|(key, _)| is_wanted(key)) {
            return self.clone();
        }
        Self(self.0.iter().filter(|(key, _)| is_wanted(key)).cloned().collect())
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.sort();
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        Self(pairs.into())
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no labels");
        }
        let pairs: Vec<String> = self.iter().map(|(k, v)| format!("{k}={v}")).collect();
        f.write_str(&pairs.join(","))
    }
}

/// One condition on labels.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Requirement {
    In {
        key: Arc<str>,
        values: Vec<Arc<str>>,
    },
    /// Also matches where the key is missing.
    NotIn {
        key: Arc<str>,
        values: Vec<Arc<str>>,
    },
    Exists {
        key: Arc<str>,
    },
    DoesNotExist {
        key: Arc<str>,
    },
}

impl Requirement {
    pub fn key(&self) -> &str {
        match self {
            Self::In { key, .. } | Self::NotIn { key, .. } | Self::Exists { key } | Self::DoesNotExist { key } => key,
        }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        let listed = |value: &str, values: &[Arc<str>]| values.iter().any(|v| &**v == value);
        match self {
            Self::In { key, values } => labels.get(key).is_some_and(|value| listed(value, values)),
            Self::NotIn { key, values } => labels.get(key).is_none_or(|value| !listed(value, values)),
            Self::Exists { key } => labels.get(key).is_some(),
            Self::DoesNotExist { key } => labels.get(key).is_none(),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In { key, values } if values.len() == 1 => write!(f, "{key}={}", values[0]),
            Self::In { key, values } => write!(f, "{key} in ({})", values.join(",")),
            Self::NotIn { key, values } if values.len() == 1 => write!(f, "{key}!={}", values[0]),
            Self::NotIn { key, values } => write!(f, "{key} not in ({})", values.join(",")),
            Self::Exists { key } => write!(f, "{key} exists"),
            Self::DoesNotExist { key } => write!(f, "{key} does not exist"),
        }
    }
}

/// All requirements must hold; none at all matches everything.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Selector {
    pub requirements: Vec<Requirement>,
}

impl Selector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn label(key: &str, value: &str) -> Self {
        Self { requirements: vec![Requirement::In { key: key.into(), values: vec![value.into()] }] }
    }

    pub fn matches(&self, labels: &Labels) -> bool {
        self.first_miss(labels).is_none()
    }

    /// The first requirement that does not hold.
    pub fn first_miss(&self, labels: &Labels) -> Option<&Requirement> {
        self.requirements.iter().find(|requirement| !requirement.matches(labels))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_everything() {
            return f.write_str("all");
        }
        let parts: Vec<String> = self.requirements.iter().map(ToString::to_string).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(requirement: Requirement, labels: &[(&str, &str)], expect: bool) {
        let labels: Labels = labels.iter().copied().collect();
        let selector = Selector { requirements: vec![requirement] };
        assert_eq!(selector.matches(&labels), expect, "{selector} on {labels}");
    }

    #[test]
    fn s2_8_all_four_operators() {
        let key: Arc<str> = "app".into();
        let values = vec!["web".into(), "api".into()];
        let is_in = Requirement::In { key: key.clone(), values: values.clone() };
        let not_in = Requirement::NotIn { key: key.clone(), values };
        let exists = Requirement::Exists { key: key.clone() };
        let absent = Requirement::DoesNotExist { key };
        for (labels, expected) in [
            (&[("app", "web")][..], [true, false, true, false]),
            (&[("app", "db")][..], [false, true, true, false]),
            (&[("tier", "web")][..], [false, true, false, true]),
            (&[][..], [false, true, false, true]),
        ] {
            for (requirement, expect) in [&is_in, &not_in, &exists, &absent].into_iter().zip(expected) {
                check(requirement.clone(), labels, expect);
            }
        }
    }

    #[test]
    fn s2_8_the_empty_selector_matches_all() {
        assert!(Selector::everything().matches(&Labels::default()));
    }
}
