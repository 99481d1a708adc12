//! gRPC over a unix socket: one connection for a few calls, one after the other.

use super::message::MalformedMessage;
use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::runtime;
use tokio::time::timeout;

/// The longest answer. A sandbox's status is some 10 kB.
const LONGEST: usize = 16 << 20;
/// The flag and the length before a message.
const PREFIX: usize = 5;
/// gRPC's number for what does not exist.
pub(super) const NOT_FOUND: u32 = 5;

#[derive(Debug, thiserror::Error)]
pub enum CriError {
    #[error("the container runtime does not answer at {}", .socket.display())]
    Away {
        socket: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the container runtime did not answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the connection to the container runtime has failed")]
    Connection(#[from] h2::Error),
    #[error("the container runtime refuses {method}: {message} (gRPC status {code})")]
    Refused { method: String, code: u32, message: String },
    #[error("the container runtime's answer to {method} is longer than {LONGEST} bytes")]
    TooLong { method: String },
    #[error(transparent)]
    Malformed(#[from] MalformedMessage),
}

/// A connection to a runtime.
pub(super) struct Runtime {
    sender: SendRequest<Bytes>,
}

/// Connects, and does something with the connection, within this time.
pub(super) fn within<T>(
    socket: &Path,
    patience: Duration,
    ask: impl AsyncFnOnce(Runtime) -> Result<T, CriError>,
) -> Result<T, CriError> {
    let away = |source| CriError::Away { socket: socket.to_owned(), source };
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(away)?;
    let exchange = async {
        let stream = UnixStream::connect(socket).await.map_err(away)?;
        let window = LONGEST as u32;
        let mut builder = Builder::new();
        builder.enable_push(false).initial_window_size(window).initial_connection_window_size(window);
        let (sender, connection) = builder.handshake(stream).await?;
        // It ends with the runtime of this call. Its errors are those of the calls, too.
        tokio::spawn(connection);
        ask(Runtime { sender }).await
    };
    runtime.block_on(async { timeout(patience, exchange).await.unwrap_or(Err(CriError::Late(patience))) })
}

impl Runtime {
    /// Calls a method of the RuntimeService. Returns the message of the answer.
    pub(super) async fn call(&self, method: &str, message: &[u8]) -> Result<Bytes, CriError> {
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        let uri = format!("http://localhost/runtime.v1.RuntimeService/{method}");
        *request.uri_mut() = uri.parse().map_err(|_| MalformedMessage)?;
        request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert("te", http::HeaderValue::from_static("trailers"));
        let mut framed = BytesMut::with_capacity(PREFIX + message.len());
        framed.put_u8(0);
        framed.put_u32(message.len() as u32);
        framed.put_slice(message);
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut body) = sender.send_request(request, false)?;
        body.send_data(framed.freeze(), true)?;
        let (head, body) = response.await?.into_parts();
        // An error without a message comes in the headers.
        refusal(method, &head.headers)?;
        answer(method, body).await
    }
}

/// Reads the body: one message, and the status after it.
async fn answer(method: &str, mut body: RecvStream) -> Result<Bytes, CriError> {
    let mut all = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        if all.len() + chunk.len() > LONGEST {
            return Err(CriError::TooLong { method: method.to_owned() });
        }
        body.flow_control().release_capacity(chunk.len())?;
        all.extend_from_slice(&chunk);
    }
    let trailers = body.trailers().await?;
    refusal(method, &trailers.unwrap_or_default())?;
    let all = all.freeze();
    let [compressed, length @ ..] = *all.first_chunk::<PREFIX>().ok_or(MalformedMessage)?;
    if compressed != 0 || u32::from_be_bytes(length) as usize != all.len() - PREFIX {
        return Err(MalformedMessage.into());
    }
    Ok(all.slice(PREFIX..))
}

/// The error that headers or trailers carry, if they do.
fn refusal(method: &str, headers: &HeaderMap) -> Result<(), CriError> {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    match text("grpc-status") {
        None => Ok(()),
        Some(code) if code == "0" => Ok(()),
        Some(code) => {
            let message = text("grpc-message").unwrap_or_default();
            Err(CriError::Refused { method: method.to_owned(), code: code.parse().unwrap_or(u32::MAX), message })
        }
    }
}
