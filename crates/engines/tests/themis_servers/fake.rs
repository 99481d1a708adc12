//! Servers on this machine: plain sockets, and gRPC with any answer.

use bytes::Bytes;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Answers each connection in a thread of its own; gives where it listens.
pub(crate) fn raw(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads until the other side ends.
pub(crate) fn swallow(mut stream: &TcpStream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// Says this as soon as it is connected to, and then nothing.
pub(crate) fn says(bytes: &'static [u8]) -> String {
    raw(move |mut stream| {
        let _ = stream.write_all(bytes);
        swallow(&stream);
    })
}

/// What a gRPC server does with a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Data frames, each as it is.
    Frames(Vec<Vec<u8>>),
    /// An error, without a message.
    Status(&'static str),
    /// An error of HTTP.
    Http(u16),
    /// Nothing.
    Hang,
    /// The end of the connection.
    Close,
    /// The same as frames, and then no new streams are taken.
    GoAway(Vec<Vec<u8>>),
}

/// What becomes of a connection.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Goes,
    Ends,
    Closes,
}

impl Reply {
    /// A message of this body, as it should be.
    pub(crate) fn body(body: &[u8]) -> Self {
        let length = u8::try_from(body.len()).ok().filter(|length| *length < 128).expect("tests say little");
        let message = [&[0x0a, length], body].concat();
        Self::Frames(vec![[&[0, 0, 0, 0, message.len() as u8][..], &message].concat()])
    }
}

/// What is said to the body of a request.
type Says = Arc<dyn Fn(&[u8]) -> Reply + Send + Sync>;

/// A gRPC server: `reply` is given the body of each request.
pub(crate) fn grpc(reply: impl Fn(&[u8]) -> Reply + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    let reply: Says = Arc::new(reply);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, reply.clone()));
            }
        });
    });
    address
}

async fn connection(stream: tokio::net::TcpStream, reply: Says) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let (close, closed) = tokio::sync::watch::channel(Fate::Goes);
    let mut told = closed.clone();
    let mut ends = false;
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    tokio::spawn(stream_of(request, respond, reply.clone(), close.clone()));
                }
                _ => return,
            },
            _ = told.changed(), if !ends => match *told.borrow() {
                Fate::Closes => return,
                _ => {
                    ends = true;
                    connection.graceful_shutdown();
                }
            },
        }
    }
}

async fn stream_of(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    reply: Says,
    close: tokio::sync::watch::Sender<Fate>,
) {
    let is_call = request.uri().path() == "/service.PDP/Validate";
    assert!(is_call || request.uri().path() == "/service.PDP/NewValidationStream");
    assert_eq!(request.headers()["te"], "trailers");
    let mut body = request.into_body();
    let mut send = None;
    let mut buffer = Vec::new();
    while let Some(Ok(chunk)) = body.data().await {
        let _ = body.flow_control().release_capacity(chunk.len());
        buffer.extend_from_slice(&chunk);
        // Requests of tests fit into one frame, and their lengths into one byte.
        if buffer.len() < 5 || buffer.len() < 5 + usize::from(buffer[4]) {
            continue;
        }
        let asked = buffer.split_off(7);
        buffer.clear();
        let headers = |status: u16| http::Response::builder().status(status).header("content-type", "application/grpc");
        let frames = match reply(&asked) {
            Reply::Frames(frames) => frames,
            Reply::GoAway(frames) => {
                let _ = close.send(Fate::Ends);
                frames
            }
            Reply::Status(status) => {
                let response = headers(200).header("grpc-status", status).header("grpc-message", "no%20way");
                let _ = respond.send_response(response.body(()).unwrap(), true);
                return;
            }
            Reply::Http(status) => {
                let _ = respond.send_response(headers(status).body(()).unwrap(), true);
                return;
            }
            Reply::Hang => std::future::pending().await,
            Reply::Close => {
                let _ = close.send(Fate::Closes);
                return;
            }
        };
        if send.is_none() {
            send = respond.send_response(headers(200).body(()).unwrap(), false).ok();
        }
        let Some(send) = &mut send else { return };
        for frame in frames {
            let _ = send.send_data(frame.into(), false);
        }
        if is_call {
            let trailers = [("grpc-status", "0")]
                .into_iter()
                .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
            let _ = send.send_trailers(trailers.collect());
            return;
        }
    }
}
