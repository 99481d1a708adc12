//! Asking a running agent.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// An agent that answers at its control socket.
#[derive(Debug)]
pub struct Running {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("no namewall runs here, or not as this user (looked at {}); start one with `namewall run`", .0.display())]
    NotRunning(PathBuf),
    #[error("namewall does not answer")]
    NoAnswer(#[source] io::Error),
    #[error("namewall ended before it had answered")]
    CutOff(#[source] serde_json::Error),
    #[error("{0}")]
    Refused(String),
}

impl Running {
    pub fn find(socket: &Path) -> Result<Self, AskError> {
        match UnixStream::connect(socket) {
            Ok(_) => Ok(Self { socket: socket.to_owned() }),
            Err(_) => Err(AskError::NotRunning(socket.to_owned())),
        }
    }

    pub fn ask(&self, question: &Value) -> Result<Value, AskError> {
        let mut stream = UnixStream::connect(&self.socket).map_err(AskError::NoAnswer)?;
        writeln!(stream, "{question}").map_err(AskError::NoAnswer)?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).map_err(AskError::NoAnswer)?;
        let answer: Value = serde_json::from_str(&answer).map_err(AskError::CutOff)?;
        match answer["error"].as_str() {
            Some(error) => Err(AskError::Refused(error.to_owned())),
            None => Ok(answer),
        }
    }
}
