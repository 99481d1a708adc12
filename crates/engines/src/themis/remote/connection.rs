//! Keeps one server connected: dials, waits until the connection ends, dials
//! again, less often while nothing is answered.

use super::pool::Pool;
use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

const DIAL: Duration = Duration::from_secs(2);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
const MOST_HEADERS: u32 = 16 << 10;

pub(super) async fn keep(pool: Rc<Pool>, at: usize) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        if let Ok(Ok((sender, connection))) = timeout(DIAL, dial(pool.address(at))).await {
            let close = pool.connected(at, sender.clone());
            hold(sender, connection, &close).await;
            if pool.disconnected(at) {
                pause = SHORTEST_PAUSE;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

type Link = (SendRequest<Bytes>, Connection<TcpStream, Bytes>);

async fn dial(address: &str) -> io::Result<Link> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let handshake = Builder::new().enable_push(false).max_header_list_size(MOST_HEADERS).handshake(stream);
    handshake.await.map_err(io::Error::other)
}

/// Until the connection ends, is told to, or takes no new streams because the server goes away; then
/// those that are open are still served, for a while.
async fn hold(mut sender: SendRequest<Bytes>, connection: Connection<TcpStream, Bytes>, close: &Notify) {
    let mut connection = Box::pin(connection);
    let goes_away = {
        let mut close = pin!(close.notified());
        poll_fn(|context| {
            if connection.as_mut().poll(context).is_ready() || close.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            match sender.poll_ready(context) {
                Poll::Ready(Err(_)) => Poll::Ready(true),
                _ => Poll::Pending,
            }
        })
        .await
    };
    if goes_away {
        spawn_local(timeout(LONGEST_PAUSE, connection));
    }
}
