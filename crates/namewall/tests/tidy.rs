//! What a reviewer should not have to say: short files that begin with what they are for,
//! nothing left half done, and a map that shows every crate.

use std::fs;
use std::path::{Path, PathBuf};

const MOST_LINES: usize = 800;

/// In pieces, so that this file does not hold them itself.
const HALF_DONE: [&str; 4] =
    [concat!("to", "do!("), concat!("unimpl", "emented!("), concat!("d", "bg!("), concat!("#[", "ignore")];

struct File {
    /// From the root of the project.
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file of the crates and the fuzz targets.
fn sources() -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("fuzz")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("the source can be read");
                let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
                files.push(File { path, text });
            }
        }
    }
    assert!(files.len() > 20, "the sources were found");
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Fails with everything that is wrong, not with the first of it.
fn check(complaints: impl Iterator<Item = String>) {
    let complaints: Vec<String> = complaints.collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn no_file_is_too_long() {
    let counted = sources().into_iter().map(|file| (file.text.lines().count(), file.path));
    let long = counted.filter(|(lines, _)| *lines > MOST_LINES);
    check(long.map(|(lines, path)| format!("{path}: {lines} lines; past {MOST_LINES} split it")));
}

#[test]
fn every_file_says_what_it_is_for() {
    let doors = sources().into_iter().filter(|file| {
        let path = Path::new(&file.path);
        path.ends_with("mod.rs") || path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
    });
    let unsigned = doors.filter(|file| !file.text.starts_with("//!"));
    check(unsigned.map(|file| format!("{}: open it with a //! paragraph: what lives here, what does not", file.path)));
}

#[test]
fn nothing_is_left_half_done() {
    let mut complaints = Vec::new();
    for file in sources() {
        for (at, line) in file.text.lines().enumerate() {
            let found = HALF_DONE.iter().filter(|word| line.contains(**word));
            complaints.extend(found.map(|word| format!("{}:{}: `{word}`", file.path, at + 1)));
        }
    }
    check(complaints.into_iter());
}

#[test]
fn the_map_shows_every_crate() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("there is an ARCHITECTURE.md at the root");
    let crates = fs::read_dir(root().join("crates")).expect("there are crates");
    let names = crates
        .map(|entry| entry.expect("the entry can be read"))
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    let missing = names.filter(|name| !map.contains(&format!("{name}/")) && !map.contains(&format!("crates/{name}")));
    check(missing.map(|name| format!("ARCHITECTURE.md does not name crates/{name}")));
}

/// The capabilities that the manifest adds to each container, and those that docs/install.md tells of it.
#[test]
fn the_capabilities_of_containers_are_told() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("it can be read");
    let (manifest, docs) = (read("deploy/namewall.yaml"), read("docs/install.md"));
    let words = |text: &str| {
        let all = text.split(|letter: char| !(letter.is_ascii_uppercase() || letter == '_'));
        let mut found: Vec<String> = all.filter(|word| word.contains('_')).map(str::to_owned).collect();
        found.sort();
        found.dedup();
        found
    };
    let added = |container: &str| {
        let (_, rest) = manifest.split_once(&format!("\n        - name: {container}\n")).expect("the container");
        let (_, rest) = rest.split_once("drop: [ALL]\n").expect("it drops all");
        words(rest.lines().next().filter(|line| line.trim_start().starts_with("add: ")).unwrap_or_default())
    };
    let row = docs.lines().find(|line| line.starts_with("| DaemonSet `namewall-agent` |")).expect("a row");
    let (agent, sidecar) = row.split_once("Its sidecar `cni`").expect("it tells of the sidecar");
    assert_eq!((words(agent), words(sidecar)), (added("agent"), added("cni")));
    assert_eq!(added("controller"), Vec::<String>::new());
}
