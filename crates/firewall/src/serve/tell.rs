//! What is told of questions. The DNS server never waits for who reads it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lines that may wait to be written.
const MOST: usize = 8_192;

/// Takes lines for the log. Where they come faster than they are written, some are left out, and counted.
#[derive(Debug)]
pub struct Teller {
    lines: SyncSender<String>,
    lost: AtomicU64,
}

impl Teller {
    /// Writes lines to wherever they are to go, on a thread of its own.
    pub fn start(to: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel(MOST);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(to, &waiting))?;
        Ok(Self { lines, lost: AtomicU64::new(0) })
    }

    pub fn tell(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else if self.lost.load(Ordering::Relaxed) > 0 {
            let lost = self.lost.swap(0, Ordering::Relaxed);
            let told = self.lines.try_send(format!("{lost} lines were left out of the log"));
            if told.is_err() {
                self.lost.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }
}

fn write(mut to: impl Write, lines: &Receiver<String>) {
    while let Ok(line) = lines.recv() {
        let _ = writeln!(to, "{line}");
        // What waits already goes along.
        while let Ok(line) = lines.try_recv() {
            let _ = writeln!(to, "{line}");
        }
        let _ = to.flush();
    }
}
