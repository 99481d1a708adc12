//! Stands between a client and the API server, and makes trouble as it is told.

use crate::ControlPlane;
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::spawn;
use std::time::{Duration, Instant};

const CHUNK: usize = 16 << 10;
const MOMENT: Duration = Duration::from_millis(20);

/// What becomes of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyMode {
    Open,
    /// Each arrives so much later.
    Slow(Duration),
    /// Who connects is let in, and nothing arrives until the way is another: then all of it does.
    Stalled,
    /// Connections end with all that was on its way, and new ones end at once.
    Cut,
}

/// A way to the API server.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<ProxyState>,
}

#[derive(Debug)]
struct ProxyState {
    way: Mutex<ProxyMode>,
    changed: Condvar,
    /// Both ends of every connection, and whether it leads nowhere for ever.
    connections: Mutex<Vec<Arc<ProxiedConnection>>>,
}

#[derive(Debug)]
struct ProxiedConnection {
    ends: [TcpStream; 2],
    is_lost: Mutex<bool>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(ProxyMode::Cut);
    }
}

impl Proxy {
    /// At a loopback port of its own.
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        Self::at(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, plane)
    }

    /// Where somebody listens already: in another network namespace, say.
    pub fn at(listener: TcpListener, plane: &ControlPlane) -> Result<Self> {
        Self::to(listener, plane.port())
    }

    /// The same to a server at another port of this machine's loopback.
    pub fn to(listener: TcpListener, server: u16) -> Result<Self> {
        let port = listener.local_addr()?.port();
        let state = Arc::new(ProxyState {
            way: Mutex::new(ProxyMode::Open),
            changed: Condvar::new(),
            connections: Mutex::default(),
        });
        let accepting = state.clone();
        spawn(move || {
            for inside in listener.incoming().flatten() {
                if accepting.way() == ProxyMode::Cut {
                    continue;
                }
                let Ok(outside) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) else { continue };
                // It shall be no slower than it is told to be.
                let _ = inside.set_nodelay(true).and_then(|()| outside.set_nodelay(true));
                accepting.join(inside, outside);
            }
        });
        Ok(Self { port, state })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The administrator's, by this way.
    pub fn kubeconfig(&self, plane: &ControlPlane) -> Result<PathBuf> {
        plane.kubeconfig_at(self.port)
    }

    pub fn set(&self, way: ProxyMode) {
        *lock(&self.state.way) = way;
        self.state.changed.notify_all();
        if way == ProxyMode::Cut {
            for connection in lock(&self.state.connections).drain(..) {
                connection.ends.iter().for_each(|end| _ = end.shutdown(Shutdown::Both));
            }
        }
    }

    /// The connections there are lead nowhere from now on, and nobody is told: as when a device between has
    /// forgotten them. New ones are as they always are.
    pub fn lose_connections(&self) {
        for connection in lock(&self.state.connections).iter() {
            *lock(&connection.is_lost) = true;
        }
    }
}

impl ProxyState {
    fn way(&self) -> ProxyMode {
        *lock(&self.way)
    }

    fn join(self: &Arc<Self>, inside: TcpStream, outside: TcpStream) {
        let pair = |from: &TcpStream, to: &TcpStream| Ok::<_, std::io::Error>((from.try_clone()?, to.try_clone()?));
        let (Ok(there), Ok(back)) = (pair(&inside, &outside), pair(&outside, &inside)) else { return };
        let connection = Arc::new(ProxiedConnection { ends: [inside, outside], is_lost: Mutex::default() });
        lock(&self.connections).push(connection.clone());
        for (from, to) in [there, back] {
            let (arrive, leave) = channel();
            spawn(move || read(from, &arrive));
            let (state, connection) = (self.clone(), connection.clone());
            spawn(move || state.write(to, &leave, &connection));
        }
    }

    fn write(&self, mut to: TcpStream, chunks: &Receiver<(Instant, Vec<u8>)>, connection: &ProxiedConnection) {
        while let Ok((at, bytes)) = chunks.recv() {
            if !self.lets_pass(at) {
                break;
            }
            if *lock(&connection.is_lost) {
                continue;
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // Whoever has nothing more to say is heard to the end.
        let _ = to.shutdown(Shutdown::Write);
    }

    /// Waits until what came then may go on, if it may at all: what was held up must not slip through as the way is
    /// cut.
    fn lets_pass(&self, came: Instant) -> bool {
        let mut way = lock(&self.way);
        loop {
            let pause = match *way {
                ProxyMode::Open => return true,
                ProxyMode::Cut => return false,
                ProxyMode::Slow(late) if came.elapsed() >= late => return true,
                ProxyMode::Slow(late) => late.saturating_sub(came.elapsed()),
                ProxyMode::Stalled => MOMENT,
            };
            way = self.changed.wait_timeout(way, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn read(mut from: TcpStream, arrive: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if arrive.send((Instant::now(), buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(way: ProxyMode) -> Arc<ProxyState> {
        Arc::new(ProxyState { way: Mutex::new(way), changed: Condvar::new(), connections: Mutex::default() })
    }

    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn what_is_held_up_is_gone_with_a_way_that_is_cut() {
        let state = state(ProxyMode::Stalled);
        let (mut client, inside) = connection();
        let (outside, mut server) = connection();
        state.join(inside, outside);
        client.write_all(b"late").unwrap();
        std::thread::sleep(3 * MOMENT);
        // As `set` begins: the connections are not shut yet.
        *lock(&state.way) = ProxyMode::Cut;
        state.changed.notify_all();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!(server.read(&mut [0; 4]).unwrap(), 0, "it ends, and nothing has arrived");
    }
}
