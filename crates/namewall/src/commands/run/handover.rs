//! One namewall takes over from another: the sockets where DNS is served pass
//! from process to process, with all that waits in them.
//!
//! ```text
//! new  reads and compiles ── asks ·························· sockets ── waits for its end ── adopts the table, serves
//! old                          takes no more, finishes what is under way ──┘ ends
//! ```

use super::client::socket_path;
use anyhow::{Context, Result, bail, ensure};
use namewall_dns::{Listen, Sockets};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde_json::{Value, json};
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Sockets that can go in one message.
const MOST: usize = 250;
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the one that runs to hand over, and waits until it has ended.
pub(super) fn take_over() -> Result<Vec<(Sockets, Listen)>> {
    let path = socket_path()?;
    let Ok(mut stream) = UnixStream::connect(&path) else { return Ok(Vec::new()) };
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", json!({"handOver": true})).context("the namewall that runs does not answer")?;
    let mut text = vec![0; 64 << 10];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let told = recvmsg(&stream, &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .context("the namewall that runs does not hand over")?;
    let mut handed: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            handed.extend(descriptors);
        }
    }
    let told: Value =
        serde_json::from_slice(&text[..told.bytes]).context("the namewall that runs does not hand over")?;
    if let Some(error) = told["error"].as_str() {
        bail!("{error}");
    }
    let listens = told["sockets"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(handed.len() == 2 * listens.len(), "the namewall that runs handed over something else than its sockets");
    let mut handed = handed.into_iter();
    let mut sockets = Vec::new();
    for listen in listens {
        let address = |key: &str| listen[key].as_str().and_then(|text| text.parse().ok());
        let (Some(udp), Some(tcp), Some(at)) = (handed.next(), handed.next(), address("address")) else { break };
        let own = Sockets { udp: UdpSocket::from(udp), tcp: TcpListener::from(tcp) };
        let is_open = listen["open"].as_bool() == Some(true);
        sockets.push((own, Listen { address: at, meant: address("meant"), is_open }));
    }
    // The table is ours to change when the other is gone.
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).context("the namewall that runs does not end")?;
    Ok(sockets)
}

/// Hands the sockets to whoever asked.
pub(super) fn hand_over(stream: &UnixStream, sockets: &[(Sockets, Listen)]) -> Result<()> {
    ensure!(2 * sockets.len() <= MOST, "it has too many sockets to hand over");
    let told = json!({"sockets": sockets.iter().map(|(_, listen)| json!({
        "address": listen.address.to_string(), "meant": listen.meant.map(|server| server.to_string()), "open": listen.is_open,
    })).collect::<Vec<_>>()});
    let descriptors: Vec<BorrowedFd<'_>> =
        sockets.iter().flat_map(|(own, _)| [own.udp.as_fd(), own.tcp.as_fd()]).collect();
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    ensure!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)), "it has too many sockets to hand over");
    let text = told.to_string();
    sendmsg(stream, &[IoSlice::new(text.as_bytes())], &mut ancillary, SendFlags::empty())?;
    Ok(())
}
