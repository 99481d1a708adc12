//! Questions over many sockets, at a rate or as many as are answered, each held against what must be answered.

use crate::objects::{Cluster, Expected};
use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const SOCKETS: usize = 32;
const IDS: usize = 1 << 16;
const BUFFER: usize = 4 << 20;
/// After so long without any answer those that are missing are lost.
const SILENCE: Duration = Duration::from_millis(500);
/// Questions of a round, made before it begins.
const PREPARED: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Questions a second; as many as are answered without it.
    pub(crate) rate: Option<u32>,
    /// So many may wait for their answers.
    pub(crate) most_open: usize,
    pub(crate) lasts: Duration,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) answered: u64,
    pub(crate) lost: u64,
    pub(crate) wrong: u64,
}

impl Load {
    pub(crate) fn run(self, to: SocketAddr, cluster: &Cluster, round: usize) -> Result<Outcome> {
        let open = |_| -> Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_nonblocking(true)?;
            // Beyond the limit of the machine only root may go.
            let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER);
            socket.connect(to)?;
            Ok(socket)
        };
        let sockets: Vec<UdpSocket> = (0..SOCKETS).map(open).collect::<Result<_>>().context("cannot open sockets")?;
        let first = round as u64 * PREPARED;
        let mut questions: Vec<_> = (first..first + PREPARED).map(|number| cluster.question(number)).collect();
        let mut waiting: Vec<Option<Expected>> = vec![None; SOCKETS * IDS];
        let (mut sent, mut open, mut outcome) = (0u64, 0usize, Outcome::default());
        let (start, mut active) = (Instant::now(), Instant::now());
        let mut buffer = [0; 4_096];
        loop {
            let elapsed = start.elapsed();
            let due = match self.rate {
                _ if elapsed > self.lasts => sent,
                Some(rate) => (elapsed.as_secs_f64() * f64::from(rate)) as u64,
                None => u64::MAX,
            };
            // A few at a time, so that answers are taken in between.
            let until = due.min(sent + 64);
            while sent < until && open < self.most_open {
                let question = &mut questions[(sent % PREPARED) as usize];
                let (socket, id) = ((sent % SOCKETS as u64) as usize, (sent / SOCKETS as u64) as u16);
                question.bytes[..2].copy_from_slice(&id.to_be_bytes());
                sockets[socket].send(&question.bytes).context("nobody listens there")?;
                waiting[socket * IDS + usize::from(id)] = Some(question.expected);
                (sent, open, active) = (sent + 1, open + 1, Instant::now());
            }
            let mut polled: Vec<_> = sockets.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)).collect();
            poll(&mut polled, PollTimeout::ZERO)?;
            let ready: Vec<bool> = polled.iter().map(|one| one.any() == Some(true)).collect();
            for (at, socket) in sockets.iter().enumerate().filter(|(at, _)| ready[*at]) {
                loop {
                    match socket.recv(&mut buffer) {
                        Ok(length) if length >= 2 => {
                            let id = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
                            match waiting[at * IDS + id].take() {
                                Some(expected) if expected.is(&buffer[..length]) => outcome.answered += 1,
                                _ => outcome.wrong += 1,
                            }
                            open = open.saturating_sub(1);
                            active = Instant::now();
                        }
                        Ok(_) => outcome.wrong += 1,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error).context("nobody listens there any more"),
                    }
                }
            }
            if elapsed > self.lasts && (open == 0 || active.elapsed() > SILENCE) {
                return Ok(Outcome { lost: open as u64, ..outcome });
            }
            if open >= self.most_open && active.elapsed() > SILENCE {
                // They were lost, and others are asked.
                outcome.lost += open as u64;
                waiting.fill(None);
                open = 0;
            }
        }
    }
}
