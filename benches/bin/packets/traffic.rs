//! The loads: each is a short slice of work on a rig, and tells what one
//! operation of it took of the thread's CPU time.

use crate::rig::Rig;
use anyhow::{Context, Result, ensure};
use namewall_bench::crowd::{PORT, TCP, UDP};
use nix::sys::socket::{MsgFlags, SockaddrIn, sendto, setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// TCP connections that are opened and reset.
    Connections,
    /// The first packets of UDP connections: the node's work and little else.
    FirstPackets,
    /// A byte there and a byte back, over a connection that is open.
    Exchanges,
    /// Bytes over a connection that is open.
    Stream,
}

impl Load {
    pub(crate) const ALL: [Self; 4] = [Self::Connections, Self::FirstPackets, Self::Exchanges, Self::Stream];

    /// How many times as many rounds it takes. Most of a connection is sockets,
    /// so the node's share of it is hard to see.
    pub(crate) fn patience(self) -> usize {
        if self == Self::Connections { 4 } else { 1 }
    }
}

/// The name of its figures.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connections => "connections",
            Self::FirstPackets => "first_packets",
            Self::Exchanges => "exchanges",
            Self::Stream => "stream",
        })
    }
}

const CONNECTIONS: u32 = 200;
const FIRST_PACKETS: u16 = 1_500;
const EXCHANGES: u32 = 400;
/// Of `CHUNK` bytes.
const CHUNKS: u32 = 400;
const CHUNK: usize = 64 << 10;
/// Before the clock starts, this share of a slice.
const WARM_UP: u32 = 10;

impl Load {
    /// Seconds of CPU an operation.
    pub(crate) fn run(self, rig: &Rig) -> Result<f64> {
        match self {
            Self::Connections => rig.client.enter(|| repeat(CONNECTIONS, || connect(rig)))?,
            Self::FirstPackets => first_packets(rig),
            Self::Exchanges => repeat(EXCHANGES, || exchange(rig)),
            Self::Stream => repeat(CHUNKS, || chunk(rig, &mut vec![0; CHUNK])),
        }
    }
}

fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

fn repeat(times: u32, mut one: impl FnMut() -> Result<()>) -> Result<f64> {
    for _ in 0..times.div_ceil(WARM_UP) {
        one()?;
    }
    let start = cpu_time()?;
    for _ in 0..times {
        one()?;
    }
    Ok((cpu_time()? - start).as_secs_f64() / f64::from(times))
}

fn connect(rig: &Rig) -> Result<()> {
    let near = TcpStream::connect((TCP.server, PORT)).context("a connection that is allowed")?;
    let (far, _) = rig.listener.accept()?;
    // A reset: no port waits.
    setsockopt(&near, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })?;
    drop((near, far));
    Ok(())
}

fn exchange(rig: &Rig) -> Result<()> {
    let mut byte = [1];
    for (mut from, mut to) in [(&rig.near, &rig.far), (&rig.far, &rig.near)] {
        from.write_all(&byte)?;
        to.read_exact(&mut byte)?;
    }
    Ok(())
}

fn chunk(rig: &Rig, buffer: &mut [u8]) -> Result<()> {
    let mut near = &rig.near;
    let mut far = &rig.far;
    near.write_all(&buffer[..CHUNK / 2])?;
    far.read_exact(&mut buffer[..CHUNK / 2])?;
    near.write_all(&buffer[CHUNK / 2..])?;
    Ok(far.read_exact(&mut buffer[CHUNK / 2..])?)
}

/// Every packet from another port.
fn first_packets(rig: &Rig) -> Result<f64> {
    let to = SockaddrIn::from(SocketAddrV4::new(UDP.server, PORT));
    let mut packet = datagram();
    let mut port = 1_024;
    let mut send = || -> Result<()> {
        port += 1;
        packet[20..22].copy_from_slice(&u16::to_be_bytes(port));
        sendto(rig.datagrams.as_raw_fd(), &packet, &to, MsgFlags::empty())?;
        Ok(())
    };
    let seconds = repeat(u32::from(FIRST_PACKETS), &mut send)?;
    let mut received = 0;
    loop {
        match rig.receiver.recv(&mut [0; 64]) {
            Ok(_) => received += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    let sent = u32::from(FIRST_PACKETS) + u32::from(FIRST_PACKETS).div_ceil(WARM_UP);
    ensure!(received == sent, "of {sent} datagrams {received} came through {}", rig.filter);
    Ok(seconds)
}

/// IPv4 and UDP around a few bytes. The kernel fills in the sums that matter.
fn datagram() -> Vec<u8> {
    const DATA: u16 = 4;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + 8 + DATA).to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(UDP.client.octets());
    packet.extend(UDP.server.octets());
    for half in [0, PORT, 8 + DATA, 0] {
        packet.extend(half.to_be_bytes());
    }
    packet.extend([0; DATA as usize]);
    packet
}
