//! Corefiles: the text as settings. Everything that is written is understood or refused, with its place
//! and what would be accepted; nothing is passed over, and no setting does anything here.
//!
//! ```text
//! text ─ lexer ─► words ─ parse (imports) ─► lines ─ form, values ─► directives ─► ServerBlock ─ lint ─► Corefile
//! ```
//!
//! `lexer` and `parse` know the syntax, which is Caddy's as CoreDNS has it; `form` how many words a
//! directive has; `directives` what they mean. Problems are collected on the way, so that all of them are
//! told at once. Files and environment come from the caller.

mod directives;
mod facts;
mod file_span;
mod files;
mod form;
mod key;
mod lexer;
mod lint;
mod lists;
mod parse;
mod problem;
mod selector;
mod server;
mod sources;
mod suggest;
mod values;
mod zone;

pub use directives::*;
pub use facts::{ClientFact, OF_GEOIP, OF_NAMES, is_client_fact};
pub use file_span::{FileSpan, Text};
pub use files::{Files, NoFiles};
pub use key::{Key, Scheme};
pub use problem::{CorefileErrors, Problem};
pub use server::{ConfiguredEngine, EngineSettings, ServerBlock};
pub use sources::NamedFile;
pub use values::{Host, HostPort, HttpUrl, ListenAt, Rcode, Tls};
pub use zone::Zone;

pub use parse::MAX_BYTES;

use parse::World;
use problem::Report;

/// What a Corefile says.
#[derive(Clone, PartialEq, Debug)]
pub struct Corefile {
    pub servers: Vec<ServerBlock>,
    /// What is probably not meant.
    pub warnings: Vec<Problem>,
}

/// Reads a Corefile of a name, which imports are seen from. The environment is asked for variables.
pub fn read(
    name: &str,
    text: &str,
    files: &dyn Files,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Corefile, CorefileErrors> {
    let mut report = Report::default();
    let servers = parse::parse(name, text, World { files, environment }, &mut report);
    let servers: Vec<ServerBlock> = servers.into_iter().map(|server| server::read(server, &mut report)).collect();
    if servers.is_empty() && !report.is_refused() {
        let place = FileSpan { file: name.into(), line: 1, column: 1, length: 1 };
        report
            .error("no-server", &place, "nothing is served: there is no server block")
            .help("write `. {`, its directives and `}`");
    }
    lint::lint(&servers, &mut report);
    report.finish(|warnings| Corefile { servers, warnings })
}
