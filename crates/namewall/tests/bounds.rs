//! The table of bounded resources in SECURITY-MODEL.md: every row names a counter
//! that is exported and a test that exists.

use std::fs;
use std::path::{Path, PathBuf};

const HEADING: &str = "## What is bounded, and whose share it is";
const COLUMNS: usize = 6;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("the file can be read")
}

/// The cells of each row.
fn rows() -> Vec<Vec<String>> {
    let text = read(&root().join("SECURITY-MODEL.md"));
    let section = text.split_once(HEADING).expect("the section is there").1;
    let table = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    table.skip(2).map(cells).collect()
}

/// The text between the backticks of a cell.
fn named(cell: &str) -> &str {
    cell.split('`').nth(1).unwrap_or_else(|| panic!("{cell:?} names nothing"))
}

/// All of the project's Rust.
fn sources() -> String {
    let (mut text, mut folders) = (String::new(), vec![root().join("crates")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "rs") => text += &read(&path),
                false => {}
            }
        }
    }
    text
}

#[test]
fn every_bounded_resource_has_a_counter_and_a_test_that_floods_it() {
    let (metrics, sources, rows) = (read(&root().join("docs/metrics.md")), sources(), rows());
    assert!(rows.len() >= 10, "rows are missing: {rows:#?}");
    for row in rows {
        assert_eq!(row.len(), COLUMNS, "{row:?}");
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        let [resource, .., counter, test] = &row[..] else { unreachable!() };
        let (counter, test) = (named(counter), named(test));
        assert!(metrics.contains(&format!("| `{counter}` |")), "{resource}: docs/metrics.md has no {counter}");
        assert!(sources.contains(&format!("fn {test}(")), "{resource}: there is no test {test}");
    }
}
