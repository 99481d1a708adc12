//! What a simulation runs takes clock, randomness, tasks, API server and DNS as
//! arguments (ADR 22). Only the modules listed here read the system's own.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose code runs in a simulation.
const SIMULATED: &[&str] = &["runtime", "kubernetes", "controller", "agent", "simulation"];

/// What only an edge may say.
const EDGE_WORDS: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    ".elapsed()",
    "tokio::",
    "kube::",
    "thread::",
    "RandomState",
    "getrandom",
    "urandom",
    "rand::",
];

/// A module that touches the system, and how.
struct Edge {
    file: &'static str,
    words: &'static [&'static str],
    /// Why it is one.
    why: &'static str,
}

const EDGES: &[Edge] = &[
    Edge {
        file: "runtime/src/clock.rs",
        words: &["Instant::now", "Timestamp::now", ".elapsed()"],
        why: "implements Clock with the system's clocks",
    },
    Edge { file: "runtime/src/random.rs", words: &["RandomState"], why: "takes a seed from the system" },
    Edge { file: "kubernetes/src/client.rs", words: &["tokio::", "kube::"], why: "implements Tasks with tokio" },
    Edge { file: "kubernetes/src/server.rs", words: &["kube::"], why: "implements ApiServer with kube" },
    Edge { file: "kubernetes/src/waiting.rs", words: &["Instant::now", "thread::"], why: "lets threads wait" },
    // Not simulated yet.
    Edge { file: "agent/src/agent.rs", words: &["thread::"], why: "serves the control socket" },
    Edge { file: "agent/src/control/mod.rs", words: &["thread::"], why: "lets CNI plugins wait, each in a thread" },
    Edge { file: "agent/src/denials.rs", words: &["thread::"], why: "reads denials from the kernel" },
    Edge { file: "agent/src/hold.rs", words: &["thread::"], why: "serves the control socket of a start that waits" },
    Edge {
        file: "agent/src/source/storage.rs",
        words: &["Instant::now", "thread::"],
        why: "stores the last good objects in a thread, and waits for it for a short time",
    },
    Edge {
        file: "agent/src/history/keeper.rs",
        words: &["Instant::now", ".elapsed()", "thread::"],
        why: "stores leases in a thread, and no more often than the disk bears",
    },
    Edge {
        file: "agent/src/enforcer/stage.rs",
        words: &["thread::"],
        why: "gives answers their turn between two parts",
    },
    Edge { file: "agent/src/node.rs", words: &["thread::"], why: "keeps the heartbeat of the DNS server" },
    Edge { file: "agent/src/learner.rs", words: &["thread::"], why: "plays a slow kernel, for tests" },
    Edge { file: "agent/src/memo.rs", words: &["RandomState"], why: "keeps answers under hashes nobody can guess" },
];

struct Source {
    /// From `crates`.
    path: String,
    text: String,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The code of the crates without their tests.
fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders: Vec<PathBuf> = SIMULATED.iter().map(|name| crates().join(name).join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be listed") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.to_string_lossy().ends_with("tests.rs") {
                let text = fs::read_to_string(&path).expect("the source can be read");
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
                let path = path.strip_prefix(crates()).unwrap_or(&path).display().to_string();
                sources.push(Source { path, text: code });
            }
        }
    }
    assert!(sources.len() > 50, "the sources were found");
    sources
}

fn edge(path: &str) -> Option<&'static Edge> {
    EDGES.iter().find(|edge| edge.file == path)
}

#[test]
fn only_edges_touch_clock_randomness_threads_and_runtime() {
    let mut wrong = Vec::new();
    for Source { path, text } in sources() {
        let allowed = edge(&path).map_or(&[][..], |edge| edge.words);
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let found = EDGE_WORDS.iter().filter(|word| line.contains(**word) && !allowed.contains(word));
            wrong.extend(found.map(|word| {
                format!(
                    "crates/{path}:{}: `{word}`: take it as an argument, from crates/runtime or an Environment (ADR 22)",
                    at + 1
                )
            }));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_edge_is_one() {
    let sources = sources();
    for Edge { file, words, why } in EDGES {
        let source = sources.iter().find(|source| source.path == *file);
        let source = source.unwrap_or_else(|| panic!("there is no crates/{file}, which {why}"));
        for word in *words {
            assert!(source.text.contains(word), "crates/{file} no longer says `{word}`: take it off the list");
        }
    }
}
