//! What this process knows of changes to tables inside pods' network namespaces,
//! stored for the next one. The kernel numbers the changes in each namespace; if
//! the number is another at the next start, somebody has changed tables while no
//! agent ran.

use crate::error::with_causes;
use crate::source::{StorageError, WriteHow, read_file, second_file, write_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tracing::warn;

/// A file that is larger is not read: a node has not so many pods.
const MOST_BYTES: usize = 4 << 20;

/// By the name of the namespace.
type Numbers = BTreeMap<String, u32>;

#[derive(Default, Debug)]
pub(crate) struct SeenChanges {
    /// None if nothing is stored.
    file: Option<PathBuf>,
    /// What the process before has stored.
    before: Numbers,
    stored: Numbers,
    /// Why it could not be stored last.
    failure: Option<String>,
}

impl SeenChanges {
    /// What the process before has stored beside this file of leases. Without it nothing is known: a table that was
    /// changed in part is then made right and not counted.
    pub(crate) fn load(leases: Option<&Path>) -> Self {
        let Some(file) = leases.map(second_file) else { return Self::default() };
        let read = read_file(&file, MOST_BYTES).map_err(|error| with_causes(&error));
        let decode = |bytes: Vec<u8>| serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        let before: Numbers = read.and_then(|bytes| bytes.map_or(Ok(Numbers::new()), decode)).unwrap_or_else(|why| {
            let path = file.display();
            warn!(
                "cannot use {path}: {why}; changes of others inside pods while no agent ran are made right, not counted"
            );
            Numbers::new()
        });
        Self { file: Some(file), stored: before.clone(), before, failure: None }
    }

    /// The last change of a namespace that the process before knew of.
    pub(crate) fn before(&self, id: &str) -> Option<u32> {
        self.before.get(id).copied()
    }

    /// Stores what is known now, if that is something else than before. Of namespaces that are not reached yet, what
    /// the process before knew stays.
    pub(crate) fn store(&mut self, mut seen: Numbers, unreached: impl Iterator<Item = String>) {
        let Some(file) = &self.file else { return };
        for id in unreached {
            if let Some(number) = self.before(&id) {
                seen.entry(id).or_insert(number);
            }
        }
        if seen == self.stored {
            return;
        }
        // Numbers by texts: it goes into memory and cannot fail.
        let bytes = serde_json::to_vec(&seen).unwrap_or_default();
        let failure = write_file(file, &bytes, WriteHow::Unsynced).err().map(|error: StorageError| with_causes(&error));
        match &failure {
            None => self.stored = seen,
            Some(error) if failure != self.failure => {
                warn!(error, "cannot store what the next agent tells changes of others inside pods by");
            }
            Some(_) => {}
        }
        self.failure = failure;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(all: &[(&str, u32)]) -> Numbers {
        all.iter().map(|(id, number)| ((*id).to_owned(), *number)).collect()
    }

    #[test]
    fn s1_9_what_was_seen_inside_pods_outlives_the_process_until_their_namespaces_are_reached_again() {
        let folder = std::env::temp_dir().join(format!("namewall-seen-{}", std::process::id()));
        let leases = folder.join("leases");
        let mut first = SeenChanges::load(Some(&leases));
        assert_eq!(first.before("a"), None);
        first.store(numbers(&[("a", 7), ("b", 8), ("gone", 9)]), std::iter::empty());
        let mut second = SeenChanges::load(Some(&leases));
        second.store(numbers(&[("a", 10)]), ["b".to_owned(), "new".to_owned()].into_iter());
        assert_eq!(second.before("a"), Some(7), "what the process before knew");
        let third = SeenChanges::load(Some(&leases));
        assert_eq!(["a", "b", "gone", "new"].map(|id| third.before(id)), [Some(10), Some(8), None, None]);
        std::fs::write(second_file(&leases), "{").expect("it is written");
        assert_eq!(SeenChanges::load(Some(&leases)).before("a"), None, "a damaged file tells nothing");
        std::fs::remove_dir_all(&folder).expect("it is removed");
        SeenChanges::load(None).store(numbers(&[("a", 1)]), std::iter::empty());
    }
}
