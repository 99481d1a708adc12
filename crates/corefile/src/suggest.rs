//! The nearest word there is, for a slip of the finger.

use strsim::osa_distance;

/// Longer ones are no slips.
const LONGEST: usize = 40;

/// Of the known words the one that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    let most = |known: &str| 1.max(known.len() / 3);
    let near = known.into_iter().filter(|known| known.len().abs_diff(length) <= most(known));
    let near = near
        .map(|known| (osa_distance(&word, &known.to_lowercase()), known))
        .filter(|(apart, known)| *apart <= most(known));
    near.min_by_key(|(apart, _)| *apart).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_and_strangers_are_not() {
        let known = ["firewall", "forward", "file", "log"];
        for (word, meant) in [
            ("firewal", Some("firewall")),
            ("FORWARD", Some("forward")),
            ("foward", Some("forward")),
            ("lgo", Some("log")),
            ("rewrite", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
