//! Who is trusted, and who we are.

use super::TlsFiles;
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

pub(super) fn read(tls: &TlsFiles) -> Result<Trust, TlsError> {
    let mut digest = DefaultHasher::new();
    let authorities = authorities(tls, &mut digest)?;
    // The client panics at its first connection over a pair that does not fit: it is tried here.
    let client = match client(tls, &mut digest)? {
        None => None,
        Some((chain, text)) => {
            configured(tls, &authorities, Some((&chain, &text)))?;
            let chain: Vec<_> = chain.iter().map(owned).collect();
            let key = tls.client.as_ref().map_or(Path::new(""), |(_, key)| key);
            let secret = PrivateKey::from_pem(&text).map_err(|error| not_there(key, "private key", &error))?;
            Some(ClientCert::new_with_certs(&chain, secret))
        }
    };
    if client.is_none() {
        configured(tls, &authorities, None)?;
    }
    let config = TlsConfig::builder()
        .root_certs(RootCerts::from(authorities.iter().map(owned)))
        .client_cert(client)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Ok(Trust { config, digest: digest.finish() })
}

/// The client side of TLS for connections without HTTP, and a digest of the files it was read from.
pub fn client_config(tls: &TlsFiles) -> Result<(Arc<ClientConfig>, u64), TlsError> {
    let mut digest = DefaultHasher::new();
    let authorities = authorities(tls, &mut digest)?;
    let client = client(tls, &mut digest)?;
    let client = client.as_ref().map(|(chain, text)| (&chain[..], &text[..]));
    let config = configured(tls, &authorities, client)?;
    Ok((Arc::new(config), digest.finish()))
}

fn authorities(tls: &TlsFiles, digest: &mut DefaultHasher) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match &tls.authority {
        Some(path) => certificates(path, digest),
        None => Ok(rustls_native_certs::load_native_certs().certs),
    }
}

/// Our certificates, and the text of the file with their key.
type Client = (Vec<CertificateDer<'static>>, Vec<u8>);

fn client(tls: &TlsFiles, digest: &mut DefaultHasher) -> Result<Option<Client>, TlsError> {
    let Some((certificate, key)) = &tls.client else { return Ok(None) };
    Ok(Some((certificates(certificate, digest)?, content(key, digest)?)))
}

fn configured(
    tls: &TlsFiles,
    authorities: &[CertificateDer<'static>],
    client: Option<(&[CertificateDer<'static>], &[u8])>,
) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(authorities.iter().cloned()).0 == 0 {
        return Err(match &tls.authority {
            Some(path) => {
                TlsError::Content { path: path.clone(), what: "certificate", problem: "none can be read".into() }
            }
            None => TlsError::NoAuthority,
        });
    }
    let (certificate, key) = tls.client.clone().unwrap_or_default();
    let unfit = |error: rustls::Error| TlsError::Pair { certificate, key: key.clone(), problem: error.to_string() };
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions();
    let builder = match builder {
        Ok(builder) => builder.with_root_certificates(roots),
        Err(error) => return Err(unfit(error)),
    };
    let Some((chain, text)) = client else { return Ok(builder.with_no_client_auth()) };
    let secret = PrivateKeyDer::from_pem_slice(text).map_err(|error| not_there(&key, "private key", &error))?;
    builder.with_client_auth_cert(chain.to_vec(), secret).map_err(unfit)
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
