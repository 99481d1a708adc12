//! What is told of questions. The DNS server never waits for who reads it.

use crate::clients::Clients;
use crate::dnstap::Taps;
use crate::errors::Alike;
use crate::list_files::ListFiles;
use crate::metrics::{ListCounts, Metrics};
use crate::rpz::Followers;
use crate::watch::Watched;
use namewall_dns::{EncryptedCounters, UpstreamState};
use namewall_zones::DomainList;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Lines that may wait to be written.
const MOST: usize = 8_192;
/// Nothing is due: one may wait for as long as anybody.
const LONG: Duration = Duration::from_secs(3_600);

/// Takes lines for the log. Where they come faster than they are written, some are left out, and counted.
/// It has also what outlives the Corefile that asked for it: what is counted, of clients too, and
/// connections to who reads dnstap.
#[derive(Debug)]
pub struct Teller {
    lines: SyncSender<LogItem>,
    lost: AtomicU64,
    /// The same, and never less.
    lost_ever: AtomicU64,
    metrics: Metrics,
    taps: Taps,
    lists: ListFiles,
    followers: Followers,
    clients: Clients,
}

enum LogItem {
    Line(String),
    /// What is counted is told when its time is over.
    Later(Instant, Arc<Alike>),
    /// Everything before is to be written, and what is counted too.
    Finish(SyncSender<()>),
}

impl Teller {
    /// Writes lines to wherever they are to go, on a thread of its own.
    pub fn start(to: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel(MOST);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(to, &waiting))?;
        let (lost, lost_ever) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self {
            lines,
            lost,
            lost_ever,
            metrics: Metrics::default(),
            taps: Taps::default(),
            lists: ListFiles::default(),
            followers: Followers::default(),
            clients: Clients::default(),
        })
    }

    pub fn tell(&self, line: String) {
        if self.lines.try_send(LogItem::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.lost_ever.fetch_add(1, Ordering::Relaxed);
        } else if self.lost.load(Ordering::Relaxed) > 0 {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            let told = self.lines.try_send(LogItem::Line(format!("{lost} lines were left out of the log")));
            if told.is_err() {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }

    /// Has what is counted told when it is time. False is that it will not be.
    pub(crate) fn tell_later(&self, alike: &Arc<Alike>) -> bool {
        self.lines.try_send(LogItem::Later(Instant::now() + alike.every, alike.clone())).is_ok()
    }

    /// Waits until all that was told is written, and who reads dnstap has got what it gets; but not longer
    /// than this. Such taps as are still in use stay open.
    pub fn finish(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let (done, is_done) = sync_channel(1);
        if self.lines.try_send(LogItem::Finish(done)).is_ok() {
            let _ = is_done.recv_timeout(limit);
        }
        self.taps.finish(until);
    }

    /// Counts connections over TLS and HTTPS with the rest.
    pub fn watch_connections(&self, counters: Arc<EncryptedCounters>) {
        self.metrics.watch_connections(counters);
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What clients have asked lately.
    pub(crate) fn clients(&self) -> &Clients {
        &self.clients
    }

    pub(crate) fn taps(&self) -> &Taps {
        &self.taps
    }

    pub(crate) fn lists(&self) -> &ListFiles {
        &self.lists
    }

    pub(crate) fn followers(&self) -> &Followers {
        &self.followers
    }

    /// What is counted of lists.
    pub(crate) fn list_counts(&self) -> Vec<ListCounts> {
        let of_file = |(file, list): (Arc<str>, Arc<Watched<DomainList>>)| ListCounts {
            label: file.to_string(),
            entries: list.now().len() as u64,
            loaded: list.loads.last(),
            failures: list.loads.failures(),
        };
        self.lists.all().into_iter().map(of_file).chain(self.followers.counts()).collect()
    }

    /// How upstreams are doing, for metrics.
    pub fn set_upstreams(&self, states: Vec<UpstreamState>) {
        self.metrics.set_upstreams(states);
    }

    /// A Corefile is served from now on; `hash` is the SHA-256 of what it was read from, in hexadecimal digits.
    pub fn set_version(&self, hash: String) {
        self.metrics.set_version(hash);
    }

    /// A Corefile has changed and cannot be served.
    pub fn reload_failed(&self) {
        self.metrics.reload_failed();
    }

    /// Lines left out of the log since the start.
    pub(crate) fn lines_lost(&self) -> u64 {
        self.lost_ever.load(Ordering::Relaxed)
    }
}

fn write(mut to: impl Write, told: &Receiver<LogItem>) {
    let mut later: Vec<(Instant, Arc<Alike>)> = Vec::new();
    loop {
        let due = later.iter().map(|(at, _)| at.saturating_duration_since(Instant::now())).min();
        let mut next = match told.recv_timeout(due.unwrap_or(LONG)) {
            Ok(next) => Some(next),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        // What waits already goes along.
        while let Some(one) = next {
            match one {
                LogItem::Line(line) => _ = writeln!(to, "{line}"),
                LogItem::Later(at, alike) => later.push((at, alike)),
                LogItem::Finish(done) => {
                    later.drain(..).filter_map(|(_, alike)| alike.take()).for_each(|line| _ = writeln!(to, "{line}"));
                    let _ = to.flush();
                    let _ = done.try_send(());
                }
            }
            next = told.try_recv().ok();
        }
        let now = Instant::now();
        later.retain(|(at, alike)| {
            let is_due = *at <= now;
            if let Some(line) = is_due.then(|| alike.take()).flatten() {
                let _ = writeln!(to, "{line}");
            }
            !is_due
        });
        let _ = to.flush();
    }
    later.iter().filter_map(|(_, alike)| alike.take()).for_each(|line| _ = writeln!(to, "{line}"));
    let _ = to.flush();
}
