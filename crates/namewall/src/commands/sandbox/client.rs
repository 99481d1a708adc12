//! Finding the keeper, starting one, asking it.

use crate::cli::SandboxUp;
use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A keeper that answers.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: PathBuf,
}

/// The variable that tells the keeper which process waits for it.
pub(super) const PARENT: &str = "NAMEWALL_SANDBOX_PARENT";
/// What takes longer than this is told of.
const PROGRESS_AFTER: Duration = Duration::from_secs(1);
const END: Duration = Duration::from_secs(10);

/// Where the keeper's socket is.
pub(crate) fn socket_path() -> Result<PathBuf> {
    Ok(runtime_folder()?.join("sandbox.sock"))
}

/// Where sockets are: in a folder that is this user's alone.
pub(crate) fn runtime_folder() -> Result<PathBuf> {
    let user = geteuid();
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = match (set("NAMEWALL_RUNTIME_DIR"), set("XDG_RUNTIME_DIR")) {
        (Some(folder), _) => folder,
        (None, Some(folder)) if !user.is_root() => folder.join("namewall"),
        _ if user.is_root() => PathBuf::from("/run/namewall"),
        _ => std::env::temp_dir().join(format!("namewall-{user}")),
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let found = std::fs::symlink_metadata(&folder)?;
    if found.uid() != user.as_raw() || !found.is_dir() || found.mode() & 0o022 != 0 {
        bail!("{} is not this user's alone; remove it, or set NAMEWALL_RUNTIME_DIR", folder.display());
    }
    Ok(folder)
}

impl Keeper {
    /// The keeper that runs; what one left that was killed is cleaned up.
    pub(crate) fn find() -> Result<Option<Self>> {
        let socket = socket_path()?;
        match UnixStream::connect(&socket) {
            Ok(_) => Ok(Some(Self { socket })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(&socket).with_context(|| format!("cannot remove {}", socket.display()))?;
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| format!("cannot talk to the sandbox at {}", socket.display())),
        }
    }

    pub(crate) fn ask(&self, question: &Value) -> Result<Value> {
        let mut stream = UnixStream::connect(&self.socket).context("cannot talk to the sandbox")?;
        writeln!(stream, "{question}").context("cannot talk to the sandbox")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).context("the sandbox does not answer")?;
        let answer: Value = serde_json::from_str(&answer).context("the sandbox ended before it had answered")?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }

    /// Ends it, and waits until it has.
    pub(crate) fn stop(&self) -> Result<()> {
        self.ask(&json!({"down": true}))?;
        let start = Instant::now();
        while UnixStream::connect(&self.socket).is_ok() {
            if start.elapsed() > END {
                bail!("the sandbox does not end; end its process by hand");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// Starts a keeper in place of the one there is, and waits until all is up.
pub(crate) fn up(args: &SandboxUp) -> Result<Value> {
    if let Some(old) = Keeper::find()? {
        old.stop()?;
    }
    let own = std::env::current_exe().context("cannot find this program to start it again")?;
    let mut child = Command::new(own)
        .args(["sandbox", "keep"])
        .args(args.as_arguments())
        .env(PARENT, std::process::id().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the process that keeps the sandbox")?;
    let Some(told) = child.stdout.take() else { bail!("the keeper has no output") };
    let start = Instant::now();
    let mut shown = false;
    for line in BufReader::new(told).lines() {
        let told: Value = serde_json::from_str(&line?).context("the keeper speaks in riddles")?;
        if told["ready"].as_bool() == Some(true) {
            clear(shown);
            return Ok(told);
        }
        if start.elapsed() > PROGRESS_AFTER && std::io::stderr().is_terminal() {
            shown = true;
            eprint!("\rbuilding: {} of {}", told["done"], told["total"]);
        }
    }
    clear(shown);
    child.wait()?;
    // It has said why on standard error.
    bail!("the sandbox did not come up");
}

fn clear(shown: bool) {
    if shown {
        eprint!("\r\x1b[K");
    }
}
