//! The load: questions on a schedule that answers cannot slow down.
//!
//! ```text
//!   this thread, on one core          the forwarder, on the other
//!   ┌ questions that are due ──────►  ┐
//!   │ upstream: what was asked ◄────  │
//!   │ upstream: its answers ───────►  │
//!   └ answers, checked and timed ◄──  ┘
//! ```
//! A question's time runs from when it was due, not from when it was sent. One
//! thing is not the forwarder's: that this thread was not let run. Such
//! absences, known by their length, are taken out of the clock, and told.

use crate::datagrams::{self, BATCH, Inbox, Outbox};
use crate::upstream::Upstream;
use crate::wire::{Answers, Asked, Kind};
use anyhow::{Context, Result, anyhow};
use namewall_bench::random::mix;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const SOCKETS: usize = 32;
const IDS: usize = 1 << 16;
/// No round of the loop works as long as that.
const ABSENCE: Duration = Duration::from_millis(2);
/// After so long without any answer those that are missing are lost.
const SILENCE: Duration = Duration::from_millis(500);
/// Known names are below it.
const FIRST_FRESH: u32 = 16_000_000;

/// Which names are asked for, each for both kinds of addresses, as resolvers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    /// So many, in turn.
    Known(u32),
    /// So many, in no order.
    Random(u32),
    /// Each once only.
    Fresh,
}

impl Names {
    fn asked(self, question: u64) -> Asked {
        let (pair, kind) = (question / 2, if question.is_multiple_of(2) { Kind::A } else { Kind::Aaaa });
        let number = match self {
            Self::Known(count) => (pair % u64::from(count.max(1))) as u32,
            Self::Random(count) => (mix(pair) % u64::from(count.max(1))) as u32,
            Self::Fresh => FIRST_FRESH.wrapping_add(pair as u32),
        };
        Asked { number, kind }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Questions a second.
    pub(crate) rate: u32,
    pub(crate) lasts: Duration,
    pub(crate) names: Names,
    pub(crate) answers: Answers,
    /// Whether it goes on while nobody listens.
    pub(crate) is_patient: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) sent: u64,
    /// Rightly.
    pub(crate) answered: u64,
    /// Answered by SERVFAIL. A resolver would ask again.
    pub(crate) failed: u64,
    pub(crate) wrong: u64,
    /// In nanoseconds, the shortest first.
    latencies: Vec<u32>,
    /// From the first question to the last, without absences.
    pub(crate) took: Duration,
    /// How long this thread was not let run in all.
    pub(crate) away: Duration,
    /// The longest time without a right answer, until the last question was asked.
    pub(crate) silence: Duration,
}

impl Outcome {
    pub(crate) fn lost(&self) -> u64 {
        self.sent - self.answered
    }

    /// The latency in µs below which this share of all is.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share).round() as usize).map_or(f64::NAN, |&time| f64::from(time) / 1e3)
    }
}

impl Load {
    /// Asks whoever listens there. `asked` counts a rig's questions over all loads, so that no fresh name comes twice.
    pub(crate) fn run(self, to: SocketAddrV4, upstream: &mut Upstream, asked: &mut u64) -> Result<Outcome> {
        upstream.answers = self.answers;
        let total = (self.lasts.as_secs_f64() * f64::from(self.rate)) as u64;
        let mut run = Run::start(self, to, *asked)?;
        *asked += total;
        loop {
            run.send(total)?;
            run.receive(upstream)?;
            if run.sent == total && run.is_over() {
                return Ok(run.outcome());
            }
        }
    }
}

struct Run {
    sockets: Vec<UdpSocket>,
    inbox: Inbox,
    outbox: Outbox,
    clock: Clock,
    book: Book,
    sent: u64,
    /// When something was sent or received last.
    active: Duration,
    took: Duration,
}

impl Run {
    fn start(load: Load, to: SocketAddrV4, first: u64) -> Result<Self> {
        let connect = |_| -> Result<UdpSocket> {
            let socket = datagrams::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(to)?;
            Ok(socket)
        };
        let sockets = (0..SOCKETS).map(connect).collect::<Result<_>>().context("cannot open sockets to ask from")?;
        Ok(Self {
            sockets,
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            book: Book::new(load, first),
            sent: 0,
            active: Duration::ZERO,
            took: Duration::ZERO,
            clock: Clock::start(),
        })
    }

    /// Sends what is due, up to a batch.
    fn send(&mut self, total: u64) -> Result<()> {
        let now = self.clock.now();
        let pairs_due = (now.as_secs_f64() * f64::from(self.book.load.rate) / 2.0) as u64 + 1;
        let due = (pairs_due * 2).min(total);
        let end = due.min(self.sent + BATCH as u64);
        while self.sent < end {
            // The two of a look-up at once, by one socket.
            let pair = self.sent..(self.sent / 2 * 2 + 2).min(total);
            let (socket, _) = self.book.place(self.sent);
            self.sent = pair.end;
            for question in pair {
                let (id, asked) = self.book.ask(question);
                self.outbox.put(None, |out| {
                    asked.write(id, out);
                    Some(())
                });
            }
            self.active = now;
            self.took = now;
            allow(self.book.load.is_patient, self.outbox.send(&self.sockets[socket]))?;
        }
        Ok(())
    }

    /// Serves the upstream and takes answers, up to a batch a socket.
    fn receive(&mut self, upstream: &mut Upstream) -> Result<()> {
        let sockets = [&upstream.socket].into_iter().chain(&self.sockets);
        let mut polled: Vec<_> = sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::ZERO) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = polled.iter().map(|fd| fd.any() == Some(true)).collect::<Vec<_>>().into_iter();
        if ready.next() == Some(true) {
            upstream.serve()?;
        }
        let Self { sockets, inbox, clock, book, active, .. } = self;
        for (at, (socket, _)) in sockets.iter().zip(ready).enumerate().filter(|(_, (_, ready))| *ready) {
            // One time for a batch: its last was there already when the call returned.
            let mut now = None;
            let take = |message: &[u8], _| book.take(at, message, *now.get_or_insert_with(|| clock.now()));
            let received = inbox.receive(socket, take);
            *active = now.unwrap_or(*active);
            allow(book.load.is_patient, received)?;
        }
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        self.book.open == 0 || self.clock.now() > self.active + SILENCE
    }

    fn outcome(self) -> Outcome {
        let Self { sent, took, clock, book: Book { failed, wrong, mut latencies, last, silence, .. }, .. } = self;
        latencies.sort_unstable();
        let silence = silence.max(took.saturating_sub(last));
        Outcome { sent, answered: latencies.len() as u64, failed, wrong, latencies, took, away: clock.away, silence }
    }
}

/// That nobody listens is an error, unless the load is patient.
fn allow(is_patient: bool, done: Result<(), Errno>) -> Result<()> {
    match done {
        Err(Errno::ECONNREFUSED) if is_patient => Ok(()),
        done => done.map_err(explain),
    }
}

fn explain(errno: Errno) -> anyhow::Error {
    match errno {
        Errno::ECONNREFUSED => anyhow!("nobody listens there any more"),
        errno => errno.into(),
    }
}

/// Who waits for what.
struct Book {
    load: Load,
    /// The number of this run's first question.
    first: u64,
    /// By socket and id.
    waiting: Vec<Waiting>,
    open: u64,
    failed: u64,
    wrong: u64,
    latencies: Vec<u32>,
    /// When the last right answer came.
    last: Duration,
    /// The longest time between two of them.
    silence: Duration,
}

#[derive(Clone, Copy, Default, Debug)]
struct Waiting {
    /// From 1; none is 0.
    question: u64,
    due: Duration,
}

impl Book {
    fn new(load: Load, first: u64) -> Self {
        let waiting = vec![Waiting::default(); SOCKETS * IDS];
        let (last, silence) = (Duration::ZERO, Duration::ZERO);
        Self { load, first, waiting, open: 0, failed: 0, wrong: 0, latencies: Vec::new(), last, silence }
    }

    /// The socket of a question, and its id there. Sockets take turns, a look-up each; ids are others in every run.
    fn place(&self, question: u64) -> (usize, u16) {
        let (pair, within) = (question / 2, question % 2);
        let id = pair / SOCKETS as u64 * 2 + within;
        ((pair % SOCKETS as u64) as usize, mix(self.first).wrapping_add(id) as u16)
    }

    fn asked(&self, question: u64) -> Asked {
        self.load.names.asked(self.first + question)
    }

    fn ask(&mut self, question: u64) -> (u16, Asked) {
        let (socket, id) = self.place(question);
        let due = Duration::from_secs_f64((question / 2 * 2) as f64 / f64::from(self.load.rate));
        self.waiting[socket * IDS + usize::from(id)] = Waiting { question: question + 1, due };
        self.open += 1;
        (id, self.asked(question))
    }

    /// Each question is answered once: what nobody waits for is wrong, too.
    fn take(&mut self, socket: usize, message: &[u8], now: Duration) {
        let id = message.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
        let Waiting { question, due } = std::mem::take(&mut self.waiting[socket * IDS + usize::from(id)]);
        self.open -= u64::from(question != 0);
        if question != 0 && self.asked(question - 1).is_answered_by(message) {
            self.latencies.push(u32::try_from(now.saturating_sub(due).as_nanos()).unwrap_or(u32::MAX));
            self.silence = self.silence.max(now.saturating_sub(self.last));
            self.last = now;
        } else if question != 0 && self.asked(question - 1).is_failed_by(message) {
            self.failed += 1;
        } else {
            self.wrong += 1;
        }
    }
}

/// Time, without this thread's absences.
struct Clock {
    start: Instant,
    seen: Duration,
    away: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { start: Instant::now(), seen: Duration::ZERO, away: Duration::ZERO }
    }

    fn now(&mut self) -> Duration {
        self.tell(self.start.elapsed())
    }

    fn tell(&mut self, time: Duration) -> Duration {
        let gap = time - self.seen;
        self.seen = time;
        if gap > ABSENCE {
            self.away += gap;
        }
        time - self.away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: Answers = Answers { ttl: 1, aliased: false };
    const LOAD: Load = Load {
        rate: 1_000,
        lasts: Duration::from_secs(1),
        names: Names::Known(10),
        answers: ANSWERS,
        is_patient: false,
    };

    #[test]
    fn a_question_is_answered_once_and_rightly() {
        let mut book = Book::new(LOAD, 5);
        let (id, asked) = book.ask(3);
        assert_eq!(asked, Asked { number: 4, kind: Kind::A });
        let (mut query, mut answer) = (Vec::new(), Vec::new());
        asked.write(id, &mut query);
        crate::wire::answer(&query, ANSWERS, &mut answer).unwrap();
        let now = Duration::from_millis(5);
        book.take(0, &answer, now);
        assert_eq!((book.open, book.wrong, book.latencies.len()), (1, 1, 0), "by another socket");
        book.take(1, &answer, now);
        assert_eq!((book.open, book.wrong, &book.latencies[..]), (0, 1, &[3_000_000][..]));
        book.take(1, &answer, now);
        assert_eq!((book.open, book.wrong, book.latencies.len()), (0, 2, 1), "once more");
        assert_eq!((book.last, book.silence), (now, now), "only the right one ends the silence");
    }

    #[test]
    fn no_two_questions_that_wait_share_socket_and_id() {
        let book = Book::new(LOAD, 77);
        let mut places: Vec<_> = (0..(SOCKETS * IDS) as u64).map(|question| book.place(question)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), SOCKETS * IDS);
    }

    #[test]
    fn absences_are_taken_out_of_the_clock() {
        let mut clock = Clock::start();
        let times = [1, 2, 52, 53].map(|at| clock.tell(Duration::from_millis(at)).as_millis());
        assert_eq!((times, clock.away.as_millis()), ([1, 2, 2, 3], 50));
    }

    #[test]
    fn fresh_names_are_never_known_ones() {
        let numbers = [0, 1, 18, 19, 20].map(|question| Names::Known(10).asked(question).number);
        assert_eq!(numbers, [0, 0, 9, 9, 0]);
        assert!(Names::Random(7).asked(123).number < 7);
        assert!(Names::Fresh.asked(0).number > 1_000_000);
    }
}
