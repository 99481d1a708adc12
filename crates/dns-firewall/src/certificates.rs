//! Certificates of server blocks over TLS and HTTPS, read from the files that `tls` names. A file that changes is read
//! again with the Corefile; one that cannot be used is an error, and what was served before goes on.

use namewall_corefile::{ClientAuth, Scheme, ServerTls};
use namewall_dns::Transport;
use namewall_runtime::files::open_regular;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// More of a file is not read.
const LONGEST_FILE: u64 = 1 << 20;

/// Why a certificate cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("tls: cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("tls: {} has no {what} in PEM: {problem}", path.display())]
    Content { path: PathBuf, what: &'static str, problem: String },
    #[error("tls: {} does not fit the key {}: {problem}; write the certificate and then its own key", certificate.display(), key.display())]
    Pair { certificate: PathBuf, key: PathBuf, problem: String },
    #[error("tls: clients cannot be verified: {0}; name a file with the certificates of a CA, like `tls CERT KEY CA`")]
    Authority(String),
}

/// How a scheme is served.
pub(crate) fn transport(scheme: Scheme) -> Transport {
    match scheme {
        Scheme::Dns => Transport::Udp,
        Scheme::Tls => Transport::Tls,
        Scheme::Https => Transport::Https,
    }
}

/// The server side of TLS for a server block.
pub(crate) fn server_config(tls: &ServerTls, scheme: Scheme) -> Result<Arc<ServerConfig>, CertificateError> {
    let pair = |error: &dyn fmt::Display| CertificateError::Pair {
        certificate: tls.certificate.clone(),
        key: tls.key.clone(),
        problem: error.to_string(),
    };
    let chain = certificates(&tls.certificate)?;
    let text = content(&tls.key)?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| not_there(&tls.key, "private key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| pair(&error))?;
    let builder = match tls.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::VerifyIfGiven | ClientAuth::RequireAndVerify => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(tls)?), provider);
            let verifier = match tls.client_auth {
                ClientAuth::VerifyIfGiven => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier = verifier.build().map_err(|error| CertificateError::Authority(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| pair(&error))?;
    config.alpn_protocols = match scheme {
        Scheme::Https => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Scheme::Tls | Scheme::Dns => vec![b"dot".to_vec()],
    };
    Ok(Arc::new(config))
}

/// Who may have signed the certificates of clients.
fn authorities(tls: &ServerTls) -> Result<RootCertStore, CertificateError> {
    let all = match &tls.authority {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(all);
    if roots.is_empty() {
        return Err(CertificateError::Authority("no certificate of a CA can be read".to_owned()));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = content(path)?;
    match CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>() {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(not_there(path, "certificate", &pem::Error::NoItemsFound)),
        Err(error) => Err(not_there(path, "certificate", &error)),
    }
}

fn content(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        open_regular(path)?.take(LONGEST_FILE).read_to_end(&mut text)?;
        Ok(text)
    };
    read().map_err(|source| CertificateError::Read { path: path.into(), source })
}

fn not_there(path: &Path, what: &'static str, error: &dyn fmt::Display) -> CertificateError {
    CertificateError::Content { path: path.into(), what, problem: error.to_string() }
}
