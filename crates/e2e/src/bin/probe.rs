//! What runs in the pods of the end-to-end run: it listens, connects, and looks
//! names up, as it is told through a socket that is no part of the pod's network.
//! Standard library only, so that it can be linked statically anywhere.
//!
//! ```text
//! probe pause                          does nothing
//! probe serve PORT                     says its host's name to whoever connects
//! probe pod NAME PORT                  the same, and does what is said to /e2e/NAME
//! probe hammer NAME ADDRESS SECONDS    tries from its first moment on; counts in /e2e/NAME
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

const FOLDER: &str = "/e2e";
/// How long one try of many may take.
const SHORT: Duration = Duration::from_millis(250);
/// How long whom we reach may take to speak: the kernel lets us in, and nobody may have run since.
const SLOW: Duration = Duration::from_secs(30);
/// How many try at once.
const HAMMERS: u32 = 4;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pause"] => loop {
            std::thread::park();
        },
        ["serve", port] => serve(port),
        ["pod", name, port] => {
            let port = port.to_owned();
            std::thread::spawn(move || serve(&port));
            obey(&format!("{FOLDER}/{name}"))
        }
        ["hammer", name, address, seconds] => {
            let counted = hammer(parse(address)?, Duration::from_secs(parse(seconds)?));
            let file = format!("{FOLDER}/{name}");
            std::fs::write(format!("{file}.new"), counted)?;
            std::fs::rename(format!("{file}.new"), file)?;
            loop {
                std::thread::park();
            }
        }
        _ => Err(Error::other("see the source for what can be said")),
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::other(format!("what is {text}?")))
}

fn serve(port: &str) -> Result<()> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    // Both families at once, where there are both.
    let port = parse(port)?;
    let listener = TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))?;
    for stream in listener.incoming() {
        let (Ok(mut stream), name) = (stream, name.clone()) else { continue };
        std::thread::spawn(move || {
            let _ = stream.write_all(name.as_bytes());
            // And then what is said, for who stays.
            let mut said = [0; 64];
            while let Ok(length @ 1..) = stream.read(&mut said) {
                let _ = stream.write_all(&said[..length]);
            }
        });
    }
    Ok(())
}

/// Does what each line says, and answers with one.
fn obey(path: &str) -> Result<()> {
    let _ = std::fs::remove_file(path);
    let mut held: Option<BufReader<TcpStream>> = None;
    for stream in UnixListener::bind(path)?.incoming() {
        let mut stream = stream?;
        let answer = match obey_one(&stream, &mut held) {
            Ok(said) => format!("yes {said}\n"),
            Err(error) => format!("no {error}\n"),
        };
        let _ = stream.write_all(answer.as_bytes());
    }
    Ok(())
}

fn obey_one(stream: &UnixStream, held: &mut Option<BufReader<TcpStream>>) -> Result<String> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["connect", place, patience] => {
            let (address, who, _) = connect(place, Duration::from_millis(parse(patience)?))?;
            Ok(format!("{address} {who}"))
        }
        ["hold", place, patience] => {
            let (address, who, stream) = connect(place, Duration::from_millis(parse(patience)?))?;
            *held = Some(stream);
            Ok(format!("{address} {who}"))
        }
        // Whether what is held goes on.
        ["still"] => {
            let stream = held.as_mut().ok_or_else(|| Error::other("nothing is held"))?;
            stream.get_ref().write_all(b"still\n")?;
            let mut said = String::new();
            stream.read_line(&mut said)?;
            Ok(said.trim().to_owned())
        }
        ["resolve", name] => {
            let mut found: Vec<String> = (name, 0).to_socket_addrs()?.map(|one| one.ip().to_string()).collect();
            found.dedup();
            Ok(found.join(" "))
        }
        _ => Err(Error::other(format!("what is `{}`?", line.trim()))),
    }
}

/// To an address or a name with a port: whom it reaches, and what they call themselves.
fn connect(place: &str, patience: Duration) -> Result<(SocketAddr, String, BufReader<TcpStream>)> {
    let address = place.to_socket_addrs()?.next().ok_or_else(|| Error::other("has no address"))?;
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(SLOW))?;
    let mut stream = BufReader::new(stream);
    let mut who = String::new();
    stream.read_line(&mut who)?;
    Ok((address, who.trim().to_owned(), stream))
}

/// Tries one after another, and several at once: none may pass in the moment between.
fn hammer(address: SocketAddr, duration: Duration) -> String {
    let began = Instant::now();
    let strike = move |nth| {
        std::thread::sleep(SHORT / HAMMERS * nth);
        let mut tries = Vec::new();
        while began.elapsed() < duration {
            let tried = began.elapsed();
            let heard = TcpStream::connect_timeout(&address, SHORT).map(drop).map_err(|error| error.kind());
            if heard.is_ok() {
                std::thread::sleep(SHORT);
            }
            tries.push((tried, heard));
        }
        tries
    };
    let hammers: Vec<_> = (0..HAMMERS).map(|nth| std::thread::spawn(move || strike(nth))).collect();
    let tries: Vec<_> = hammers.into_iter().filter_map(|hammer| hammer.join().ok()).flatten().collect();
    let mut why: BTreeMap<String, u32> = BTreeMap::new();
    for error in tries.iter().filter_map(|(_, heard)| heard.err()) {
        *why.entry(error.to_string()).or_default() += 1;
    }
    match tries.iter().filter(|(_, heard)| heard.is_ok()).map(|(tried, _)| *tried).min() {
        Some(first) => format!("open after {} ms, of {} tries; before {why:?}\n", first.as_millis(), tries.len()),
        None => format!("closed for all of {} tries: {why:?}\n", tries.len()),
    }
}
