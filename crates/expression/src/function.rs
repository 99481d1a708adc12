//! The functions, by name.

use crate::suggest::nearest;

/// A function of the language. What each does is in `docs/expressions.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    InCidr,
    InList,
    Atoi,
    Random,
    Lower,
    HasPrefix,
    HasSuffix,
    Under,
    Label,
    Count,
    Len,
    IsPrivate,
    Entropy,
}

/// The first name of each is the one that messages use. `incidr` is the shipped plugin's, `inc-cidr` is in
/// a sample of the original form (docs/semantics.md, S9).
const NAMES: [(&str, Function); 16] = [
    ("in-cidr", Function::InCidr),
    ("incidr", Function::InCidr),
    ("inc-cidr", Function::InCidr),
    ("in-list", Function::InList),
    ("atoi", Function::Atoi),
    ("random", Function::Random),
    ("lower", Function::Lower),
    ("has_prefix", Function::HasPrefix),
    ("has_suffix", Function::HasSuffix),
    ("under", Function::Under),
    ("label", Function::Label),
    ("count", Function::Count),
    ("len", Function::Len),
    ("is-private", Function::IsPrivate),
    ("is_private", Function::IsPrivate),
    ("entropy", Function::Entropy),
];

impl Function {
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, function)| function)
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|&&(_, function)| function == self).map_or("", |(name, _)| name)
    }

    /// How many arguments it takes: the fewest and the most, and how it is written.
    pub(crate) fn arguments(self) -> (usize, usize, &'static str) {
        match self {
            Self::InCidr => (2, usize::MAX, "in-cidr(address, network, …)"),
            Self::InList => (2, usize::MAX, "in-list(name, 'FILE', …)"),
            Self::Atoi => (1, 1, "atoi(text)"),
            Self::Random => (0, 1, "random() or random(below)"),
            Self::Lower => (1, 1, "lower(text)"),
            Self::HasPrefix => (2, usize::MAX, "has_prefix(text, prefix, …)"),
            Self::HasSuffix => (2, usize::MAX, "has_suffix(text, suffix, …)"),
            Self::Under => (2, usize::MAX, "under(name, domain, …)"),
            Self::Label => (2, 2, "label(name, number)"),
            Self::Count => (1, 1, "count(list) or count(name)"),
            Self::Len => (1, 1, "len(text)"),
            Self::IsPrivate => (1, 1, "is-private(address)"),
            Self::Entropy => (1, 1, "entropy(text)"),
        }
    }

    /// The name that was probably meant.
    pub(crate) fn nearest(name: &str) -> Option<&'static str> {
        nearest(name, NAMES.iter().map(|&(known, _)| known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_function_is_told_its_neighbour() {
        assert_eq!(Function::nearest("in_cidr"), Some("in-cidr"));
        assert_eq!(Function::nearest("inCIDR"), Some("incidr"));
        assert_eq!(Function::nearest("hasSuffix"), Some("has_suffix"));
        assert_eq!(Function::nearest("length"), None);
        assert_eq!(Function::nearest(&"x".repeat(100_000)), None);
    }

    #[test]
    fn every_function_has_a_name() {
        for (name, function) in NAMES {
            assert_eq!(Function::named(name), Some(function));
            assert_eq!(Function::named(function.name()), Some(function));
        }
    }
}
