//! Certificates, servers that show them, and clients that trust them.

use crate::stub::{TEST_TIMEOUT, plain, query};
use namewall_dns::{EncryptedListen, Learn, LearnNothing, Server, Settings, Transport};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, socket};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

pub(crate) const NAME: &str = "dns.example";

/// Who signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([NAME.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    pub(crate) fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.0.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A server with a listener for each, on loopback.
pub(crate) struct Encrypted<L: Learn = LearnNothing> {
    pub(crate) server: Server<L>,
    pub(crate) authority: Authority,
    pub(crate) tls: SocketAddr,
    pub(crate) https: SocketAddr,
}

impl Encrypted {
    pub(crate) fn start(settings: Settings) -> Self {
        Self::learning(settings, plain())
    }
}

impl<L: Learn + 'static> Encrypted<L>
where
    L::Batch: 'static,
{
    pub(crate) fn learning(settings: Settings, learner: Arc<L>) -> Self {
        let mut server = Server::start(settings, learner).unwrap();
        let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [tls, https] = sockets.each_ref().map(|socket| socket.local_addr().unwrap());
        let authority = Authority::new();
        let listen = listen(&authority, tls, https);
        let sockets = server.prepare_encrypted(sockets.into()).unwrap();
        server.serve_encrypted(listen, sockets);
        Self { server, authority, tls, https }
    }

    /// A connection over TLS whose handshake is done.
    pub(crate) fn dot(&self) -> Stream {
        self.dot_from(1)
    }

    /// The same from an address of its own: that is how clients are told apart.
    pub(crate) fn dot_from(&self, number: u8) -> Stream {
        handshake(connection(self.tls, number), self.authority.client(&["dot"])).unwrap()
    }

    /// True if a new client gets answers over both protocols.
    pub(crate) fn serves(&self, number: u8) -> bool {
        let mut dot = self.dot_from(number);
        dot.send(&query(7, "fine.example"));
        let over_tls = dot.receive().is_some();
        let mut http = self.http1_from(number);
        let over_https = http.get(&query(0, "fine.example")).0 == 200;
        over_tls && over_https
    }

    pub(crate) fn http1_from(&self, number: u8) -> crate::http::Http1 {
        crate::http::Http1(handshake(connection(self.https, number), self.authority.client(&["http/1.1"])).unwrap())
    }
}

pub(crate) fn listen(authority: &Authority, tls: SocketAddr, https: SocketAddr) -> Vec<EncryptedListen> {
    vec![
        EncryptedListen { address: tls, transport: Transport::Tls, config: authority.server(&["dot"]) },
        EncryptedListen { address: https, transport: Transport::Https, config: authority.server(&["h2", "http/1.1"]) },
    ]
}

/// A connection from an address of its own.
pub(crate) fn connection(to: SocketAddr, number: u8) -> TcpStream {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let from: SocketAddr = format!("127.0.1.{number}:0").parse().unwrap();
    bind(fd.as_raw_fd(), &SockaddrStorage::from(from)).unwrap();
    connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).unwrap();
    let stream = TcpStream::from(fd);
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

pub(crate) struct Stream(pub(crate) StreamOwned<ClientConnection, TcpStream>);

pub(crate) fn handshake(tcp: TcpStream, config: Arc<ClientConfig>) -> std::io::Result<Stream> {
    let name = ServerName::try_from(NAME).unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(config, name).unwrap(), tcp);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Stream(stream))
}

impl Stream {
    pub(crate) fn send(&mut self, message: &[u8]) {
        self.try_to_send(message).unwrap();
    }

    pub(crate) fn try_to_send(&mut self, message: &[u8]) -> std::io::Result<()> {
        let length = (message.len() as u16).to_be_bytes();
        self.0.write_all(&[&length[..], message].concat())?;
        self.0.flush()
    }

    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).ok()?;
        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut message).ok()?;
        Some(message)
    }

    /// Waits for the end of the stream.
    pub(crate) fn is_ended(&mut self) -> bool {
        let mut buffer = [0; 1024];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
                }
            }
        }
    }
}
