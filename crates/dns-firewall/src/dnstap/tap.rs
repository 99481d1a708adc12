//! Connections to who reads dnstap. The DNS loop puts messages into a queue and never waits; a thread
//! takes them out. Where nobody is there to read, it tries again after a while.

use super::frames;
use super::stream::{Stream, Target};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Messages that may wait to be sent.
const MOST: usize = 10_000;
/// So many bytes go out at once, if they are there.
const BATCH: usize = 64 << 10;
/// How long to wait before trying again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// All of a process. They outlive the Corefile that names them: the next one goes on with them.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    open: Mutex<Vec<Weak<Tap>>>,
    threads: Threads,
}

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// Who reads at one socket.
#[derive(Debug)]
pub(super) struct Tap {
    to: Target,
    queue: SyncSender<Vec<u8>>,
    /// For the thread, until it starts.
    waiting: Mutex<Option<Receiver<Vec<u8>>>>,
    thread: OnceLock<Option<Thread>>,
    threads: Threads,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    lost: AtomicU64,
    is_over: AtomicBool,
}

impl Taps {
    pub(super) fn open(&self, to: Target) -> Arc<Tap> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|tap| tap.strong_count() > 0);
        if let Some(tap) = open.iter().filter_map(Weak::upgrade).find(|tap| tap.to == to) {
            return tap;
        }
        let (queue, waiting) = sync_channel(MOST);
        let tap = Arc::new(Tap {
            to,
            queue,
            waiting: Mutex::new(Some(waiting)),
            thread: OnceLock::new(),
            threads: self.threads.clone(),
            shared: Arc::default(),
        });
        open.push(Arc::downgrade(&tap));
        tap
    }

    /// How many messages each has lost.
    pub(crate) fn lost(&self) -> Vec<(String, u64)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let taps = open.iter().filter_map(Weak::upgrade);
        taps.map(|tap| (tap.to.to_string(), tap.shared.lost.load(Ordering::Relaxed))).collect()
    }

    /// Waits for those nobody tells anything any more to send what they have; but not longer than this.
    pub(crate) fn finish(&self, until: Instant) {
        let in_use = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.iter().filter(|tap| tap.strong_count() > 0).count()
        };
        loop {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.retain(|thread| !thread.is_finished());
            if threads.len() <= in_use || Instant::now() >= until {
                return;
            }
            drop(threads);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Tap {
    /// Sends a message, or counts it as lost.
    pub(super) fn send(&self, message: Vec<u8>) {
        // Started by the first message: who only checks a Corefile connects to nobody.
        let thread = self.thread.get_or_init(|| self.start());
        if thread.is_none() || self.queue.try_send(message).is_err() {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(&self) -> Option<Thread> {
        let queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let mut pump = Pump { to: self.to.clone(), queue, shared: self.shared.clone(), batch: Batch::default() };
        let thread = std::thread::Builder::new().name("dnstap".to_owned()).spawn(move || pump.run()).ok()?;
        let handle = thread.thread().clone();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Some(handle)
    }
}

impl Drop for Tap {
    /// Its thread sends what there is and ends. Nobody waits for it here: this may be the DNS loop.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.get().and_then(Option::as_ref) {
            thread.unpark();
        }
    }
}

/// Frames on their way.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    messages: u64,
}

struct Pump {
    to: Target,
    queue: Receiver<Vec<u8>>,
    shared: Arc<Shared>,
    batch: Batch,
}

/// Why messages do not flow.
enum Stopped {
    /// There will be no more.
    Over,
    /// The other side is gone.
    Gone,
}

impl Pump {
    fn run(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect() {
                Ok(mut stream) => {
                    pause = FIRST_PAUSE;
                    if let Stopped::Over = self.pump(&mut stream) {
                        let _ = frames::part(&mut stream);
                        return;
                    }
                }
                Err(_) if self.shared.is_over.load(Ordering::SeqCst) => return,
                Err(_) => {}
            }
            std::thread::park_timeout(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn connect(&self) -> std::io::Result<Stream> {
        let mut stream = self.to.connect()?;
        frames::greet(&mut stream)?;
        Ok(stream)
    }

    fn pump(&mut self, stream: &mut Stream) -> Stopped {
        loop {
            if self.batch.messages == 0 {
                let Ok(message) = self.queue.recv() else { return Stopped::Over };
                self.batch.push(&message);
            }
            while let (true, Ok(message)) = (self.batch.bytes.len() < BATCH, self.queue.try_recv()) {
                self.batch.push(&message);
            }
            // The other side says nothing until the end: what can be read now is that it is gone. Then
            // the next connection gets the batch. One that breaks later takes it along.
            if stream.is_closed() {
                return Stopped::Gone;
            }
            let sent = stream.write_all(&self.batch.bytes).and_then(|()| stream.flush());
            let Batch { messages, .. } = std::mem::take(&mut self.batch);
            if sent.is_err() {
                self.shared.lost.fetch_add(messages, Ordering::Relaxed);
                return Stopped::Gone;
            }
        }
    }
}

impl Batch {
    fn push(&mut self, message: &[u8]) {
        frames::push_data(&mut self.bytes, message);
        self.messages += 1;
    }
}
