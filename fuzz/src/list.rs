//! Lists of names: read or refused with lines that are there, and a list has every name that it was read from.

use namewall_zones::{DomainList, ListError};

pub fn list(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count() as u32;
    let list = match DomainList::read(bytes) {
        Ok(list) => list,
        Err(ListError::BadLines(bad, count)) => {
            assert!(!bad.is_empty() && bad.len() <= count);
            assert!(bad.iter().all(|bad| (1..=lines).contains(&bad.line) && !bad.message.is_empty()));
            return;
        }
        Err(_) => return,
    };
    assert!(!list.is_empty());
    let text = std::str::from_utf8(bytes).expect("a list is text");
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default().trim();
        // Other forms, and names that are stored as A-labels, are left to the tests.
        if !line.is_ascii() || line.contains(char::is_whitespace) || line.is_empty() {
            continue;
        }
        let (name, is_itself) = match (line.strip_prefix('='), line.strip_prefix("*.")) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => (line, true),
        };
        let bare = name.strip_suffix('.').unwrap_or(name);
        let asked = if is_itself { bare.to_owned() } else { format!("x.{bare}") };
        // A name of 253 bytes has none below it.
        let found = list.line_of_text(&asked.to_ascii_uppercase());
        assert!(
            found.is_some_and(|found| (1..=lines).contains(&found)) || asked.len() > 253,
            "line {}: {line}",
            at + 1
        );
    }
    assert_eq!(list.line_of_text(""), None);
    assert_eq!(list.line_of_text("."), None);
}
