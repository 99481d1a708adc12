//! Against a runtime that speaks gRPC and answers as containerd does.

use super::*;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use message::put;
use std::path::PathBuf;
use std::thread;
use tokio::net::UnixListener;

const PATIENCE: Duration = Duration::from_secs(60);

fn sandbox_status(id: &str, addresses: &[&str], info: Option<&str>) -> Vec<u8> {
    let (mut metadata, mut network, mut status, mut response) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    put(&mut metadata, 1, b"web");
    put(&mut metadata, 2, b"u1");
    put(&mut metadata, 3, b"shop");
    for (nth, address) in addresses.iter().enumerate() {
        match nth {
            0 => put(&mut network, 1, address.as_bytes()),
            _ => {
                let mut more = Vec::new();
                put(&mut more, 1, address.as_bytes());
                put(&mut network, 2, &more);
            }
        }
    }
    put(&mut status, 1, id.as_bytes());
    put(&mut status, 2, &metadata);
    status.extend([4 << 3, 7]);
    put(&mut status, 5, &network);
    put(&mut response, 1, &status);
    if let Some(info) = info {
        let mut entry = Vec::new();
        put(&mut entry, 1, b"info");
        put(&mut entry, 2, info.as_bytes());
        put(&mut response, 2, &entry);
    }
    response
}

fn sandbox_list(ids: &[&str]) -> Vec<u8> {
    let mut list = Vec::new();
    for id in ids {
        let mut item = Vec::new();
        put(&mut item, 1, id.as_bytes());
        put(&mut list, 1, &item);
    }
    list
}

/// Serves one connection: each call is answered by a message or a status.
fn runtime(name: &str, answer: impl Fn(&str, &[u8]) -> Result<Vec<u8>, u32> + Send + 'static) -> PathBuf {
    let path = std::env::temp_dir().join(format!("namewall-cri-{name}-{}", std::process::id()));
    std::fs::remove_file(&path).ok();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = {
        let _entered = tokio.enter();
        UnixListener::bind(&path).expect("a socket")
    };
    thread::spawn(move || {
        tokio.block_on(async {
            let (stream, _) = listener.accept().await.expect("a client");
            let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
            while let Some(call) = connection.accept().await {
                let Ok((request, mut respond)) = call else { return };
                let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                assert!(request.uri().path().starts_with("/runtime.v1.RuntimeService/"));
                // The body has come with the call: the requests are small.
                let mut body = request.into_body();
                let asked = body.data().await.expect("a message").expect("it is read");
                let mut response = Response::new(());
                response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
                let mut trailers = HeaderMap::new();
                match answer(&method, &asked[5..]) {
                    Ok(message) => {
                        let mut framed = BytesMut::new();
                        framed.put_u8(0);
                        framed.put_u32(message.len() as u32);
                        framed.put_slice(&message);
                        let mut stream = respond.send_response(response, false).expect("headers");
                        stream.send_data(framed.freeze(), false).expect("data");
                        trailers.insert("grpc-status", HeaderValue::from_static("0"));
                        stream.send_trailers(trailers).expect("trailers");
                    }
                    Err(code) => {
                        response.headers_mut().insert("grpc-status", HeaderValue::from(code));
                        let mut stream = respond.send_response(response, false).expect("headers");
                        stream.send_data(Bytes::new(), true).expect("data");
                    }
                }
            }
        });
    });
    path
}

#[test]
fn s1_9_the_runtime_says_which_pod_a_network_namespace_belongs_to() {
    let info = r#"{"pid": 7, "runtimeSpec": {"linux": {"namespaces":
        [{"type": "pid"}, {"type": "network", "path": "/var/run/netns/cni-1"}]}}}"#;
    let socket = runtime("good", move |method, asked| match method {
        "ListPodSandbox" => {
            assert_eq!(asked, [0x0a, 2, 0x12, 0], "only those that are ready");
            Ok(sandbox_list(&["a", "gone", "host"]))
        }
        _ if asked.windows(4).any(|bytes| bytes == b"gone") => Err(5),
        _ if asked.windows(4).any(|bytes| bytes == b"host") => {
            Ok(sandbox_status("host", &[], Some(r#"{"runtimeSpec": {"linux": {"namespaces": [{"type": "ipc"}]}}}"#)))
        }
        _ => {
            assert_eq!(asked, [0x0a, 1, b'a', 0x10, 1], "verbose");
            Ok(sandbox_status("a", &["10.244.1.5", "fd00::5"], Some(info)))
        }
    });
    let found = sandboxes(&socket, PATIENCE).expect("it answers");
    std::fs::remove_file(&socket).ok();
    let [pod, host] = &found[..] else { panic!("{found:?}") };
    assert_eq!((pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str(), pod.created), ("shop", "web", "u1", 7));
    assert_eq!(pod.addresses, ["10.244.1.5", "fd00::5"].map(|text| text.parse::<std::net::IpAddr>().expect("one")));
    assert_eq!(pod.netns.as_deref(), Some(Path::new("/var/run/netns/cni-1")));
    assert_eq!((host.netns.as_ref(), host.addresses.len()), (None, 0));
}

#[test]
fn a_runtime_that_is_away_refuses_or_answers_nonsense_is_an_error() {
    let away = sandboxes(Path::new("/nonexistent/cri.sock"), PATIENCE).expect_err("nobody is there");
    assert!(matches!(away, CriError::Away { .. }), "{away}");
    let socket = runtime("refuses", |_, _| Err(12));
    let refused = sandboxes(&socket, PATIENCE).expect_err("it refuses");
    assert!(matches!(refused, CriError::Refused { code: 12, .. }), "{refused}");
    for (name, nonsense) in [("cut", vec![0x0a, 9, 1]), ("long", vec![0xff; 12]), ("kind", vec![0x0f])] {
        let socket = runtime(name, move |_, _| Ok(nonsense.clone()));
        let error = sandboxes(&socket, PATIENCE).expect_err("it is nonsense");
        assert!(matches!(error, CriError::Malformed(_)), "{error}");
    }
    let socket = runtime("address", |method, _| match method {
        "ListPodSandbox" => Ok(sandbox_list(&["a"])),
        _ => Ok(sandbox_status("a", &["nowhere"], None)),
    });
    assert!(matches!(sandboxes(&socket, PATIENCE), Err(CriError::Malformed(_))));
}

#[test]
fn a_silent_runtime_is_an_error_in_time() {
    let path = std::env::temp_dir().join(format!("namewall-cri-silent-{}", std::process::id()));
    std::fs::remove_file(&path).ok();
    let _listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let error = sandboxes(&path, Duration::from_millis(50)).expect_err("it says nothing");
    std::fs::remove_file(&path).ok();
    assert!(matches!(error, CriError::Late(_)), "{error}");
}
