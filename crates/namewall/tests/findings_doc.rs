//! Every code a finding can carry is told in docs/findings.md, and no other.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn every_code_is_documented() {
    let mut written = BTreeSet::new();
    for folder in ["crates/cluster/src", "crates/policy/src", "crates/agent/src"] {
        collect(&Path::new(ROOT).join(folder), &mut written);
    }
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/findings.md")).expect("it is there");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let told: BTreeSet<String> = rows
        .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect();
    assert_eq!(written.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/findings.md");
    assert_eq!(told.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "nothing says these any more");
}

/// Codes as they are written: words joined by hyphens, first argument of what makes a finding.
fn collect(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            collect(&path, codes);
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("it is text");
        // Tests say codes too, but only in modules of their own.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for maker in ["error(", "warning(", "hint(", "warn("] {
            for after in text.split(maker).skip(1) {
                // The lints say the place before the code.
                let call = after.split([';', '{']).next().unwrap_or_default();
                let is_code = |text: &&str| {
                    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                };
                codes.extend(call.split('"').skip(1).step_by(2).find(is_code).map(str::to_owned));
            }
        }
    }
}
