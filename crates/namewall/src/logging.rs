//! The log of commands that go on until they are ended: lines with a time, a
//! level, where they come from, and fields, on standard error.

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// What is logged unless `RUST_LOG` says otherwise. Libraries have a lot to say.
const USUAL: &str = "warn,namewall=info,namewall_agent=info,namewall_controller=info,namewall_kubernetes=info";

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Logging {
    /// How lines of the log are written; RUST_LOG sets what is logged, like RUST_LOG=debug
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    /// Text for people
    Text,
    /// One JSON object a line
    Json,
}

impl Logging {
    pub(crate) fn start(self) -> Result<()> {
        let filter = match std::env::var("RUST_LOG") {
            Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
                .with_context(|| format!("RUST_LOG={text} is no filter like info or namewall=debug"))?,
            _ => EnvFilter::new(USUAL),
        };
        let log = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        // Only who starts the process calls this, and once.
        match self.log_format {
            LogFormat::Text => log.try_init(),
            LogFormat::Json => log.json().flatten_event(true).try_init(),
        }
        .map_err(|error| anyhow::anyhow!("cannot start the log: {error}"))
    }
}
