//! Lists of names that expressions ask (`in-list`). A list is read once, whatever number of rules and server blocks
//! name it, and goes on when the Corefile is read again.

use crate::tell::Teller;
use crate::watch::Watched;
use namewall_expression::ListedAt;
use namewall_runtime::files::open_regular;
use namewall_zones::{DomainList, ListError};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// All lists that are in use, by file and by how often it is looked at.
#[derive(Debug, Default)]
pub(crate) struct ListFiles(Mutex<BTreeMap<Key, Weak<Watched<DomainList>>>>);

type Key = (Arc<str>, Option<Duration>);

impl ListFiles {
    /// The list of a file. If it is in use, it is read again only if it has changed, and stays as it is if it cannot be
    /// read. Waits.
    pub(crate) fn open(
        &self,
        file: &Arc<str>,
        every: Option<Duration>,
        teller: &Arc<Teller>,
    ) -> Result<Arc<Watched<DomainList>>, String> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, one| one.strong_count() > 0);
        let key = (file.clone(), every);
        if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
            drop(open);
            known.look();
            return Ok(known);
        }
        let path = file.clone();
        let watched = Watched::start(Path::new(&**file), every, move || read(&path), teller)?;
        open.insert(key, Arc::downgrade(&watched));
        Ok(watched)
    }

    /// Those that are in use, by their files.
    pub(crate) fn all(&self) -> Vec<(Arc<str>, Arc<Watched<DomainList>>)> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter_map(|((file, _), one)| Some((file.clone(), one.upgrade()?))).collect()
    }
}

fn read(file: &str) -> Result<DomainList, String> {
    let opened = open_regular(Path::new(file)).map_err(|error| error.to_string())?;
    DomainList::read(BufReader::with_capacity(64 * 1024, opened)).map_err(|error: ListError| error.to_string())
}

/// The lists of a Corefile, by their files.
#[derive(Debug, Default)]
pub(crate) struct Lists(pub(crate) Vec<(Arc<str>, Arc<Watched<DomainList>>)>);

impl Lists {
    /// Where a list has a name.
    pub(crate) fn listed(&self, list: &str, name: &str) -> Result<Option<ListedAt>, String> {
        let (_, watched) = self.0.iter().find(|(file, _)| **file == *list).ok_or("the list is not read")?;
        Ok(watched.now().line_of_text(name).map(|line| ListedAt { line }))
    }
}
