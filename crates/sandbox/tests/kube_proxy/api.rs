//! The objects that kube-proxy reads, served as an API server does: lists at
//! once, and watches that never tell of a change.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Lists by their path, each with its kind and version.
pub(crate) type Lists = Vec<List>;

#[derive(Debug)]
pub(crate) struct List {
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) version: &'static str,
    pub(crate) items: Vec<Value>,
}

/// Serves until the process ends. To be called in the namespace that asks.
pub(crate) fn serve(lists: Lists) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let lists = Arc::new(lists);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let lists = lists.clone();
            std::thread::spawn(move || answer(stream, &lists));
        }
    });
    Ok(at)
}

/// One request a connection.
fn answer(mut stream: TcpStream, lists: &[List]) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut request = String::new();
    reader.read_line(&mut request).ok()?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut words = request.split_whitespace();
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let list = lists.iter().find(|list| list.path == path);
    match list {
        // Events, which nobody reads here.
        _ if method != "GET" => reply(&mut stream, "201 Created", &json!({})),
        // A client that asks for a list as a watch goes on with a plain list.
        Some(_) if query.contains("sendInitialEvents") => {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 400});
            reply(&mut stream, "400 Bad Request", &status)
        }
        Some(_) if query.contains("watch=true") => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            // It ends when the client goes.
            reader.read_to_end(&mut Vec::new()).ok().map(drop)
        }
        Some(List { kind, version, items, .. }) => {
            let metadata = json!({"resourceVersion": "1"});
            let list = json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items});
            reply(&mut stream, "200 OK", &list)
        }
        None => {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
            reply(&mut stream, "404 Not Found", &status)
        }
    }
}

fn reply(stream: &mut TcpStream, status: &str, body: &Value) -> Option<()> {
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}
