//! Sockets to who reads dnstap: of this machine, over TCP, and over TLS.

use namewall_corefile::{Dnstap, Host, HostPort, TapAt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// How long the other side may take for anything.
const STREAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Whom to connect to, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    at: TapAt,
    skips_verification: bool,
    tls: Option<Arc<ClientConfig>>,
}

/// Two that are written alike are the same.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        (&self.at, self.skips_verification) == (&other.at, other.skips_verification)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            TapAt::Unix(path) => write!(f, "{}", path.display()),
            TapAt::Tcp(at) => write!(f, "tcp://{at}"),
            TapAt::Tls(at) => write!(f, "tls://{at}"),
        }
    }
}

impl Target {
    pub(super) fn new(settings: &Dnstap) -> Result<Self, String> {
        let tls = match &settings.to {
            TapAt::Tls(_) => Some(Arc::new(config(settings.skip_verify)?)),
            TapAt::Unix(_) | TapAt::Tcp(_) => None,
        };
        Ok(Self { at: settings.to.clone(), skips_verification: settings.skip_verify, tls })
    }

    pub(super) fn connect(&self) -> io::Result<Stream> {
        match (&self.at, &self.tls) {
            (TapAt::Unix(path), _) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(STREAM_TIMEOUT))?;
                stream.set_write_timeout(Some(STREAM_TIMEOUT))?;
                Ok(Stream::Unix(stream))
            }
            (TapAt::Tcp(at), _) | (TapAt::Tls(at), None) => Ok(Stream::Tcp(connect(at)?)),
            (TapAt::Tls(at), Some(config)) => {
                let name = match &at.host {
                    Host::Address(address) => ServerName::from(*address),
                    Host::Name(name) => ServerName::try_from(name.to_string()).map_err(io::Error::other)?,
                };
                let session = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                Ok(Stream::Tls(Box::new(StreamOwned::new(session, connect(at)?))))
            }
        }
    }
}

fn connect(at: &HostPort) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let host = at.host.to_string();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    for address in (host, at.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, STREAM_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(STREAM_TIMEOUT))?;
                stream.set_write_timeout(Some(STREAM_TIMEOUT))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Who is trusted: those the system trusts, or, where it is asked for, anybody.
fn config(skips_verification: bool) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    if skips_verification {
        let anybody = Arc::new(Anybody(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs).0 == 0 {
        return Err("this system trusts no certificate authority; install ca-certificates".to_owned());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Takes any certificate, of whoever has its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    // Its form is rustls'.
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection.
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Tls(stream) => stream.sock.set_nonblocking(nonblocking),
        }
    }

    /// Whether the other side, of which nothing is expected, has left.
    pub(super) fn is_closed(&mut self) -> bool {
        if self.set_nonblocking(true).is_err() {
            return true;
        }
        let is_open = matches!(self.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.set_nonblocking(false).is_err() || !is_open
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
            Self::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(_) | Self::Tcp(_) => Ok(()),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
