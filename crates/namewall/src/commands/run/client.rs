//! Finding the namewall that runs here, and asking it.

use crate::commands::sandbox::runtime_folder;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct Running {
    socket: PathBuf,
}

pub(super) fn socket_path() -> Result<PathBuf> {
    Ok(runtime_folder()?.join("run.sock"))
}

impl Running {
    pub(crate) fn find() -> Result<Self> {
        let socket = socket_path()?;
        match UnixStream::connect(&socket) {
            Ok(_) => Ok(Self { socket }),
            Err(_) => bail!(
                "no namewall runs here, or not as this user (looked at {}); start one with `namewall run`",
                socket.display()
            ),
        }
    }

    pub(crate) fn ask(&self, question: &Value) -> Result<Value> {
        let mut stream = UnixStream::connect(&self.socket).context("namewall does not answer")?;
        writeln!(stream, "{question}").context("namewall does not answer")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).context("namewall does not answer")?;
        let answer: Value = serde_json::from_str(&answer).context("namewall ended before it had answered")?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}
