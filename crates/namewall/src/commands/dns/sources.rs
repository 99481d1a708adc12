//! What a Corefile was read from, and whether any of it has changed since: the file itself, what it imports,
//! and the files its settings name.
//!
//! Everything is looked at before it is read: what changes in between is read once more, never missed.

use namewall_agent::look::{Seen, look};
use namewall_corefile::{Corefile, Files, Reload};
use namewall_dns_firewall::Disk;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often files are looked at unless the Corefile says otherwise, as CoreDNS has it.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How often changing files are looked at again before they are read as they are.
const MOST_WAITS: usize = 20;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Source {
    Path(PathBuf),
    /// Which files of a folder are like a pattern.
    Pattern(PathBuf, String),
}

impl Source {
    fn look(&self) -> BTreeSet<Seen> {
        match self {
            Self::Path(path) => look(path),
            // Only which they are: each that was read is a source of its own.
            Self::Pattern(folder, pattern) => {
                let names = Disk.like(folder, pattern).unwrap_or_default();
                names.iter().map(|name| (folder.join(name), 0, 0, 0, 0)).collect()
            }
        }
    }
}

/// The machine's files, noting what is read.
#[derive(Debug, Default)]
pub(super) struct Noting {
    read: RefCell<BTreeMap<Source, BTreeSet<Seen>>>,
    /// Of all texts that are read, in their order.
    hash: RefCell<Sha256>,
}

impl Noting {
    fn note(&self, source: Source) {
        let seen = source.look();
        self.read.borrow_mut().entry(source).or_insert(seen);
    }
}

impl Files for Noting {
    /// What cannot be read is noted, too: it may come.
    fn read(&self, path: &Path) -> io::Result<String> {
        self.note(Source::Path(path.to_owned()));
        let text = Disk.read(path)?;
        self.hash.borrow_mut().update(&text);
        Ok(text)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        Disk.names(folder)
    }

    fn like(&self, folder: &Path, pattern: &str) -> io::Result<Vec<String>> {
        self.note(Source::Pattern(folder.to_owned(), pattern.to_owned()));
        Disk.like(folder, pattern)
    }
}

/// All that is looked at.
#[derive(Debug, Default)]
pub(super) struct Sources {
    watched: BTreeMap<Source, Watched>,
    /// How often, unless a file has a time of its own; none is that nothing is looked at.
    every: Option<Duration>,
    /// The SHA-256 of the Corefile and of all that it imports, in hexadecimal digits.
    hash: String,
}

#[derive(Clone, Debug)]
struct Watched {
    seen: BTreeSet<Seen>,
    every: Option<Duration>,
    looked: Instant,
}

impl Sources {
    /// What was read, and what is going to be: to be asked for before anything that the Corefile names is read.
    /// A Corefile with errors names nothing.
    pub(super) fn of(noting: Noting, corefile: Option<&Corefile>) -> Self {
        let looked = Instant::now();
        let hash = noting.hash.into_inner().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let read = noting.read.into_inner().into_iter();
        let mut watched: BTreeMap<Source, Watched> =
            read.map(|(source, seen)| (source, Watched { seen, every: None, looked })).collect();
        for named in corefile.map(Corefile::named_files).unwrap_or_default() {
            let source = Source::Path(named.path);
            let now = || Watched { seen: source.look(), every: named.every, looked };
            watched.entry(source.clone()).or_insert_with(now);
        }
        Self { watched, every: corefile.map_or(Some(LOOK_EVERY), interval), hash }
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// Whether any of it has changed; a change is told once.
    pub(super) fn have_changed(&mut self, now: Instant) -> bool {
        let Some(usual) = self.every else { return false };
        let mut have_changed = false;
        for (source, watched) in &mut self.watched {
            if now.duration_since(watched.looked) < watched.every.unwrap_or(usual) {
                continue;
            }
            watched.looked = now;
            let seen = source.look();
            have_changed |= seen != watched.seen;
            watched.seen = seen;
        }
        have_changed
    }

    /// Waits until nothing changes any more from one look to the next, but not without end.
    pub(super) fn settle(&self, mut wait: impl FnMut()) {
        let look = || self.watched.keys().map(Source::look).collect::<Vec<_>>();
        let mut before = look();
        for _ in 0..MOST_WAITS {
            wait();
            let now = look();
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// What is read now could not be served: what is served was read from these, and goes on to be looked at,
    /// as often as before.
    pub(super) fn or_else(mut self, before: &Self) -> Self {
        for (source, watched) in &before.watched {
            self.watched.entry(source.clone()).or_insert_with(|| watched.clone());
        }
        self.every = before.every;
        self
    }
}

fn interval(corefile: &Corefile) -> Option<Duration> {
    match corefile.servers.iter().find_map(|server| server.reload) {
        Some(Reload::Off) => None,
        Some(Reload::Every { interval, .. }) => Some(interval),
        None => Some(LOOK_EVERY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn files_are_read_when_nobody_writes_to_them_any_more() {
        let path = std::env::temp_dir().join(format!("namewall-sources-{}", std::process::id()));
        std::fs::write(&path, ". {\n").unwrap();
        let noting = Noting::default();
        noting.read(&path).unwrap();
        let sources = Sources::of(noting, None);
        let count = |most_writes: usize| {
            let mut waits = 0;
            sources.settle(|| {
                waits += 1;
                if waits <= most_writes {
                    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"errors\n").unwrap();
                }
            });
            waits
        };
        let counts = [count(0), count(3), count(usize::MAX)];
        std::fs::remove_file(&path).unwrap();
        assert_eq!(counts, [1, 4, MOST_WAITS]);
    }
}
