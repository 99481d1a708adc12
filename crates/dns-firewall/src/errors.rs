//! `errors`: told at once, or such as are alike counted and told every now and then.

use crate::tell::Teller;
use namewall_corefile::{self as corefile, Consolidate, FileSpan, Level};
use regex::Regex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Errors {
    alike: Vec<Arc<Alike>>,
}

/// Errors of which a regular expression says that they are alike.
#[derive(Debug)]
pub(crate) struct Alike {
    like: Regex,
    pub(crate) every: Duration,
    /// None where nobody wants to see them at all: `debug` is not on.
    level: Option<&'static str>,
    shows_first: bool,
    count: AtomicU64,
}

impl Errors {
    /// Of a block in which `debug` stands, or does not. What cannot be read is given with its place.
    pub(crate) fn new(settings: &corefile::Errors, debug: bool) -> Result<Self, (FileSpan, String)> {
        let alike = settings.consolidate.iter().map(|one| Alike::new(one, debug).map(Arc::new));
        Ok(Self { alike: alike.collect::<Result<_, _>>()? })
    }

    /// Tells an error, which is what regular expressions are held against, in a line.
    pub(crate) fn tell(&self, teller: &Teller, error: &str, line: impl FnOnce() -> String) {
        let Some(alike) = self.alike.iter().find(|alike| alike.like.is_match(error)) else {
            teller.tell(format!("[ERROR] {}", line()));
            return;
        };
        if alike.count.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        if let Some(level) = alike.level.filter(|_| alike.shows_first) {
            teller.tell(format!("[{level}] {}", line()));
        }
        if !teller.tell_later(alike) {
            // Nobody will come for it: the next one is the first again.
            alike.count.store(0, Ordering::Relaxed);
        }
    }
}

impl Alike {
    fn new(settings: &Consolidate, debug: bool) -> Result<Self, (FileSpan, String)> {
        let like = Regex::new(&settings.like.text).map_err(|error| {
            // Its last line says what; the others draw it.
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            (settings.like.place.clone(), format!("not a regular expression: {why}"))
        })?;
        let level = match settings.level {
            Level::Error => Some("ERROR"),
            Level::Warning => Some("WARNING"),
            Level::Info => Some("INFO"),
            Level::Debug => debug.then_some("DEBUG"),
        };
        let (every, shows_first) = (settings.every, settings.show_first);
        Ok(Self { like, every, level, shows_first, count: AtomicU64::new(0) })
    }

    /// What there was since the last time, and begins anew.
    pub(crate) fn take(&self) -> Option<String> {
        let count = self.count.swap(0, Ordering::Relaxed);
        let told = u64::from(self.shows_first);
        let level = self.level.filter(|_| count > told)?;
        Some(format!("[{level}] {count} errors like '{}' occurred in last {:?}", self.like, self.every))
    }
}
