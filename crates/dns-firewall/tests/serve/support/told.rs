//! What is logged, as a test can wait for it.

use crate::stub::TEST_TIMEOUT;
use namewall_dns_firewall::Teller;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Everything that was told so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedText(Arc<Mutex<Vec<u8>>>);

impl Write for LoggedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LoggedText {
    pub(crate) fn teller(&self) -> Arc<Teller> {
        Arc::new(Teller::start(self.clone()).unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// How often a text was told so far.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text().matches(text).count()
    }

    pub(crate) fn has(&self, text: &str) -> bool {
        self.count(text) > 0
    }

    /// So many lines; lines are written by a thread of their own, so they may come a moment later.
    pub(crate) fn lines(&self, count: usize) -> Vec<String> {
        let began = Instant::now();
        loop {
            let text = self.text();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.len() >= count && (text.is_empty() || text.ends_with('\n')) {
                assert_eq!(lines.len(), count, "{lines:#?}");
                return lines;
            }
            assert!(began.elapsed() < TEST_TIMEOUT, "there are only {lines:#?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
