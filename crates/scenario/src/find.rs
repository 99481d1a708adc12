//! Which files of a folder are scenarios.

use crate::file::{Scenario, ScenarioError};
use namewall_cluster::yaml;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

impl Scenario {
    /// The scenario files at a path: the file itself, or those below a folder. A YAML file that is neither a scenario
    /// nor a manifest is taken for a scenario, whose reading then says what is wrong with it.
    pub fn find(path: &Path) -> Result<Vec<PathBuf>, ScenarioError> {
        let mut search = Search::default();
        match path.is_dir() {
            true => search.folder(path)?,
            false => search.found.push(path.to_owned()),
        }
        Ok(search.found)
    }
}

#[derive(Default)]
struct Search {
    found: Vec<PathBuf>,
    /// Links may lead round in circles; a folder is searched once.
    seen: HashSet<PathBuf>,
}

impl Search {
    fn folder(&mut self, folder: &Path) -> Result<(), ScenarioError> {
        let unreadable = |source| ScenarioError::Read { path: folder.display().to_string(), source };
        if !self.seen.insert(folder.canonicalize().map_err(unreadable)?) {
            return Ok(());
        }
        let entries = std::fs::read_dir(folder).map_err(unreadable)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>();
        let mut paths = paths.map_err(unreadable)?;
        paths.sort();
        for path in paths {
            if path.is_dir() {
                self.folder(&path)?;
            } else if is_scenario(&path)
                .map_err(|source| ScenarioError::Read { path: path.display().to_string(), source })?
            {
                self.found.push(path);
            }
        }
        Ok(())
    }
}

fn is_scenario(path: &Path) -> io::Result<bool> {
    let extension = path.extension().map(|ext| ext.to_string_lossy().to_ascii_lowercase());
    let (is_yaml, is_json) =
        (matches!(extension.as_deref(), Some("yaml" | "yml")), extension.as_deref() == Some("json"));
    if !is_yaml && !is_json {
        return Ok(false);
    }
    // A pipe would be waited for, and a device has no end.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file; only regular files, and links to them, are read"));
    }
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&text);
    if has_key(&text, &["topology", "steps", "probes"]) {
        return Ok(true);
    }
    let is_kustomization = path.file_stem().is_some_and(|stem| stem == "kustomization");
    // A list is of objects. A broken manifest is no scenario: those that use it say what is wrong with it.
    let is_manifest = is_kustomization || text.starts_with('[') || has_key(&text, &["kind", "apiVersion"]);
    Ok(is_yaml && !is_manifest)
}

/// Whether the text is a map with one of these keys, as far as it can be read.
fn has_key(text: &str, keys: &[&str]) -> bool {
    let starts = |line: &str| keys.iter().any(|key| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')));
    if !text.trim_start().starts_with('{') {
        return text.lines().any(starts);
    }
    match yaml::split_documents(text).first().map(|document| yaml::parse(*document)) {
        Some(Ok(Some(node))) => keys.iter().any(|key| node.get(key).is_some()),
        _ => keys.iter().any(|key| text.contains(&format!("\"{key}\"")) || text.contains(&format!("{key}:"))),
    }
}
