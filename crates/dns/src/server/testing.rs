//! Sequences of events through the engine, without threads and in a time that the sequence says: questions of two
//! clients, replies of two upstreams, genuine, changed and made up, timers, commits that fail, reloads. What must hold
//! is checked after each sequence.

use super::crew::Crew;
use super::engine::{Engine, Sockets};
use super::settings::{Listen, Settings};
use crate::learn::{Answer, Learn, LearnError, Opens};
use crate::wire::{HEADER, Question};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: [&[u8]; 4] = [b"\x03www\x07example\0", b"\x03wWw\x07exAMPle\0", b"\x01a\0", b"\x011\x012\0"];
const TRY: Duration = Duration::from_millis(100);
/// More steps would only repeat what fewer show.
const MOST_STEPS: usize = 200;

/// Opens what half of the answers say.
#[derive(Debug, Default)]
struct Half;

impl Learn for Half {
    type Batch = usize;

    fn learn(&self, answer: &Answer<'_>, batch: &mut usize) -> Opens {
        let Ok(says) = answer.addresses() else { return Opens::Unreadable };
        *batch += says.addresses.len();
        if says.addresses.len() % 2 == 1 { Opens::New } else { Opens::Nothing }
    }

    fn commit(&self, _: &mut usize) -> Result<(), LearnError> {
        Ok(())
    }
}

/// The bytes of a sequence, taken one after the other; zero when there are none left.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn take(&mut self, count: u8) -> &'a [u8] {
        let (some, rest) = self.0.split_at(self.0.len().min(count.into()));
        self.0 = rest;
        some
    }
}

struct Play {
    engine: Engine<Half>,
    settings: Settings,
    clients: [UdpSocket; 2],
    upstreams: [UdpSocket; 2],
    /// What clients have asked, as bytes.
    asked: Vec<Vec<u8>>,
    /// What upstreams were asked, and from where.
    heard: Vec<(usize, SocketAddr, Vec<u8>)>,
    now: Instant,
    commits_fail: bool,
}

fn socket(address: [u8; 4]) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::from((address, 0)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Play {
    fn new() -> io::Result<Self> {
        let upstreams = [socket([127, 0, 0, 1])?, socket([127, 0, 0, 1])?];
        let sockets = Sockets::bind(([127, 0, 0, 1], 0).into())?;
        let address = sockets.udp.local_addr()?;
        let listen = Listen::from(address);
        let clients = [socket([127, 0, 0, 1])?, socket([127, 0, 0, 2])?];
        clients.iter().try_for_each(|client| client.connect(address))?;
        let settings = Settings {
            listen: vec![listen],
            upstreams: vec![upstreams[0].local_addr()?],
            try_timeout: TRY,
            tries: 2,
            most_queries: 8,
            ..Settings::default()
        };
        let shares = sockets.share(1)?.into_iter().flatten().map(|share| (share, listen)).collect();
        let crew = Crew::of(1)?.remove(0);
        let engine = Engine::new(settings.clone(), shares, Arc::new(Half), crew)?;
        let (asked, heard) = (Vec::new(), Vec::new());
        Ok(Self { engine, settings, clients, upstreams, asked, heard, now: Instant::now(), commits_fail: false })
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let kind = bytes.next();
        let which = usize::from(kind >> 7);
        match kind & 7 {
            0 | 1 => {
                let mut query = vec![0, bytes.next(), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
                query.extend_from_slice(NAMES[usize::from(bytes.next()) % NAMES.len()]);
                query.extend([0, [1, 28][usize::from(kind >> 6 & 1)], 0, 1]);
                if kind & 0x20 != 0 {
                    query[11] = 1;
                    query.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
                }
                let _ = self.clients[which].send(&query);
                self.asked.push(query);
            }
            2 => {
                let (count, mut query) = (bytes.next(), Vec::new());
                query.extend_from_slice(bytes.take(count));
                let _ = self.clients[which].send(&query);
                self.asked.push(query);
            }
            3 | 4 => {
                let Some((from, to, query)) = self.heard.get(usize::from(bytes.next()) % self.heard.len().max(1))
                else {
                    return;
                };
                let mut reply = query.clone();
                reply[2] |= 0x80;
                reply[7] = 1;
                reply[11] = 0;
                let end = Question::end(query).unwrap_or(query.len());
                reply.truncate(end);
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, bytes.next()]);
                if kind & 7 == 4 {
                    let at = usize::from(bytes.next()) % reply.len();
                    reply[at] ^= bytes.next();
                    reply.truncate(reply.len() - usize::from(bytes.next()) % 8);
                }
                let _ = self.upstreams[*from].send_to(&reply, to);
            }
            5 => {
                let (reply, to) = (bytes.next(), self.heard.last());
                let reply = bytes.take(reply);
                to.iter().for_each(|(from, to, _)| _ = self.upstreams[*from].send_to(reply, to));
            }
            6 => self.now += Duration::from_millis(u64::from(bytes.next()) * 8),
            _ => {
                self.commits_fail = kind & 0x40 != 0;
                let own: Vec<SocketAddr> = self.upstreams.iter().filter_map(|one| one.local_addr().ok()).collect();
                self.settings.upstreams = match kind >> 3 & 3 {
                    0 => vec![own[0]],
                    1 => vec![own[1]],
                    2 => own,
                    _ => vec![own[1], own[0]],
                };
                self.engine.set(self.settings.clone());
            }
        }
    }

    /// Lets the engine deal with what has come, and takes what it sends.
    fn turn(&mut self) {
        self.engine.turn_at(self.now).expect("a turn ends well");
        if self.engine.must_commit() {
            let (_, tickets) = self.engine.take_batch();
            let done = if self.commits_fail { Err(LearnError("no".into())) } else { Ok(()) };
            self.engine.release(&tickets, &done);
            self.engine.finish().expect("a turn ends well");
        }
        let mut buffer = [0; 4_096];
        for (number, upstream) in self.upstreams.iter().enumerate() {
            while let Ok((length, from)) = upstream.recv_from(&mut buffer) {
                self.heard.push((number, from, buffer[..length].to_vec()));
            }
        }
        for client in &self.clients {
            while let Ok(length) = client.recv(&mut buffer) {
                self.check(&buffer[..length]);
            }
        }
    }

    /// A reply must have the id and the spelling of a question that was asked.
    fn check(&self, reply: &[u8]) {
        let is_of = |query: &Vec<u8>| {
            let end = Question::end(query).unwrap_or(HEADER);
            query.get(..2) == reply.get(..2) && query.get(HEADER..end) == reply.get(HEADER..end)
        };
        assert!(self.asked.iter().any(is_of), "{reply:02x?} is no reply to {:02x?}", self.asked);
    }
}

/// Plays a sequence. Panics where a promise is broken.
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "only fuzz targets use it from elsewhere"))]
pub fn play(bytes: &[u8]) {
    let mut play = Play::new().expect("there are sockets on loopback");
    let mut bytes = Bytes(bytes);
    for _ in 0..MOST_STEPS {
        if bytes.0.is_empty() {
            break;
        }
        play.step(&mut bytes);
        play.turn();
    }
    // Whatever came before, everything ends in time.
    for _ in 0..64 {
        play.now += TRY * 2;
        play.turn();
    }
    play.engine.check_at_rest();
}

#[cfg(test)]
mod tests {
    use super::play;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_sequence_ends_and_leaves_nothing_behind(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            play(&bytes);
        }

        /// More questions than there are places, and few names: many are joined, and some of them give way.
        #[test]
        fn questions_that_are_joined_or_give_way_leave_nothing_behind(
            steps in proptest::collection::vec((any::<bool>(), 0u8..10, 0u8..4, any::<u8>()), 0..60),
        ) {
            let steps = steps.into_iter().map(|(second, kind, name, id)| match kind {
                0..7 => [u8::from(second) << 7, id, name],
                7 => [3, id, name],
                8 => [7 | name << 3, 3, id],
                _ => [6, id / 8, 7],
            });
            play(&steps.flatten().collect::<Vec<u8>>());
        }
    }
}
