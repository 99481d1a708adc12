//! One gRPC stream: a message goes out, a message comes back.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request, StatusCode, Version};

/// Longer answers are refused before they are read.
const MOST_BYTES: usize = 1 << 20;
/// In front of a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// `bytes body = 1`
const BODY: u8 = 0x0a;

#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("{0}")]
    Http(#[from] h2::Error),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("the status is {0}")]
    Status(StatusCode),
    #[error("the server says: {0}")]
    Grpc(String),
    #[error("it ends without an answer")]
    Ended,
    #[error("an answer of {0} bytes")]
    TooLong(usize),
    #[error("it is no answer to one request")]
    Nonsense,
}

/// A stream of requests, or the call of one.
pub(super) struct Exchange {
    send: SendStream<Bytes>,
    receive: Receive,
    buffer: BytesMut,
    is_call: bool,
}

enum Receive {
    /// Headers come with the first answer.
    Headers(ResponseFuture),
    Body(RecvStream),
}

impl Exchange {
    pub(super) async fn open(
        sender: SendRequest<Bytes>,
        authority: &str,
        is_call: bool,
    ) -> Result<Self, ExchangeError> {
        let mut sender = sender.ready().await?;
        let method = if is_call { "Validate" } else { "NewValidationStream" };
        let request = Request::builder()
            .method(Method::POST)
            .version(Version::HTTP_2)
            .uri(format!("http://{authority}/service.PDP/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (headers, send) = sender.send_request(request, false)?;
        Ok(Self { send, receive: Receive::Headers(headers), buffer: BytesMut::new(), is_call })
    }

    pub(super) async fn ask(&mut self, body: &Bytes) -> Result<Bytes, ExchangeError> {
        self.send.send_data(frame(body), self.is_call)?;
        let answer = self.message().await?;
        if !self.buffer.is_empty() {
            return Err(ExchangeError::Nonsense);
        }
        if self.is_call {
            self.end().await?;
        }
        unwrap(answer)
    }

    async fn body(&mut self) -> Result<&mut RecvStream, ExchangeError> {
        if let Receive::Headers(headers) = &mut self.receive {
            let response = headers.await?;
            if response.status() != StatusCode::OK {
                return Err(ExchangeError::Status(response.status()));
            }
            // An error without any message has its status here.
            check(response.headers())?;
            self.receive = Receive::Body(response.into_body());
        }
        match &mut self.receive {
            Receive::Body(body) => Ok(body),
            Receive::Headers(_) => Err(ExchangeError::Ended),
        }
    }

    async fn message(&mut self) -> Result<Bytes, ExchangeError> {
        loop {
            if let Some([compressed, length @ ..]) = self.buffer.first_chunk::<PREFIX>() {
                let length = u32::from_be_bytes(*length) as usize;
                if *compressed != 0 {
                    return Err(ExchangeError::Nonsense);
                }
                if length > MOST_BYTES {
                    return Err(ExchangeError::TooLong(length));
                }
                if self.buffer.len() >= PREFIX + length {
                    self.buffer.advance(PREFIX);
                    return Ok(self.buffer.split_to(length).freeze());
                }
            }
            let body = self.body().await?;
            let Some(chunk) = body.data().await else {
                if let Some(trailers) = body.trailers().await? {
                    check(&trailers)?;
                }
                return Err(ExchangeError::Ended);
            };
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// What a call ends with says whether its message counts.
    async fn end(&mut self) -> Result<(), ExchangeError> {
        let body = self.body().await?;
        if body.data().await.is_some() {
            return Err(ExchangeError::Nonsense);
        }
        let trailers = body.trailers().await?.ok_or(ExchangeError::Ended)?;
        check(&trailers)
    }
}

fn check(headers: &HeaderMap) -> Result<(), ExchangeError> {
    match headers.get("grpc-status") {
        Some(status) if status.as_bytes() != b"0" => {
            let text = |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
            let (status, message) = (text("grpc-status"), text("grpc-message"));
            let words = format!("{} {}", status.unwrap_or_default(), message.unwrap_or_default());
            Err(ExchangeError::Grpc(words.chars().take(200).collect()))
        }
        _ => Ok(()),
    }
}

/// A message of its body alone, behind its length.
fn frame(body: &Bytes) -> Bytes {
    let mut length = BytesMut::with_capacity(5);
    let mut rest = body.len();
    while rest >= 0x80 {
        length.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    length.put_u8(rest as u8);
    let message = 1 + length.len() + body.len();
    let mut frame = BytesMut::with_capacity(PREFIX + message);
    frame.put_u8(0);
    frame.put_u32(message as u32);
    frame.put_u8(BODY);
    frame.extend_from_slice(&length);
    frame.extend_from_slice(body);
    frame.freeze()
}

/// The body of a message, which has nothing else.
fn unwrap(mut message: Bytes) -> Result<Bytes, ExchangeError> {
    if message.is_empty() {
        return Ok(message);
    }
    if message.get_u8() != BODY {
        return Err(ExchangeError::Nonsense);
    }
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        if message.is_empty() || shift > 28 {
            return Err(ExchangeError::Nonsense);
        }
        let byte = message.get_u8();
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    if message.len() == length { Ok(message) } else { Err(ExchangeError::Nonsense) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_message_and_that_a_body() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let body = Bytes::from(vec![7; length]);
            let frame = frame(&body);
            assert_eq!(frame[0], 0);
            assert_eq!(u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]) as usize, frame.len() - 5);
            assert_eq!(unwrap(frame.slice(5..)).unwrap(), body);
        }
    }

    #[test]
    fn nonsense_is_no_message() {
        for bytes in [&b"\x0a"[..], b"\x0a\x02a", b"\x0a\x01ab", b"\x12\x01a", b"\x0a\xff\xff\xff\xff\xff\x01"] {
            assert!(unwrap(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
        assert!(unwrap(Bytes::new()).unwrap().is_empty());
    }
}
