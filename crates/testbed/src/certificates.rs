//! The certificates and keys of a control plane.

use crate::ADVERTISED;
use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::path::Path;

/// An authority, the server's certificate by it, and the key that accounts' tokens are signed with.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "testbed");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = ["127.0.0.1", ADVERTISED, "10.96.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let server = params.signed_by(&key, &authority)?;
    let accounts = KeyPair::generate()?;
    for (name, text) in [
        ("authority.crt", authority.pem()),
        ("server.crt", server.pem()),
        ("server.key", key.serialize_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
    ] {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
