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
    let mut text = vec![0; 64 << 10];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let received = recvmsg(&stream, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .map_err(|errno| TakeoverError::Receive(errno.into()))?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    let sockets = read_sockets(&text[..received.bytes], descriptors)?;
    // The table can be claimed when the other process is gone.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).map_err(TakeoverError::StillRuns)?;
    Ok(sockets)
}

fn read_sockets(text: &[u8], descriptors: Vec<OwnedFd>) -> Result<Vec<(Sockets, Listen)>, TakeoverError> {
    let answer: Value = serde_json::from_slice(text).map_err(TakeoverError::Unreadable)?;
    if let Some(error) = answer["error"].as_str() {
        return Err(TakeoverError::Refused(error.to_owned()));
    }
    let listed = answer["sockets"].as_array().map(Vec::as_slice).unwrap_or_default();
    if descriptors.len() != 2 * listed.len() {
        return Err(TakeoverError::NotItsSockets);
    }
    let mut descriptors = descriptors.into_iter();
    let mut sockets = Vec::new();
    for one in listed {
        let address = |key: &str| -> Option<SocketAddr> { one[key].as_str().and_then(|text| text.parse().ok()) };
        let (Some(udp), Some(tcp), Some(at)) = (descriptors.next(), descriptors.next(), address("address")) else {
            return Err(TakeoverError::NotItsSockets);
        };
        let own = Sockets { udp: UdpSocket::from(udp), tcp: TcpListener::from(tcp) };
        let is_open = one["open"].as_bool() == Some(true);
        sockets.push((own, Listen { address: at, meant: address("meant"), is_open }));
    }
    Ok(sockets)
}

/// Hands the sockets to the agent at the other end.
pub(crate) fn hand_over(stream: &UnixStream, sockets: &[(Sockets, Listen)]) -> Result<(), TakeoverError> {
    if 2 * sockets.len() > MOST_SOCKETS {
        return Err(TakeoverError::TooMany);
    }
    let listed = sockets.iter().map(|(_, Listen { address, meant, is_open })| {
        json!({"address": address.to_string(), "meant": meant.map(|server| server.to_string()), "open": is_open})
    });
    let text = json!({"sockets": listed.collect::<Vec<_>>()}).to_string();
    let descriptors: Vec<BorrowedFd<'_>> =
        sockets.iter().flat_map(|(own, _)| [own.udp.as_fd(), own.tcp.as_fd()]).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(TakeoverError::TooMany);
    }
    sendmsg(stream, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::empty())
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

    #[test]
    fn an_answer_without_its_sockets_is_an_error() {
        let read = |text: &str| read_sockets(text.as_bytes(), Vec::new()).map(|sockets| sockets.len());
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
