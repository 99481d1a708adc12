//! One agent takes over from another: the sockets where DNS is served pass from
//! process to process, with the questions that wait in them.
//!
//! ```text
//! new  reads and compiles ── asks ·························· sockets ── waits for its end ── adopts the table, serves
//! old                          takes no more, finishes what is under way ──┘ ends
//! ```

use namewall_dns::{Listen, Sockets};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde_json::{Value, json};
use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Sockets that fit into one message.
const MOST_SOCKETS: usize = 250;
/// How long the running agent may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    #[error("the namewall that runs does not answer")]
    Ask(#[source] io::Error),
    #[error("the namewall that runs does not hand over")]
    Receive(#[source] io::Error),
    #[error("the namewall that runs does not hand over")]
    Unreadable(#[source] serde_json::Error),
    #[error("{0}")]
    Refused(String),
    #[error("the namewall that runs handed over something else than its sockets")]
    NotItsSockets,
    #[error("the namewall that runs does not end")]
    StillRuns(#[source] io::Error),
    #[error("it has too many sockets to hand over")]
    TooMany,
    #[error("cannot hand over")]
    Send(#[source] io::Error),
}

/// Asks the agent at this control socket to hand over, and waits until it has ended.
pub(crate) fn take_over(control: &Path) -> Result<Vec<(Sockets, Listen)>, TakeoverError> {
    let Ok(mut stream) = UnixStream::connect(control) else { return Ok(Vec::new()) };
    stream.set_read_timeout(Some(TIMEOUT)).map_err(TakeoverError::Ask)?;
    writeln!(stream, "{}", json!({"handOver": true})).map_err(TakeoverError::Ask)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let text = receive(&stream, &mut descriptors)?;
    let listed = read_list(&text)?;
    let expected: usize = listed.iter().map(Listed::sockets).sum();
    while descriptors.len() < expected {
        let before = descriptors.len();
        receive(&stream, &mut descriptors)?;
        if descriptors.len() == before {
            return Err(TakeoverError::NotItsSockets);
        }
    }
    let sockets = put_together(&listed, descriptors)?;
    // The table can be claimed when the other process is gone.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).map_err(TakeoverError::StillRuns)?;
    Ok(sockets)
}

/// Receives one message: its bytes, and the descriptors that came with it.
fn receive(stream: &UnixStream, descriptors: &mut Vec<OwnedFd>) -> Result<Vec<u8>, TakeoverError> {
    let mut text = vec![0; 64 << 10];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .map_err(|errno| TakeoverError::Receive(errno.into()))?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    text.truncate(received.bytes);
    Ok(text)
}

/// An address whose sockets are handed over.
#[derive(Debug)]
struct Listed {
    listen: Listen,
    /// Sockets of further loops.
    others: usize,
}

impl Listed {
    /// One for UDP, one for TCP, and those of further loops.
    fn sockets(&self) -> usize {
        self.others.saturating_add(2)
    }
}

fn read_list(text: &[u8]) -> Result<Vec<Listed>, TakeoverError> {
    let answer: Value = serde_json::from_slice(text).map_err(TakeoverError::Unreadable)?;
    if let Some(error) = answer["error"].as_str() {
        return Err(TakeoverError::Refused(error.to_owned()));
    }
    let listed = answer["sockets"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(|one| {
        let address = |key: &str| -> Option<SocketAddr> { one[key].as_str().and_then(|text| text.parse().ok()) };
        let is_open = one["open"].as_bool() == Some(true);
        let listen = Listen { address: address("address")?, meant: address("meant"), is_open };
        // An older version has one loop, and does not say so.
        let others = one["others"].as_u64().unwrap_or(0).min(MOST_SOCKETS as u64);
        Some(Listed { listen, others: usize::try_from(others).ok()? })
    });
    listed.collect::<Option<_>>().ok_or(TakeoverError::NotItsSockets)
}

/// First come the two sockets of each address, then those of further loops. So an older version, which reads one
/// message, finds what it knows.
fn put_together(listed: &[Listed], descriptors: Vec<OwnedFd>) -> Result<Vec<(Sockets, Listen)>, TakeoverError> {
    if descriptors.len() != listed.iter().map(Listed::sockets).sum::<usize>() {
        return Err(TakeoverError::NotItsSockets);
    }
    let mut descriptors = descriptors.into_iter();
    let mut sockets = Vec::new();
    for one in listed {
        let (Some(udp), Some(tcp)) = (descriptors.next(), descriptors.next()) else {
            return Err(TakeoverError::NotItsSockets);
        };
        let (udp, tcp) = (UdpSocket::from(udp), TcpListener::from(tcp));
        sockets.push((Sockets { udp, tcp, others: Vec::new() }, one.listen));
    }
    for ((own, _), one) in sockets.iter_mut().zip(listed) {
        own.others = descriptors.by_ref().take(one.others).map(UdpSocket::from).collect();
    }
    Ok(sockets)
}

/// Hands the sockets to the agent at the other end, in as many messages as it takes.
pub(crate) fn hand_over(stream: &UnixStream, sockets: &[(Sockets, Listen)]) -> Result<(), TakeoverError> {
    let listed = sockets.iter().map(|(own, Listen { address, meant, is_open })| {
        let (address, meant) = (address.to_string(), meant.map(|server| server.to_string()));
        json!({"address": address, "meant": meant, "open": is_open, "others": own.others.len()})
    });
    let text = json!({"sockets": listed.collect::<Vec<_>>()}).to_string();
    let first: Vec<BorrowedFd<'_>> = sockets.iter().flat_map(|(own, _)| [own.udp.as_fd(), own.tcp.as_fd()]).collect();
    let others: Vec<BorrowedFd<'_>> = sockets.iter().flat_map(|(own, _)| own.others.iter().map(AsFd::as_fd)).collect();
    let mut messages = first.chunks(MOST_SOCKETS).chain(others.chunks(MOST_SOCKETS));
    send(stream, text.as_bytes(), messages.next().unwrap_or_default())?;
    // A message has at least one byte.
    messages.try_for_each(|some| send(stream, b"\n", some))
}

fn send(stream: &UnixStream, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), TakeoverError> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(TakeoverError::TooMany);
    }
    sendmsg(stream, &[IoSlice::new(text)], &mut ancillary, SendFlags::empty())
        .map_err(|errno| TakeoverError::Send(errno.into()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    fn sockets() -> (Sockets, Listen) {
        let bound = Sockets::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = bound.udp.local_addr().expect("its address");
        (bound, Listen { address, meant: Some(([10, 96, 0, 10], 53).into()), is_open: true })
    }

    #[test]
    fn sockets_pass_with_what_waits_in_them() {
        let path = std::env::temp_dir().join(format!("namewall-takeover-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a socket");
        let (own, listen) = sockets();
        let client = UdpSocket::bind("127.0.0.1:0").expect("a client");
        client.send_to(b"waits", listen.address).expect("it is sent");
        let old = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("somebody asks");
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).expect("a question");
            assert_eq!(question, "{\"handOver\":true}\n");
            hand_over(&stream, &[(own, listen)]).expect("it is handed over");
        });
        let taken = take_over(&path);
        old.join().expect("it ends well");
        std::fs::remove_file(&path).ok();
        let [(taken, at)] = <[_; 1]>::try_from(taken.expect("it is taken over")).expect("one pair of sockets");
        assert_eq!(at, listen);
        let mut buffer = [0; 16];
        let count = taken.udp.recv(&mut buffer).expect("what waited");
        assert_eq!(&buffer[..count], b"waits");
    }

    /// More addresses and more loops than fit into one message, with a datagram in each socket of each.
    #[test]
    fn sockets_of_many_loops_pass_in_several_messages() {
        let (from, to) = UnixStream::pair().expect("a pair");
        let unbound = || UdpSocket::bind("127.0.0.1:0").expect("a port");
        let mut all: Vec<(Sockets, Listen)> = (0..130).map(|_| sockets()).collect();
        all.iter_mut().for_each(|(own, _)| own.others = vec![unbound(), unbound(), unbound()]);
        let ports = |all: &[(Sockets, Listen)]| -> Vec<u16> {
            let own = |own: &Sockets| -> Vec<u16> {
                let udp = std::iter::once(&own.udp).chain(&own.others);
                udp.map(|udp| udp.local_addr().expect("its address").port()).collect()
            };
            all.iter().flat_map(|(sockets, _)| own(sockets)).collect()
        };
        let expected = ports(&all);
        let old = thread::spawn(move || hand_over(&from, &all).expect("it is handed over"));
        let mut descriptors = Vec::new();
        let listed = read_list(&receive(&to, &mut descriptors).expect("a message")).expect("a list");
        assert_eq!(descriptors.len(), MOST_SOCKETS, "the first message has sockets of UDP and TCP only");
        while descriptors.len() < listed.iter().map(Listed::sockets).sum::<usize>() {
            receive(&to, &mut descriptors).expect("a message");
        }
        old.join().expect("it ends well");
        assert_eq!(ports(&put_together(&listed, descriptors).expect("all are there")), expected);
    }

    #[test]
    fn an_answer_without_its_sockets_is_an_error() {
        let read = |text: &str| {
            read_list(text.as_bytes()).and_then(|listed| put_together(&listed, Vec::new())).map(|sockets| sockets.len())
        };
        assert!(matches!(read("no json"), Err(TakeoverError::Unreadable(_))));
        assert!(matches!(read(r#"{"error": "busy"}"#), Err(TakeoverError::Refused(why)) if why == "busy"));
        let one = r#"{"sockets": [{"address": "127.0.0.1:53"}]}"#;
        assert!(matches!(read(one), Err(TakeoverError::NotItsSockets)));
        assert!(matches!(read(r#"{"sockets": []}"#), Ok(0)));
    }

    #[test]
    fn nobody_to_take_over_from_leaves_no_sockets() {
        let nobody = take_over(Path::new("/nonexistent/run.sock")).expect("that is no error");
        assert!(nobody.is_empty());
    }
}
