//! Names as they stand in messages: labels of bytes, in the case they came in.

use namewall_policy::domain::DomainName;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

const LONGEST_LABEL: usize = 63;
/// With a length before every label, and the root's at the end.
const LONGEST: usize = 255;

/// Two names are equal whatever their case, and a name comes before all that
/// are under it. The wildcard label `*` is a label like any other here.
#[derive(Clone, Default)]
pub struct Name {
    labels: Vec<Box<[u8]>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("`{0}` has an empty label; labels are separated by single dots")]
    EmptyLabel(String),
    #[error("`{0}` has a label of more than {LONGEST_LABEL} bytes")]
    LongLabel(String),
    #[error("`{0}` is too long for a name")]
    Long(String),
    #[error("`{0}` has a byte in it that no name has")]
    Character(String),
    #[error("{0}")]
    Idna(#[from] namewall_policy::domain::NameError),
}

impl Name {
    /// None if they are too long for a name.
    pub(crate) fn from_labels(labels: Vec<Box<[u8]>>) -> Option<Self> {
        let fits = labels.iter().all(|label| (1..=LONGEST_LABEL).contains(&label.len()));
        let name = Self { labels };
        (fits && name.wire_length() <= LONGEST).then_some(name)
    }

    pub(crate) fn labels(&self) -> &[Box<[u8]>] {
        &self.labels
    }

    fn wire_length(&self) -> usize {
        self.labels.iter().map(|label| label.len() + 1).sum::<usize>() + 1
    }

    /// Without its first label; the root has no parent.
    pub(crate) fn parent(&self) -> Option<Self> {
        self.labels.get(1..).map(|rest| Self { labels: rest.to_vec() })
    }

    /// The last labels, so many of them.
    pub(crate) fn last(&self, count: usize) -> Self {
        let from = self.labels.len().saturating_sub(count);
        Self { labels: self.labels[from..].to_vec() }
    }

    /// With one label before it, if that still is a name.
    pub(crate) fn under(&self, label: &[u8]) -> Option<Self> {
        let first = std::iter::once(label.into());
        Self::from_labels(first.chain(self.labels.iter().cloned()).collect())
    }

    /// With all of the other's labels behind its own, if that still is a name.
    pub fn followed_by(&self, other: &Self) -> Option<Self> {
        Self::from_labels(self.labels.iter().chain(&other.labels).cloned().collect())
    }

    /// Whether it is `other`, or has labels before it.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let extra = self.labels.len().checked_sub(other.labels.len());
        extra.is_some_and(|extra| same(&self.labels[extra..], &other.labels))
    }

    pub fn is_wildcard(&self) -> bool {
        self.labels.first().is_some_and(|label| **label == *b"*")
    }

    /// The name a wildcard stands for, with this label; any other stays as it is.
    pub(crate) fn with_star_as(&self, label: &str) -> Self {
        let mut name = self.clone();
        if let Some(first) = name.labels.first_mut().filter(|first| ***first == *b"*") {
            *first = label.as_bytes().into();
        }
        name
    }

    pub(crate) fn lower(&self) -> Self {
        Self { labels: self.labels.iter().map(|label| label.to_ascii_lowercase().into()).collect() }
    }

    /// With the case of its letters tossed: forgers must guess that too.
    pub fn with_mixed_case(&self, mut dice: u64) -> Self {
        let mut name = self.clone();
        for byte in name.labels.iter_mut().flat_map(|label| label.iter_mut()) {
            // The generator of SplitMix64, whose bits are good one by one.
            dice = dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (dice ^ (dice >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *byte = if (mixed >> 40) & 1 == 0 { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() };
        }
        name
    }

    /// The same bytes, case and all.
    pub fn is_exactly(&self, other: &Self) -> bool {
        self.labels == other.labels
    }

    /// As the core knows it; None for what no policy can name.
    pub fn as_domain(&self) -> Option<DomainName> {
        self.to_string().parse().ok()
    }
}

fn same(a: &[Box<[u8]>], b: &[Box<[u8]>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.eq_ignore_ascii_case(b))
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        same(&self.labels, &other.labels)
    }
}

impl Eq for Name {}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let from_the_root = |name: &Self| {
            let labels = name.labels.iter().rev();
            labels.map(|label| label.to_ascii_lowercase()).collect::<Vec<_>>()
        };
        from_the_root(self).cmp(&from_the_root(other))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for Name {
    type Err = NameError;

    /// `example.com`, `example.com.`, `*.example.com`; `.` is the root.
    fn from_str(text: &str) -> Result<Self, NameError> {
        if !text.is_ascii() {
            let known: DomainName = text.parse()?;
            return known.as_str().parse();
        }
        let bare = text.strip_suffix('.').unwrap_or(text);
        if bare.is_empty() && !text.is_empty() {
            return Ok(Self::default());
        }
        let mut labels = Vec::new();
        for label in bare.split('.') {
            match label.len() {
                0 => return Err(NameError::EmptyLabel(text.to_owned())),
                1..=LONGEST_LABEL => labels.push(label.as_bytes().into()),
                _ => return Err(NameError::LongLabel(text.to_owned())),
            }
        }
        if bare.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(NameError::Character(text.to_owned()));
        }
        Self::from_labels(labels).ok_or_else(|| NameError::Long(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.labels.is_empty() {
            return f.write_str(".");
        }
        for (at, label) in self.labels.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "." })?;
            for &byte in label.iter() {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    _ if byte.is_ascii_graphic() => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_the_same_in_any_case_and_keeps_its_own() {
        assert_eq!(name("API.Example.com."), name("api.example.com"));
        assert_eq!(name("API.Example.com.").to_string(), "API.Example.com");
        assert!(!name("API.example").is_exactly(&name("api.example")));
        assert_eq!(name("münchen.example"), name("xn--mnchen-3ya.example"));
        let mixed = name("a-rather-long-name.example").with_mixed_case(7);
        assert_eq!(mixed, name("a-rather-long-name.example"));
        assert!(!mixed.is_exactly(&mixed.lower()));
    }

    #[test]
    fn labels_are_compared_and_not_text() {
        assert!(name("a.example.com").is_within(&name("Example.com")));
        assert!(!name("evilexample.com").is_within(&name("example.com")));
        assert!(name("example").is_within(&Name::default()));
        let mut names = vec![name("b"), name("z.a"), name("a"), name("a.z.a")];
        names.sort();
        assert_eq!(names, [name("a"), name("z.a"), name("a.z.a"), name("b")], "what is under a name follows it");
    }

    #[test]
    fn slips_are_told() {
        assert_eq!(".".parse(), Ok(Name::default()));
        for bad in ["", "a..b", ".a", "a b.example", &"a".repeat(64), &"abc.".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
