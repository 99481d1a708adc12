//! Selectors of labels, as `kubectl` and CoreDNS write them: `app=web,tier in (front, back),!legacy`.

use namewall_policy::labels::{Requirement, Selector};
use std::sync::Arc;

/// Reads a selector. The error says which part of it cannot be read.
pub(crate) fn selector(text: &str) -> Result<Selector, String> {
    let mut requirements = Vec::new();
    for part in parts(text)? {
        requirements.push(requirement(part.trim())?);
    }
    Ok(Selector { requirements })
}

/// The requirements of a text: commas in parentheses belong to a list of values.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0u32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("there is a `)` without a `(`")?,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a `(` is never closed".to_owned());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, String> {
    if let Some(rest) = text.strip_prefix('!') {
        return Ok(Requirement::DoesNotExist { key: key(rest)? });
    }
    for (operator, is_in) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((before, after)) = text.split_once(operator) {
            let (key, values) = (key(before)?, vec![value(after)?]);
            return Ok(if is_in { Requirement::In { key, values } } else { Requirement::NotIn { key, values } });
        }
    }
    let Some((before, list)) = text.split_once('(') else { return Ok(Requirement::Exists { key: key(text)? }) };
    let list = list.trim_end().strip_suffix(')').ok_or_else(|| format!("nothing may follow the list in `{text}`"))?;
    let values: Vec<Arc<str>> = list.split(',').map(value).collect::<Result<_, _>>()?;
    let mut words = before.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(name), Some("in"), None) => Ok(Requirement::In { key: key(name)?, values }),
        (Some(name), Some("notin"), None) => Ok(Requirement::NotIn { key: key(name)?, values }),
        _ => Err(format!("`{text}` is no requirement; write `KEY in (VALUE, …)` or `KEY notin (VALUE, …)`")),
    }
}

/// The key of a label: a name, perhaps behind a domain and a slash.
fn key(text: &str) -> Result<Arc<str>, String> {
    let text = text.trim();
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    match !text.is_empty() && text.chars().all(is_good) && text.matches('/').count() < 2 {
        true => Ok(text.into()),
        false => Err(format!("`{text}` is no key of a label")),
    }
}

/// The value of a label, which may be empty.
fn value(text: &str) -> Result<Arc<str>, String> {
    let text = text.trim();
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    match text.len() < 64 && text.chars().all(is_good) {
        true => Ok(text.into()),
        false => Err(format!("`{text}` is no value of a label")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use namewall_policy::labels::Labels;

    #[test]
    fn selectors_are_read_as_kubectl_reads_them() {
        let labels: Labels = [("app", "web"), ("example.org/tier", "front")].into_iter().collect();
        for (text, expected) in [
            ("app=web", true),
            ("app==web", true),
            ("app = db", false),
            ("app!=web", false),
            ("app!=db,example.org/tier", true),
            ("other!=web", true),
            ("!app", false),
            ("!other", true),
            ("app in (db, web), example.org/tier notin (back)", true),
            ("app notin (db,web)", false),
            ("app in ()", false),
        ] {
            assert_eq!(selector(text).map(|selector| selector.matches(&labels)), Ok(expected), "{text}");
        }
        for text in
            ["", "app in web", "app in (web", "a b", "app=we b", "app in (a) x", "a,,b", "app of (a)", ")", "a/b/c"]
        {
            assert!(selector(text).is_err(), "{text}");
        }
    }
}
