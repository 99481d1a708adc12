//! The nearest word there is, for a slip of the finger.

/// Of the known words the one that was probably meant.
pub(crate) fn nearest(word: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let word: String = word.to_lowercase().chars().take(40).collect();
    let distances = known.map(|known| (strsim::osa_distance(&word, &known.to_lowercase()), known));
    let (distance, known) = distances.min_by_key(|&(distance, _)| distance)?;
    (distance <= known.len().div_ceil(3)).then_some(known)
}
