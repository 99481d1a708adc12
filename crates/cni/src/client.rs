//! Asking the node's agent over its unix socket.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, connect, sendmsg, socket,
};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, IoSlice, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often an agent that is away is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The agent of this node.
#[derive(Clone, Debug)]
pub struct Agent {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no agent answers at {} within {} s", .socket.display(), .patience.as_secs_f32())]
    Away {
        socket: PathBuf,
        patience: Duration,
        #[source]
        source: io::Error,
    },
    #[error("the agent refuses: {0}")]
    Refused(String),
}

impl Agent {
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Asks, and waits for the answer. An agent that is away is looked for until the time is over: it may be restarting.
    pub fn ask(&self, question: &Value, patience: Duration) -> Result<Value, AskError> {
        self.ask_with(question, &[], patience)
    }

    /// The same, with file descriptors that the agent gets.
    pub fn ask_with(
        &self,
        question: &Value,
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<Value, AskError> {
        let until = Instant::now() + patience;
        loop {
            let source = match self.try_ask(question, descriptors, until) {
                Ok(answer) => {
                    return match answer["error"].as_str() {
                        Some(error) => Err(AskError::Refused(error.to_owned())),
                        None => Ok(answer),
                    };
                }
                Err(error) => error,
            };
            if Instant::now() + LOOK_EVERY >= until {
                return Err(AskError::Away { socket: self.socket.clone(), patience, source });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn try_ask(&self, question: &Value, descriptors: &[BorrowedFd<'_>], until: Instant) -> io::Result<Value> {
        let stream = open(&self.socket)?;
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))?;
        send(&stream, format!("{question}\n").as_bytes(), descriptors)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    }
}

/// Sends a question. File descriptors go with its first byte.
fn send(mut stream: &UnixStream, question: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let control = if numbers.is_empty() { &[][..] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL;
    let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(question)], control, flags, None)?;
    stream.write_all(&question[sent..])
}

/// A connection. It does not wait: the queue of an agent that is stopped may be full.
fn open(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path)?;
    match connect(fd.as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EISCONN) => {}
        Err(errno) => return Err(errno.into()),
    }
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::net::UnixListener;
    use std::thread;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("namewall-cni-{name}-{}", std::process::id()))
    }

    #[test]
    fn an_agent_that_comes_late_is_waited_for() {
        let path = path("late");
        let served = path.clone();
        let agent = thread::spawn(move || {
            thread::sleep(Duration::from_millis(60));
            let listener = UnixListener::bind(&served).expect("a socket");
            // The first one is dropped, as by an agent that ends.
            drop(listener.accept().expect("somebody asks"));
            let (mut stream, _) = listener.accept().expect("it asks again");
            let mut question = String::new();
            BufReader::new(&stream).read_line(&mut question).expect("a question");
            writeln!(stream, "{}", json!({"asked": question.trim()})).expect("it is answered");
        });
        let answer = Agent::at(&path).ask(&json!({"status": {}}), Duration::from_secs(30)).expect("it answers");
        agent.join().expect("it ends well");
        std::fs::remove_file(&path).ok();
        assert_eq!(answer["asked"], r#"{"status":{}}"#);
    }

    #[test]
    fn an_agent_that_is_away_or_silent_is_an_error_in_time() {
        let path = path("away");
        let ask = || Agent::at(&path).ask(&json!({}), Duration::from_millis(100));
        assert!(matches!(ask(), Err(AskError::Away { .. })));
        let _listener = UnixListener::bind(&path).expect("a socket");
        let began = Instant::now();
        assert!(matches!(ask(), Err(AskError::Away { .. })));
        assert!(began.elapsed() < Duration::from_secs(10));
        std::fs::remove_file(&path).ok();
    }
}
