//! Upstreams over TLS (RFC 7858), with certificates of their own.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Who signs certificates, with a folder for its files that is gone after the test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    pub(crate) fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("namewall-tls-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, test);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// The authority's file.
    pub(crate) fn ca(&self) -> String {
        self.path("ca.pem")
    }

    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The files of a certificate for this name and of its key.
    pub(crate) fn files(&self, name: &str) -> String {
        let (certificate, key) = self.signed(name);
        let files = [self.path(&format!("{name}.pem")), self.path(&format!("{name}.key"))];
        fs::write(&files[0], certificate.pem()).unwrap();
        fs::write(&files[1], key.serialize_pem()).unwrap();
        files.join(" ")
    }

    /// A server with a certificate for this name or address; it wants one of its clients too, if so.
    pub(crate) fn server(&self, name: &str, wants_client: bool) -> TlsUpstream {
        let (certificate, key) = self.signed(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.issuer.der().to_vec())).unwrap();
        let builder = if wants_client {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.unwrap().with_client_cert_verifier(verifier)
        } else {
            builder.unwrap().with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        TlsUpstream::start(config)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

type Answers = dyn Fn(&[u8]) -> Vec<Vec<u8>> + Send;

/// A DNS server over TLS, that can be told how to behave.
pub(crate) struct TlsUpstream {
    pub(crate) address: SocketAddr,
    answers: Arc<Mutex<Box<Answers>>>,
    connections: Arc<AtomicUsize>,
    queries: Arc<AtomicUsize>,
    /// Those that are open.
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl TlsUpstream {
    fn start(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answers: Arc<Mutex<Box<Answers>>> = Arc::new(Mutex::new(Box::new(|_| Vec::new())));
        let (connections, queries) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let upstream = Self { address, answers, connections, queries, open };
        let (answers, connections) = (upstream.answers.clone(), upstream.connections.clone());
        let (queries, open, config) = (upstream.queries.clone(), upstream.open.clone(), Arc::new(config));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                open.lock().unwrap().push(stream.try_clone().unwrap());
                let session = ServerConnection::new(config.clone()).unwrap();
                let mut stream = StreamOwned::new(session, stream);
                let (answers, queries) = (answers.clone(), queries.clone());
                std::thread::spawn(move || {
                    while let Some(query) = message(&mut stream) {
                        queries.fetch_add(1, Ordering::SeqCst);
                        let all = answers.lock().unwrap()(&query);
                        for answer in all {
                            let mut bytes = (answer.len() as u16).to_be_bytes().to_vec();
                            bytes.extend(answer);
                            if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        upstream
    }

    pub(crate) fn answers(self, answers: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        *self.answers.lock().unwrap() = Box::new(answers);
        self
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn asked(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }

    /// Ends every connection, as a server does with such as are idle.
    pub(crate) fn hang_up(&self) {
        self.open.lock().unwrap().drain(..).for_each(|stream| _ = stream.shutdown(Shutdown::Both));
    }
}

fn message(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}
