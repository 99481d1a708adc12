//! Who is trusted, and who we are.

use crate::corefile::Tls;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

/// What is wrong with certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no {what} in PEM: {problem}", path.display())]
    Content { path: PathBuf, what: &'static str, problem: String },
    #[error("{} cannot be used with {}: {problem}", certificate.display(), key.display())]
    Pair { certificate: PathBuf, key: PathBuf, problem: String },
    #[error("this system trusts no certificate authority; install ca-certificates, or name a file")]
    NoAuthority,
}

/// The settings of a connection, and a digest of the files they are from: whoever reads them again sees
/// whether they have changed.
pub(super) struct Trust {
    pub(super) config: TlsConfig,
    pub(super) digest: u64,
}

pub(super) fn read(tls: &Tls) -> Result<Trust, TlsError> {
    let mut digest = DefaultHasher::new();
    let authorities = match &tls.authority {
        Some(path) => certificates(path, &mut digest)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(authorities.iter().cloned()).0 == 0 {
        return Err(match &tls.authority {
            Some(path) => {
                TlsError::Content { path: path.clone(), what: "certificate", problem: "none can be read".into() }
            }
            None => TlsError::NoAuthority,
        });
    }
    let client = match &tls.client {
        None => None,
        Some((certificate, key)) => {
            let chain = certificates(certificate, &mut digest)?;
            let text = content(key, &mut digest)?;
            let secret = PrivateKeyDer::from_pem_slice(&text).map_err(|error| not_there(key, "private key", &error))?;
            // The client panics at its first connection over a pair that does not fit: it is tried here.
            ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .and_then(|builder| builder.with_root_certificates(roots).with_client_auth_cert(chain.clone(), secret))
                .map_err(|error| TlsError::Pair {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    problem: error.to_string(),
                })?;
            let chain: Vec<_> = chain.iter().map(owned).collect();
            let secret = PrivateKey::from_pem(&text).map_err(|error| not_there(key, "private key", &error))?;
            Some(ClientCert::new_with_certs(&chain, secret))
        }
    };
    let config = TlsConfig::builder()
        .root_certs(RootCerts::from(authorities.iter().map(owned)))
        .client_cert(client)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    Ok(Trust { config, digest: digest.finish() })
}

fn owned(certificate: &CertificateDer<'_>) -> Certificate<'static> {
    Certificate::from_der(certificate).to_owned()
}

fn certificates(path: &Path, digest: &mut DefaultHasher) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = content(path, digest)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(not_there(path, "certificate", &pem::Error::NoItemsFound)),
        Err(error) => Err(not_there(path, "certificate", &error)),
    }
}

fn content(path: &Path, digest: &mut DefaultHasher) -> Result<Vec<u8>, TlsError> {
    let text = std::fs::read(path).map_err(|source| TlsError::Read { path: path.into(), source })?;
    text.hash(digest);
    Ok(text)
}

fn not_there(path: &Path, what: &'static str, error: &dyn fmt::Display) -> TlsError {
    TlsError::Content { path: path.into(), what, problem: error.to_string() }
}
