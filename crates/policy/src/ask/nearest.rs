//! The name that was probably meant, for a slip of the finger or a short form.

use strsim::osa_distance;

/// What somebody wrote: all of it, and the name alone.
pub(super) struct Written<'a> {
    pub(super) whole: &'a str,
    pub(super) name: &'a str,
}

/// `; did you mean shop/web?`. The known names are each what is compared with all that was written, and what is shown.
/// Nothing if the nearest is too far away: more than every second letter of the name would be wrong.
pub(super) fn did_you_mean(written: &Written<'_>, known: impl Iterator<Item = (String, String)>) -> String {
    let Written { whole, name } = *written;
    let nearest = known.map(|(compared, shown)| (distance(whole, &compared), shown)).min();
    let Some((apart, shown)) = nearest else { return String::new() };
    let is_same_name = shown.rsplit('/').next() == Some(name);
    let is_near = apart <= 3.max(whole.len() / 4) && (is_same_name || apart <= name.len() / 2);
    if is_near { format!("; did you mean {shown}?") } else { String::new() }
}

/// How many letters are wrong. Letters that are left out count half: `frnt` is nearer to `frontend` than to `cart`.
fn distance(written: &str, known: &str) -> usize {
    let apart = osa_distance(written, known);
    if is_short_for(written, known) { apart.div_ceil(2) } else { apart }
}

/// True if the letters of the one are in the other, in this order and from its first letter on.
fn is_short_for(short: &str, long: &str) -> bool {
    let mut letters = long.chars();
    short.chars().next() == long.chars().next() && short.chars().all(|one| letters.any(|other| other == one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, known: &[&str], expected: &str) {
        let name = written.rsplit('/').next().unwrap_or_default();
        let known = known.iter().map(|known| ((*known).to_owned(), (*known).to_owned()));
        let expected = if expected.is_empty() { String::new() } else { format!("; did you mean {expected}?") };
        assert_eq!(did_you_mean(&Written { whole: written, name }, known), expected, "{written}");
    }

    #[test]
    fn the_name_that_is_meant_is_suggested() {
        let shop = ["shop/cart", "shop/frontend", "shop/web", "lab/db"];
        check("shop/frnt", &shop, "shop/frontend");
        check("shop/front", &shop, "shop/frontend");
        check("shop/frontned", &shop, "shop/frontend");
        check("shop/wbe", &shop, "shop/web");
        check("shpo/cart", &shop, "shop/cart");
        check("shop/frnt", &["shop/cart"], "");
        check("shop/xyz", &shop, "");
    }
}
