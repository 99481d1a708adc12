//! How much the bytes of a text differ. Encoded data has much of it for its length, words have less.

/// Shannon's entropy in bits per byte: 0 if all bytes are the same, at most the logarithm of the length. Upper and lower
/// case count as the same, since a resolver may change the case of a name.
pub fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in text {
        counts[usize::from(byte.to_ascii_lowercase())] += 1;
    }
    let length = text.len() as f64;
    let share = |count: &u32| f64::from(*count) / length;
    let bits = counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum::<f64>();
    // A sum of -0 is -0, which is no number that is shown.
    if bits > 0.0 { bits } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_the_bits_that_a_byte_takes() {
        for (text, bits) in [("", 0.0), ("aaaa", 0.0), ("abab", 1.0), ("aBAb", 1.0), ("abcdefgh", 3.0), ("aabc", 1.5)] {
            assert!((entropy(text.as_bytes()) - bits).abs() < 1e-9, "{text}: {}", entropy(text.as_bytes()));
        }
        assert_eq!((entropy(b"").to_string(), entropy(b"aaaa").to_string()), ("0".to_owned(), "0".to_owned()));
        // A word, and 40 letters of base32.
        assert!(entropy(b"international") < 3.0);
        assert!(entropy(b"mzxw6ytboi4dqnrtgu2dgmrrgaydsobxgy2tim3t") > 3.7);
    }
}
