//! What a rule says of a question or an answer.

use std::fmt;
use std::net::SocketAddr;

/// The result of a rule, or of a list of them (S9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Nothing: the next rule is asked.
    Undefined,
    Allow,
    /// Written down; the next rule is asked.
    Log,
    /// REFUSED.
    Refuse,
    /// NXDOMAIN.
    Block,
    /// No data, or no reply at all.
    Drop,
    /// Allowed, and asked of this server.
    Redirect(SocketAddr),
}

impl Outcome {
    /// Whether it ends a list.
    pub fn is_defined(self) -> bool {
        !matches!(self, Self::Undefined | Self::Log)
    }

    /// As in a Corefile.
    pub fn word(self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Allow => "allow",
            Self::Log => "log",
            Self::Refuse => "refuse",
            Self::Block => "block",
            Self::Drop => "drop",
            Self::Redirect(_) => "redirect",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        if let Self::Redirect(to) = self { write!(f, " to {to}") } else { Ok(()) }
    }
}
