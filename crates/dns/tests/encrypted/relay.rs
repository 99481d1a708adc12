//! Passes connections on to a server, until a test cuts them off.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// One for each connection that was accepted.
    accepted: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Its threads end with the process, and with their connections.
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, accepted) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let all = accepted.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map(Result::unwrap) {
                let server = TcpStream::connect(server).unwrap();
                all.lock().unwrap().push(client.try_clone().unwrap());
                copy(&client, &server);
                copy(&server, &client);
            }
        });
        Self { address, accepted }
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.lock().unwrap().len()
    }

    /// Closes all connections. New ones are still accepted.
    pub(crate) fn cut(&self) {
        self.accepted.lock().unwrap().iter().for_each(|one| one.shutdown(Shutdown::Both).unwrap_or_default());
    }
}

fn copy(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ended = std::io::copy(&mut from, &mut to);
        let _closed = to.shutdown(Shutdown::Both);
    });
}
