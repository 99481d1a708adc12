//! Asking a running agent.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer is waited for. A process that works answers in milliseconds, on a busy machine in seconds.
const TIMEOUT: Duration = Duration::from_secs(15);

/// An agent that answers at its control socket.
#[derive(Debug)]
pub struct Running {
    socket: PathBuf,
    timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no namewall runs here, or not as this user (looked at {}); start one with `namewall run`", .0.display())]
    NotRunning(PathBuf),
    #[error("namewall runs and does not answer")]
    NoAnswer(#[source] io::Error),
    #[error("namewall runs and has not answered for {} s; its process may be stopped or hang", TIMEOUT.as_secs())]
    Hangs,
    #[error("namewall ended before it had answered")]
    CutOff(#[source] serde_json::Error),
    #[error("{0}")]
    Refused(String),
}

impl Running {
    pub fn find(socket: &Path) -> Result<Self, AskError> {
        match UnixStream::connect(socket) {
            Ok(_) => Ok(Self { socket: socket.to_owned(), timeout: TIMEOUT }),
            Err(_) => Err(AskError::NotRunning(socket.to_owned())),
        }
    }

    pub fn ask(&self, question: &Value) -> Result<Value, AskError> {
        let answer = self.talk(question).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Hangs,
            _ => AskError::NoAnswer(error),
        })?;
        let answer: Value = serde_json::from_str(&answer).map_err(AskError::CutOff)?;
        match answer["error"].as_str() {
            Some(error) => Err(AskError::Refused(error.to_owned())),
            None => Ok(answer),
        }
    }

    fn talk(&self, question: &Value) -> io::Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        writeln!(stream, "{question}")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_that_hangs_is_not_waited_for_without_end() {
        let socket = std::env::temp_dir().join(format!("namewall-hangs-{}", std::process::id()));
        let _listener = UnixListener::bind(&socket).expect("a socket");
        let running = Running { timeout: Duration::from_millis(10), ..Running::find(&socket).expect("it runs") };
        let answer = running.ask(&serde_json::json!({"status": {}}));
        std::fs::remove_file(&socket).expect("it is there");
        assert!(matches!(answer, Err(AskError::Hangs)), "{answer:?}");
    }
}
