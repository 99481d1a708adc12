//! Sockets for clients over TLS and HTTPS.

use super::{LEAVING, TICK, cannot_listen};
use anyhow::{Context, Result};
use namewall_dns::EncryptedListen;
use std::net::{SocketAddr, TcpListener};
use std::time::Instant;
use tracing::info;

pub(super) fn addresses(listen: &[EncryptedListen]) -> Vec<SocketAddr> {
    listen.iter().map(|listen| listen.address).collect()
}

/// Sockets at all these addresses, or at none. Those that were left a moment ago are waited for.
pub(super) fn bind(addresses: &[SocketAddr], left: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    let until = Instant::now() + LEAVING;
    let bind = |address: &SocketAddr| loop {
        match TcpListener::bind(address) {
            Err(_) if left.contains(address) && Instant::now() < until => std::thread::sleep(TICK / 50),
            bound => {
                let told = bound.as_ref().err().map(|error| cannot_listen(*address, error.kind()));
                break bound.with_context(|| told.unwrap_or_default());
            }
        }
    };
    addresses.iter().map(bind).collect()
}

/// Logs the addresses that were not served before.
pub(super) fn log(listen: &[EncryptedListen], before: &[SocketAddr]) {
    for EncryptedListen { address, transport, .. } in listen.iter().filter(|one| !before.contains(&one.address)) {
        info!(%address, scheme = transport.scheme(), "serving encrypted DNS");
    }
}
