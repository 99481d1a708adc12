//! Text that is compared as DNS names and words are.

use std::cmp::Ordering;

/// What does not matter between two texts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fold {
    /// Everything matters.
    Exact,
    /// Case does not.
    Case,
    /// Case and the dot at the end do not.
    Name,
}

impl Fold {
    pub(crate) fn same(self, a: &str, b: &str) -> bool {
        match self {
            Self::Exact => a == b,
            Self::Case => is_same_folded(a.as_bytes(), b.as_bytes()),
            Self::Name => is_same_folded(without_dot(a).as_bytes(), without_dot(b).as_bytes()),
        }
    }

    fn order(self, a: &str, b: &str) -> Ordering {
        match self {
            Self::Exact => a.cmp(b),
            Self::Case => folded_order(a, b),
            Self::Name => folded_order(without_dot(a), without_dot(b)),
        }
    }

    pub(crate) fn starts(self, text: &str, prefix: &str) -> bool {
        let (text, prefix) = (text.as_bytes(), prefix.as_bytes());
        let front = text.get(..prefix.len());
        front
            .is_some_and(|front| if self == Self::Exact { front == prefix } else { front.eq_ignore_ascii_case(prefix) })
    }

    pub(crate) fn ends(self, text: &str, suffix: &str) -> bool {
        let (text, suffix) = match self {
            // `.` and the empty text are at the end of every name.
            Self::Name if suffix == "." => return true,
            Self::Name => (without_dot(text), without_dot(suffix)),
            _ => (text, suffix),
        };
        let (text, suffix) = (text.as_bytes(), suffix.as_bytes());
        let back = text.len().checked_sub(suffix.len()).map(|at| &text[at..]);
        back.is_some_and(|back| if self == Self::Exact { back == suffix } else { back.eq_ignore_ascii_case(suffix) })
    }
}

/// Facts and literals are in lower case mostly, and whole blocks are compared faster than letters.
fn is_same_folded(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a == b || a.eq_ignore_ascii_case(b))
}

fn folded_order(a: &str, b: &str) -> Ordering {
    let a = a.bytes().map(|byte| byte.to_ascii_lowercase());
    a.cmp(b.bytes().map(|byte| byte.to_ascii_lowercase()))
}

/// Texts to be found among, however many they are.
#[derive(Debug)]
pub(crate) struct Words {
    sorted: Box<[Box<str>]>,
    fold: Fold,
}

impl Words {
    pub(crate) fn new(words: impl IntoIterator<Item = Box<str>>, fold: Fold) -> Self {
        let mut sorted: Vec<Box<str>> = words.into_iter().collect();
        sorted.sort_by(|a, b| fold.order(a, b));
        sorted.dedup_by(|a, b| fold.same(a, b));
        Self { sorted: sorted.into(), fold }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.sorted.iter().map(|word| &**word)
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        match &*self.sorted {
            [only] => self.fold.same(only, text),
            many => many.binary_search_by(|word| self.fold.order(word, text)).is_ok(),
        }
    }

    /// Whether the name or one of its parents is among them. The root, `.`, is every name's.
    pub(crate) fn is_over(&self, name: &str) -> bool {
        match &*self.sorted {
            _ if name.is_empty() => false,
            [only] => is_under(name, only),
            _ => parents(without_dot(name)).any(|parent| self.contains(parent)) || self.contains("."),
        }
    }
}

/// Whether `name` is `domain` or below it, label by label. What is not set is below nothing.
pub(crate) fn is_under(name: &str, domain: &str) -> bool {
    if name.is_empty() || domain.is_empty() {
        return false;
    }
    if domain == "." {
        return true;
    }
    let (name, domain) = (without_dot(name), without_dot(domain));
    let Some(front) = name.len().checked_sub(domain.len()) else { return false };
    // Compared as bytes: the split may be inside a character.
    let ends_a_label = |at: usize| name.as_bytes()[at] == b'.' && !is_escaped(name, at);
    (front == 0 || ends_a_label(front - 1)) && is_same_folded(&name.as_bytes()[front..], domain.as_bytes())
}

/// The name without the dot at its end; the root is `.` still.
pub(crate) fn without_dot(name: &str) -> &str {
    match name.strip_suffix('.') {
        Some("") | None => name,
        Some(bare) if is_escaped(name, bare.len()) => name,
        Some(bare) => bare,
    }
}

/// The labels from the left. A dot after a backslash is a letter of its label.
pub(crate) fn labels(name: &str) -> impl Iterator<Item = &str> {
    let bare = if name == "." { "" } else { without_dot(name) };
    let mut rest = (!bare.is_empty()).then_some(bare);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(dot) = first_dot(text) else { return rest.take() };
        rest = Some(&text[dot + 1..]);
        Some(&text[..dot])
    })
}

/// The name and what is above it, to its last label.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(name);
    std::iter::from_fn(move || {
        let text = rest?;
        rest = first_dot(text).map(|dot| &text[dot + 1..]);
        Some(text)
    })
}

/// The first dot that ends a label.
fn first_dot(text: &str) -> Option<usize> {
    text.match_indices('.').map(|(at, _)| at).find(|&at| !is_escaped(text, at))
}

/// Whether an odd number of backslashes stands before it.
fn is_escaped(text: &str, at: usize) -> bool {
    let before = &text.as_bytes()[..at];
    before.last() == Some(&b'\\') && before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_under_domains_by_labels() {
        for (name, domain, is) in [
            ("www.example.com.", "example.com", true),
            ("WWW.Example.COM", "example.com.", true),
            ("example.com.", "example.com", true),
            ("evilexample.com.", "example.com", false),
            ("com.", "example.com", false),
            ("example.com.", ".", true),
            (".", ".", true),
            (".", "com", false),
            ("", ".", false),
            ("", "", false),
            ("example.com.", "", false),
            // One label `evil.example`, in com.
            (r"evil\.example.com.", "example.com", false),
            (r"evil\\.example.com.", "example.com", true),
            ("ü.example.", "example", true),
            ("üexample.", "example", false),
        ] {
            assert_eq!(is_under(name, domain), is, "{name} under {domain}");
            let others = ["other.example", "third.example"];
            let words = Words::new([domain].into_iter().chain(others).map(Box::from), Fold::Name);
            assert_eq!(words.is_over(name), is, "{name} under {domain} among others");
        }
    }

    #[test]
    fn labels_end_at_dots_that_are_not_escaped() {
        let all = |name| labels(name).collect::<Vec<_>>();
        assert_eq!(all("www.example.com."), ["www", "example", "com"]);
        assert_eq!(all("com"), ["com"]);
        assert_eq!(all(r"a\.b.com."), [r"a\.b", "com"]);
        assert_eq!(all(r"a\\.com"), [r"a\\", "com"]);
        assert!(all("").is_empty() && all(".").is_empty());
    }

    #[test]
    fn words_are_found_whatever_their_number() {
        let number = |at: usize| Box::from(format!("Name{at}.Example."));
        let words = Words::new((0..1000).map(number), Fold::Name);
        assert!(words.contains("NAME999.example") && words.contains("name0.example."));
        assert!(!words.contains("name1000.example") && !words.contains(""));
        let exact = Words::new([Box::from("a"), Box::from("B")], Fold::Exact);
        assert!(exact.contains("B") && !exact.contains("b"));
    }

    #[test]
    fn the_dot_at_the_end_is_no_dot_of_a_label() {
        assert_eq!(without_dot(r"a\."), r"a\.");
        assert_eq!(without_dot(r"a\\."), r"a\\");
        assert_eq!(without_dot("."), ".");
        assert!(Fold::Name.ends("www.example.com.", "Example.com") && Fold::Name.ends("a.", "."));
        assert!(!Fold::Exact.ends("www.example.com.", "com") && !Fold::Case.ends("m", "com"));
        assert!(Fold::Name.starts("www.example.com.", "WWW.") && !Fold::Exact.starts("www", "WWW"));
    }
}
