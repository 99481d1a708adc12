//! Clients of DNS over HTTPS: HTTP/1.1 by hand, HTTP/2 by hyper.

use crate::pki::{Encrypted, NAME, Stream};
use crate::stub::TEST_TIMEOUT;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use namewall_dns::Learn;
use rustls::pki_types::ServerName;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;

/// Base64url without padding, by a simple way.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let value = |six: &[u8]| (0..6).fold(0, |value, at| value << 1 | six.get(at).copied().unwrap_or(0));
    bits.chunks(6).map(|six| char::from(alphabet[usize::from(value(six))])).collect()
}

/// A connection of HTTP/1.1.
pub(crate) struct Http1(pub(crate) Stream);

/// A status, headers and a body.
pub(crate) type Response = (u16, HashMap<String, String>, Vec<u8>);

impl Http1 {
    pub(crate) fn get(&mut self, message: &[u8]) -> Response {
        self.send(&format!("GET /dns-query?dns={} HTTP/1.1", base64url(message)), b"")
    }

    pub(crate) fn post(&mut self, message: &[u8]) -> Response {
        let head = format!(
            "POST /dns-query HTTP/1.1\r\ncontent-type: application/dns-message\r\ncontent-length: {}",
            message.len()
        );
        self.send(&head, message)
    }

    /// Sends a request, whose head has no host and no end yet.
    pub(crate) fn send(&mut self, head: &str, body: &[u8]) -> Response {
        let stream = &mut self.0.0;
        let sent = stream.write_all(format!("{head}\r\nhost: {NAME}\r\n\r\n").as_bytes());
        // A server that has refused a request need not read all of it.
        let _ = sent.and_then(|()| stream.write_all(body)).and_then(|()| stream.flush());
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        let text = String::from_utf8(text).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let headers: HashMap<String, String> = (text.lines().skip(1))
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        (status, headers, body)
    }
}

/// A connection of HTTP/2.
pub(crate) struct Http2 {
    pub(crate) runtime: Runtime,
    pub(crate) requests: SendRequest<Full<Bytes>>,
}

impl Http2 {
    pub(crate) fn connect<L: Learn + 'static>(to: &Encrypted<L>) -> Self
    where
        L::Batch: 'static,
    {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().enable_time().build().unwrap();
        let (config, address) = (to.authority.client(&["h2"]), to.https);
        let requests = runtime.block_on(async {
            let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
            let name = ServerName::try_from(NAME).unwrap();
            let stream = TlsConnector::from(config).connect(name, tcp).await.unwrap();
            let (requests, connection) =
                http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            requests
        });
        Self { runtime, requests }
    }

    pub(crate) fn request(message: &[u8]) -> Request<Full<Bytes>> {
        Request::post(format!("https://{NAME}/dns-query"))
            .header("content-type", "application/dns-message")
            .body(Full::new(Bytes::copy_from_slice(message)))
            .unwrap()
    }

    pub(crate) fn post(&mut self, message: &[u8]) -> (StatusCode, Vec<u8>) {
        let asked = self.requests.send_request(Self::request(message));
        self.runtime.block_on(async {
            let response = tokio::time::timeout(TEST_TIMEOUT, asked).await.unwrap().unwrap();
            let status = response.status();
            (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
        })
    }
}
