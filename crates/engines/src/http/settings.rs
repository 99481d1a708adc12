//! Which server is asked over HTTP, and by which certificates.

use std::fmt;
use std::path::PathBuf;

/// The URL of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerUrl {
    /// Whether it is `https`.
    pub is_tls: bool,
    /// `HOST:PORT`, with an IPv6 address in brackets.
    pub host_port: String,
    /// The path, which begins with `/`, and the query.
    pub path: String,
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host_port, self.path)
    }
}

/// The files of certificates for a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// The certificate of the client and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The authority that must have signed the certificate of the server. Without one, the authorities that the
    /// system trusts.
    pub authority: Option<PathBuf>,
}
