//! DNS servers of the world outside, which can be silent, slow, wrong or of
//! different opinions, each by itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

pub(crate) const TTL: u32 = 5;
const HEADER: usize = 12;
const ADDRESS: u16 = 1;
const NO_ERROR: u8 = 0;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
/// The address that no name has.
pub(crate) const NEVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);
/// The address of every name of a flood.
const FLOOD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 250);

/// How a server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mood {
    Honest,
    Silent,
    Slow(Duration),
    /// It says that it cannot answer.
    Failing,
    /// It says that no name exists.
    Lying,
    /// It says that every name is at an address that is no name's.
    Forging,
    /// It knows only the first, or only the last, address of a name.
    First,
    Last,
}

/// What names resolve to, and how each server answers. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Dns(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    names: BTreeMap<String, Vec<Ipv4Addr>>,
    moods: BTreeMap<IpAddr, Mood>,
}

struct Query<'q> {
    bytes: &'q [u8],
    from: SocketAddr,
}

impl Dns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.lock().names.insert(name.to_owned(), addresses.to_vec());
    }

    pub(crate) fn set_mood(&self, server: IpAddr, mood: Mood) {
        self.lock().moods.insert(server, mood);
    }

    pub(crate) fn names(&self) -> Vec<(String, Vec<Ipv4Addr>)> {
        self.lock().names.iter().map(|(name, addresses)| (name.clone(), addresses.clone())).collect()
    }

    /// Answers as a server, until the process ends.
    pub(crate) fn serve(&self, server: IpAddr, socket: UdpSocket) {
        let dns = self.clone();
        spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                dns.answer(server, &socket, &Query { bytes: &buffer[..length], from });
            }
        });
    }

    fn answer(&self, server: IpAddr, socket: &UdpSocket, query: &Query<'_>) {
        let from = query.from;
        let Some((name, kind, question)) = question(query.bytes) else { return };
        let mood = self.lock().moods.get(&server).copied().unwrap_or(Mood::Honest);
        let known = self.resolve(&name);
        let (rcode, mut addresses) = match (mood, known) {
            (Mood::Failing, _) => (SERVER_FAILURE, Vec::new()),
            (Mood::Forging, _) => (NO_ERROR, vec![NEVER]),
            (Mood::Lying, _) | (_, None) => (NO_SUCH_NAME, Vec::new()),
            (Mood::First, Some(all)) => (NO_ERROR, all.into_iter().take(1).collect()),
            (Mood::Last, Some(all)) => (NO_ERROR, all.into_iter().last().into_iter().collect()),
            (_, Some(all)) => (NO_ERROR, all),
        };
        if kind != ADDRESS {
            addresses.clear();
        }
        let answer = message(question, rcode, &addresses);
        match mood {
            Mood::Silent => {}
            Mood::Slow(time) => {
                let Ok(socket) = socket.try_clone() else { return };
                spawn(move || {
                    sleep(time);
                    _ = socket.send_to(&answer, from);
                });
            }
            // A client that does not hear it asks again.
            _ => _ = socket.send_to(&answer, from),
        }
    }

    fn resolve(&self, name: &str) -> Option<Vec<Ipv4Addr>> {
        let known = self.lock().names.get(name).cloned();
        known.or_else(|| {
            let (label, rest) = name.split_once('.')?;
            let number: u16 = label.strip_prefix('f').or_else(|| label.strip_prefix('n'))?.parse().ok()?;
            let [high, low] = number.to_be_bytes();
            match rest {
                "wild.example" => Some(vec![FLOOD]),
                "many.example" => Some(vec![Ipv4Addr::new(11, 0, high, low)]),
                _ => None,
            }
        })
    }
}

/// The name in lower case, the type, and the message up to the end of the question.
fn question(query: &[u8]) -> Option<(String, u16, &[u8])> {
    let (mut at, mut labels) = (HEADER, Vec::new());
    while let length @ 1.. = usize::from(*query.get(at)?) {
        labels.push(String::from_utf8(query.get(at + 1..at + 1 + length)?.to_vec()).ok()?);
        at += 1 + length;
    }
    let kind = u16::from_be_bytes(query.get(at + 1..at + 3)?.try_into().ok()?);
    Some((labels.join(".").to_ascii_lowercase(), kind, query.get(..at + 5)?))
}

fn message(question: &[u8], rcode: u8, addresses: &[Ipv4Addr]) -> Vec<u8> {
    let mut answer = question.to_vec();
    // A recursive answer, with its rcode; one question, and the addresses.
    answer[2..HEADER].copy_from_slice(&[0x81, 0x80 | rcode, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
    for address in addresses {
        // The name of the question, type A, class IN.
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend(TTL.to_be_bytes());
        answer.extend([0, 4]);
        answer.extend(address.octets());
    }
    answer
}
