//! One agent takes over from another: the sockets where DNS is served pass from
//! process to process, with the questions that wait in them and those that are
//! not answered yet.
//!
//! ```text
//! new  reads and compiles ── asks ·············· sockets, questions ── confirms ── waits for its end ── adopts, serves
//! old                          takes no more, ────────┘                     └──── ends
//!                              finishes what it can
//! ```
//! If the new process ends before it has confirmed, the old one goes on.

use namewall_dns::{Left, Listen, Sockets, Unanswered};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, sendmsg,
};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read as _, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Sockets that fit into one message.
const MOST_SOCKETS: usize = 250;
/// The longest line of questions: as many as may be under way, of usual lengths.
const LONGEST_LINE: u64 = 64 << 20;
/// How long an agent that takes over has to confirm. Nobody serves DNS meanwhile.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(3);
/// How long the other agent may take to answer.
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
    #[error("the namewall that runs handed over something else than its questions")]
    NotItsQuestions,
    #[error("the namewall that runs does not end")]
    StillRuns(#[source] io::Error),
    #[error("it has too many sockets to hand over")]
    TooMany,
    #[error("cannot hand over")]
    Send(#[source] io::Error),
    #[error("the namewall that takes over does not confirm that it has the sockets")]
    Confirm(#[source] io::Error),
}

/// The question of an agent that takes over. It confirms that it has the sockets, which older versions do not.
const QUESTION: &str = r#"{"handOver": true, "confirms": true}"#;
/// What it says when it has them.
const CONFIRMATION: &[u8] = b"taken\n";

/// An agent that wants to take over.
#[derive(Debug)]
pub(crate) struct Successor {
    pub(crate) stream: UnixStream,
    /// Whether it will confirm that it has the sockets.
    pub(crate) confirms: bool,
}

impl Successor {
    /// True while it waits: a process that has ended leaves a stream at its end.
    pub(crate) fn waits(&self) -> bool {
        let mut byte = [0];
        match recv(&self.stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, count)) => count > 0,
            Err(errno) => errno == rustix::io::Errno::AGAIN,
        }
    }

    /// Hands the sockets over, in as many messages as it takes, then the questions. Returns when it has them.
    pub(crate) fn hand_over(&self, left: &Left) -> Result<(), TakeoverError> {
        let stream = &self.stream;
        send_sockets(stream, &left.sockets)?;
        write_questions(stream, &left.questions).map_err(TakeoverError::Send)?;
        if self.confirms {
            stream.set_read_timeout(Some(CONFIRMED_WITHIN)).map_err(TakeoverError::Confirm)?;
            let mut word = [0; CONFIRMATION.len()];
            (&self.stream).read_exact(&mut word).map_err(TakeoverError::Confirm)?;
        }
        Ok(())
    }
}

/// Asks the agent at this control socket to hand over, and waits until it has ended.
pub(crate) fn take_over(control: &Path) -> Result<Left, TakeoverError> {
    let Ok(mut stream) = UnixStream::connect(control) else { return Ok(Left::default()) };
    stream.set_read_timeout(Some(TIMEOUT)).map_err(TakeoverError::Ask)?;
    writeln!(stream, "{QUESTION}").map_err(TakeoverError::Ask)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    let text = receive(&stream, &mut descriptors)?;
    // Where there are no sockets, the next line may be here already.
    let (text, more) = text.split_at(text.iter().position(|&byte| byte == b'\n').map_or(text.len(), |end| end + 1));
    let listed = read_list(text)?;
    let expected: usize = listed.iter().map(Listed::sockets).sum();
    while descriptors.len() < expected {
        let before = descriptors.len();
        receive(&stream, &mut descriptors)?;
        if descriptors.len() == before {
            return Err(TakeoverError::NotItsSockets);
        }
    }
    let sockets = put_together(&listed, descriptors)?;
    let mut rest = BufReader::new(more.chain(&stream));
    // An older version leaves no questions: it ends.
    let questions = read_questions(&mut rest)?;
    // An older version has ended already.
    let _ = (&stream).write_all(CONFIRMATION);
    // The table can be claimed when the other process is gone.
    rest.read_to_end(&mut Vec::new()).map_err(TakeoverError::StillRuns)?;
    Ok(Left { sockets, questions })
}

/// Writes questions as a line.
fn write_questions(mut to: impl Write, questions: &[Unanswered]) -> io::Result<()> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let one = |one: &Unanswered| json!([one.at.to_string(), one.from.to_string(), hex(&one.query)]);
    let mut line = json!({"questions": questions.iter().map(one).collect::<Vec<_>>()}).to_string();
    line.push('\n');
    to.write_all(line.as_bytes())
}

/// Reads a line of questions. There are none at the end of a stream.
fn read_questions(from: impl BufRead) -> Result<Vec<Unanswered>, TakeoverError> {
    let mut line = String::new();
    from.take(LONGEST_LINE).read_line(&mut line).map_err(TakeoverError::Receive)?;
    if line.is_empty() {
        return Ok(Vec::new());
    }
    let read: Value = serde_json::from_str(&line).map_err(TakeoverError::Unreadable)?;
    let byte = |two: &[u8]| match (two, std::str::from_utf8(two)) {
        ([_, _], Ok(two)) => u8::from_str_radix(two, 16).ok(),
        _ => None,
    };
    let one = |one: &Value| {
        let address = |at: usize| -> Option<SocketAddr> { one[at].as_str()?.parse().ok() };
        let query = one[2].as_str()?.as_bytes().chunks(2).map(byte).collect::<Option<_>>()?;
        Some(Unanswered { at: address(0)?, from: address(1)?, query })
    };
    let questions = read["questions"].as_array().ok_or(TakeoverError::NotItsQuestions)?;
    questions.iter().map(one).collect::<Option<_>>().ok_or(TakeoverError::NotItsQuestions)
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

/// Sends the sockets, in as many messages as it takes.
fn send_sockets(stream: &UnixStream, sockets: &[(Sockets, Listen)]) -> Result<(), TakeoverError> {
    let listed = sockets.iter().map(|(own, Listen { address, meant, is_open })| {
        let (address, meant) = (address.to_string(), meant.map(|server| server.to_string()));
        json!({"address": address, "meant": meant, "open": is_open, "others": own.others.len()})
    });
    let mut text = json!({"sockets": listed.collect::<Vec<_>>()}).to_string();
    text.push('\n');
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
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    fn sockets() -> (Sockets, Listen) {
        let bound = Sockets::bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let address = bound.udp.local_addr().expect("its address");
        (bound, Listen { address, meant: Some(([10, 96, 0, 10], 53).into()), is_open: true })
    }

    /// A process that hands over, or does something else with who asks.
    fn old(name: &str, hands_over: impl FnOnce(Successor) + Send + 'static) -> (PathBuf, thread::JoinHandle<()>) {
        let path = std::env::temp_dir().join(format!("namewall-takeover-{name}-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("a socket");
        let old = thread::spawn(move || {
            let (stream, _) = listener.accept().expect("somebody asks");
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).expect("a question");
            let question: Value = serde_json::from_str(&question).expect("it can be read");
            assert_eq!(question["handOver"], true);
            hands_over(Successor { stream, confirms: question["confirms"] == true });
        });
        (path, old)
    }

    fn question(number: u16) -> Unanswered {
        let (at, from) = (([127, 0, 0, 1], 53).into(), ([10, 0, 0, 1], number).into());
        Unanswered { at, from, query: vec![number as u8; 40] }
    }

    #[test]
    fn sockets_pass_with_what_waits_in_them_and_with_what_is_not_answered() {
        let (own, listen) = sockets();
        let client = UdpSocket::bind("127.0.0.1:0").expect("a client");
        client.send_to(b"waits", listen.address).expect("it is sent");
        // Far more than a socket holds: one process writes while the other reads.
        let questions: Vec<Unanswered> = (0..3_000).map(question).collect();
        let left = Left { sockets: vec![(own, listen)], questions: questions.clone() };
        let (path, old) = old("sockets", move |successor| {
            assert!(successor.waits() && successor.confirms);
            successor.hand_over(&left).expect("it is handed over");
        });
        let taken = take_over(&path);
        old.join().expect("it ends well");
        std::fs::remove_file(&path).ok();
        let taken = taken.expect("it is taken over");
        assert!(taken.questions == questions);
        let [(taken, at)] = <[_; 1]>::try_from(taken.sockets).expect("one pair of sockets");
        assert_eq!(at, listen);
        let mut buffer = [0; 16];
        let count = taken.udp.recv(&mut buffer).expect("what waited");
        assert_eq!(&buffer[..count], b"waits");
    }

    #[test]
    fn where_nothing_is_served_there_is_nothing_to_hand_over() {
        let (path, old) = old("nothing", |successor| successor.hand_over(&Left::default()).expect("it is handed over"));
        let taken = take_over(&path).expect("it is taken over");
        old.join().expect("it ends well");
        std::fs::remove_file(&path).ok();
        assert!(taken.sockets.is_empty() && taken.questions.is_empty());
    }

    /// An older version sends sockets, no questions, and ends.
    #[test]
    fn an_older_version_is_taken_over_from() {
        let (own, listen) = sockets();
        let (path, old) = old("older", move |successor| {
            send_sockets(&successor.stream, &[(own, listen)]).expect("it is handed over");
        });
        let taken = take_over(&path).expect("it is taken over");
        old.join().expect("it ends well");
        std::fs::remove_file(&path).ok();
        assert_eq!((taken.sockets.len(), taken.questions.len()), (1, 0));
    }

    #[test]
    fn a_successor_that_ends_is_noticed_before_and_after_it_has_the_sockets() {
        let left = || Left { sockets: vec![sockets()], questions: vec![question(1)] };
        let (from, to) = UnixStream::pair().expect("a pair");
        let successor = Successor { stream: from, confirms: true };
        assert!(successor.waits());
        drop(to);
        assert!(!successor.waits());
        assert!(matches!(successor.hand_over(&left()), Err(TakeoverError::Send(_))));
        let (from, to) = UnixStream::pair().expect("a pair");
        let ends = thread::spawn(move || {
            receive(&to, &mut Vec::new()).expect("the sockets");
        });
        let handed_over = Successor { stream: from, confirms: true }.hand_over(&left());
        assert!(matches!(handed_over, Err(TakeoverError::Confirm(_) | TakeoverError::Send(_))), "{handed_over:?}");
        ends.join().expect("it ends well");
    }

    #[test]
    fn questions_that_cannot_be_read_are_an_error() {
        let read = |text: &str| read_questions(text.as_bytes()).map(|all| all.len());
        assert!(matches!(read(""), Ok(0)));
        assert!(matches!(read("{\"questions\": []}\n"), Ok(0)));
        assert!(matches!(read("{\"questions\": ["), Err(TakeoverError::Unreadable(_))));
        for wrong in ["{}", r#"{"questions": [1]}"#, r#"{"questions": [["127.0.0.1:53", "10.0.0.1:1", "0"]]}"#] {
            assert!(matches!(read(wrong), Err(TakeoverError::NotItsQuestions)), "{wrong}");
        }
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
        let old = thread::spawn(move || send_sockets(&from, &all).expect("it is handed over"));
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
        assert!(nobody.sockets.is_empty());
    }
}
