//! The world's DNS: every name has an address, and a TTL of its own.

use anyhow::Result;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

const HEADER: usize = 12;
const ADDRESS: u16 = 1;
/// TTLs are from here to twice as much, so that names are due at all times.
const SHORTEST: u32 = 60;

/// When each name was last asked for.
type Asked = Arc<Mutex<HashMap<String, SystemTime>>>;

#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) at: SocketAddr,
    asked: Asked,
}

impl Stub {
    /// Answers until the process ends.
    pub(crate) fn start() -> Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let (at, asked) = (socket.local_addr()?, Asked::default());
        let shared = asked.clone();
        std::thread::Builder::new().name("stub".to_owned()).spawn(move || serve(&socket, &shared))?;
        Ok(Self { at, asked })
    }

    /// With its last dot.
    pub(crate) fn last_asked(&self, name: &str) -> Option<SystemTime> {
        lock(&self.asked).get(name).copied()
    }
}

fn lock(asked: &Asked) -> MutexGuard<'_, HashMap<String, SystemTime>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(socket: &UdpSocket, asked: &Asked) {
    let mut buffer = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let Some((name, kind, question)) = question(&buffer[..length]) else { continue };
        if kind == ADDRESS {
            lock(asked).insert(name.clone(), SystemTime::now());
        }
        // Whoever does not hear it asks again.
        let _ = socket.send_to(&answer(question, &name, kind), from);
    }
}

/// The name, the type, and all up to the end of the question.
fn question(query: &[u8]) -> Option<(String, u16, &[u8])> {
    let (mut at, mut name) = (HEADER, String::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        name.push_str(std::str::from_utf8(query.get(at..at + length)?).ok()?);
        name.push('.');
        at += length;
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    Some((name.to_ascii_lowercase(), kind, query.get(..at + 4)?))
}

fn answer(question: &[u8], name: &str, kind: u16) -> Vec<u8> {
    let number = name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let answers = u8::from(kind == ADDRESS);
    let mut answer = question.to_vec();
    // An answer, recursion asked for and there; one question, and no more than addresses.
    answer[2..HEADER].copy_from_slice(&[0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0]);
    if kind == ADDRESS {
        answer.extend([0xc0, 12, 0, 1, 0, 1]);
        answer.extend((SHORTEST + number % SHORTEST).to_be_bytes());
        answer.extend([0, 4, 11, (number >> 16) as u8, (number >> 8) as u8, number as u8]);
    }
    answer
}
