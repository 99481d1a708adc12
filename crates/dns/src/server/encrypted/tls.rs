//! DNS over TLS (RFC 7858): messages with their lengths before them, many under way at once, answers in any order.

use super::desk::{Outgoing, ReplyTo};
use super::slot::Slot;
use super::{Connected, Submitted};
use futures_util::future::{Either, select};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout, timeout_at};

/// Questions that may be under way over one connection; more wait unread.
const MOST_PIPELINED: usize = 128;
/// Read at once; a longer message takes several reads.
const READ: usize = 4 << 10;
/// Answers that are written together, in bytes.
const WRITTEN: usize = 16 << 10;

/// Serves one connection until either end has enough.
pub(super) async fn serve<S: AsyncRead + AsyncWrite>(stream: S, connected: Arc<Connected>) {
    let (reader, writer) = tokio::io::split(stream);
    let (answers, outgoing) = unbounded_channel();
    let idle = connected.idle();
    let reading = pin!(read(reader, answers, &connected));
    let writing = pin!(write(writer, outgoing, idle));
    // Who sends no more may still want its answers: they end when the last one is written.
    if let Either::Left(((), writing)) = select(reading, writing).await {
        let _ = timeout(idle, writing).await;
    }
}

async fn read(
    mut reader: impl AsyncRead + Unpin,
    answers: UnboundedSender<Option<Outgoing>>,
    connected: &Arc<Connected>,
) {
    let pipelined = Arc::new(Semaphore::new(MOST_PIPELINED));
    let mut input = Vec::new();
    loop {
        while let Some(length) = whole(&input) {
            let Ok(permit) = pipelined.clone().acquire_owned().await else { return };
            let slot = Slot::new(connected.activity.clone(), Some(permit));
            let reply_to = ReplyTo::Stream(answers.clone(), slot);
            // A question without room gets silence, as over UDP: the client asks again later.
            let (Submitted::Waits | Submitted::NoRoom) = connected.submit(&input[2..2 + length], reply_to);
            input.drain(..2 + length);
        }
        input.reserve(READ);
        let deadline = connected.activity.deadline(connected.idle());
        match timeout_at(deadline, reader.read_buf(&mut input)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => {}
            // Answers may have gone out meanwhile.
            Err(_) if connected.activity.deadline(connected.idle()) > Instant::now() => {}
            Err(_) => return,
        }
        // Bytes that make no whole message for so long are no use of a connection.
        if whole(&input).is_none() && connected.activity.deadline(connected.idle()) <= Instant::now() {
            return;
        }
    }
}

/// The length of the first message, if all of it is there.
fn whole(input: &[u8]) -> Option<usize> {
    let length = usize::from(u16::from_be_bytes(*input.first_chunk()?));
    (input.len() >= 2 + length).then_some(length)
}

async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: UnboundedReceiver<Option<Outgoing>>,
    patience: Duration,
) {
    let (mut output, mut slots) = (Vec::new(), Vec::new());
    while let Some(first) = outgoing.recv().await {
        let mut next = Some(first);
        while let Some(answer) = next {
            // It has left too many answers unread.
            let Some(Outgoing { message, slot }) = answer else { return };
            let Ok(length) = u16::try_from(message.len()) else { return };
            output.extend_from_slice(&length.to_be_bytes());
            output.extend_from_slice(&message);
            slots.push(slot);
            next = if output.len() < WRITTEN { outgoing.try_recv().ok() } else { None };
        }
        let written = async {
            writer.write_all(&output).await?;
            writer.flush().await
        };
        let Ok(io::Result::Ok(())) = timeout(patience, written).await else { return };
        output.clear();
        slots.clear();
    }
    let _ = timeout(patience, writer.shutdown()).await;
}
