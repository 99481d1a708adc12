//! Which domain a name belongs to: the part that somebody has registered, by the public suffix list.

use psl::Type;

/// No suffix of the list has more labels than this.
const MOST_LABELS: usize = 6;

/// The domain of a name, both as labels with their lengths, and whether the name is below it. It is the suffix below which
/// registries let anybody register, and one label more. Suffixes of companies, below which their customers have names, are
/// no such suffixes: a tunnel would have as many domains there as it wants.
pub(crate) fn domain_of(name: &[u8]) -> (&[u8], bool) {
    let mut starts = Vec::with_capacity(8);
    let mut at = 0;
    while let Some(length) = name.get(at).copied().filter(|length| *length > 0) {
        starts.push(at);
        at += 1 + usize::from(length);
    }
    let labels = 1 + suffix_labels(name, &starts);
    match starts.len().checked_sub(labels) {
        None | Some(0) => (name, false),
        Some(above) => (&name[starts[above]..], true),
    }
}

/// How many labels the public suffix has. It is one for what is not on the list.
fn suffix_labels(name: &[u8], starts: &[usize]) -> usize {
    let mut text = Vec::with_capacity(64);
    for start in &starts[starts.len().saturating_sub(MOST_LABELS)..] {
        let label = name.get(start + 1..start + 1 + usize::from(name[*start])).unwrap_or_default();
        if !text.is_empty() {
            text.push(b'.');
        }
        // A dot inside a label divides nothing.
        text.extend(label.iter().map(|byte| if *byte == b'.' { b'?' } else { *byte }));
    }
    let mut rest = &text[..];
    while let Some(suffix) = psl::suffix(rest) {
        let suffix = &rest[rest.len() - suffix.as_bytes().len()..];
        let mut labels = suffix.splitn(2, |byte| *byte == b'.');
        match (psl::suffix(suffix).and_then(|suffix| suffix.typ()), labels.next().and(labels.next())) {
            // A company's suffix stands below one of a registry.
            (Some(Type::Private), Some(above)) => rest = above,
            (Some(Type::Icann), _) => return suffix.split(|byte| *byte == b'.').count(),
            _ => return 1,
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(name: &str) -> Vec<u8> {
        let labels = name.split('.').filter(|label| !label.is_empty());
        let mut bytes: Vec<u8> = labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_name_belongs_to_the_domain_that_somebody_registered() {
        for (name, domain, is_below) in [
            ("a.b.example.com", "example.com", true),
            ("www.example.com", "example.com", true),
            ("example.com", "example.com", false),
            ("com", "com", false),
            (".", ".", false),
            ("a.b.example.co.uk", "example.co.uk", true),
            ("example.co.uk", "example.co.uk", false),
            ("co.uk", "co.uk", false),
            ("a.t.co", "t.co", true),
            // Somebody's own suffix, and a top level that nobody knows.
            ("x.y.github.io", "github.io", true),
            ("x.y.service.gov.uk", "service.gov.uk", true),
            ("b.execute-api.cn-north-1.amazonaws.com.cn", "amazonaws.com.cn", true),
            ("a.no-ip.co.uk", "no-ip.co.uk", true),
            ("a.b.internal-zone", "b.internal-zone", true),
        ] {
            assert_eq!(domain_of(&wire(name)), (&*wire(domain), is_below), "{name}");
        }
        // `co.uk` in one label is no suffix.
        let odd = b"\x01a\x07example\x05co.uk\0";
        assert_eq!(domain_of(odd), (&odd[2..], true));
    }
}
