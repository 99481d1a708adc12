//! The nearest word there is, for a slip of the finger.

/// Longer ones are no slips.
const LONGEST: usize = 40;

/// Of the known words the one that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    if length > LONGEST {
        return None;
    }
    let most = |known: &str| 1.max(known.len() / 3);
    let near = known.into_iter().filter(|known| known.len().abs_diff(length) <= most(known));
    let near = near.map(|known| (distance(word, known), known)).filter(|(apart, known)| *apart <= most(known));
    near.min_by_key(|(apart, _)| *apart).map(|(_, known)| known)
}

/// How many letters are to be added, removed, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (a, b) = (lower(a), lower(b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
