//! A Corefile served over real sockets on loopback, IPv4 and IPv6.

use super::direct::{around, built};
use super::fake::Engines;
use super::message::{Ask, answer, shown};
use super::told::LoggedText;
use crate::stub::{Over, TEST_TIMEOUT, Upstream, read_message, write_message};
use namewall_dns::{LearnNothing, Listen, Server, Settings, Sockets};
use namewall_dns_firewall::Built;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// An upstream that answers every question with these records.
pub(crate) fn upstream(lines: &'static [&'static str]) -> Upstream {
    Upstream::with(move |query, _: Over| vec![answer(query, lines)])
}

/// A server at ports that the kernel chose.
pub(crate) struct Live {
    pub(crate) server: Server<LearnNothing>,
    pub(crate) ports: Vec<u16>,
    pub(crate) told: LoggedText,
}

/// Sockets at both loopback addresses, at one port.
fn both() -> [Sockets; 2] {
    loop {
        let v4 = Sockets::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let port = v4.udp.local_addr().unwrap().port();
        if let Ok(v6) = Sockets::bind((Ipv6Addr::LOCALHOST, port).into()) {
            return [v4, v6];
        }
    }
}

impl Live {
    /// `PORT0` and `PORT1` in the text are ports to serve at; it is bound to loopback unless it says otherwise.
    pub(crate) fn start(text: &str) -> Self {
        Self::with_engines(text, &Engines::none())
    }

    pub(crate) fn with_engines(text: &str, engines: &Engines) -> Self {
        let mut sockets: Vec<Sockets> = Vec::new();
        let (mut ports, mut text) = (Vec::new(), text.to_owned());
        for at in 0..2 {
            let word = format!("PORT{at}");
            if text.contains(&word) {
                let pair = both();
                let port = pair[0].udp.local_addr().unwrap().port();
                text = text.replace(&word, &port.to_string());
                ports.push(port);
                sockets.extend(pair);
            }
        }
        let told = LoggedText::default();
        let mut around = around(&told);
        around.addresses.retain(|(name, _)| name == "lo");
        let Built { service, routes, listen, .. } =
            built(&text, &around, engines).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let sockets: Vec<(Sockets, Listen)> = sockets
            .into_iter()
            .map(|sockets| (sockets.udp.local_addr().unwrap(), sockets))
            .filter(|(at, _)| listen.contains(at))
            .map(|(at, sockets)| (sockets, at.into()))
            .collect();
        assert_eq!(sockets.len(), listen.len(), "it listens where there are sockets");
        let settings = Settings {
            listen: sockets.iter().map(|(_, listen)| *listen).collect(),
            routes,
            try_timeout: Duration::from_millis(300),
            ..Settings::default()
        };
        let server = Server::start_judged(settings, Some(Arc::new(service)), sockets, Arc::new(LearnNothing)).unwrap();
        Self { server, ports, told }
    }

    /// Where a question is sent: to the port of its number, at the loopback address of its client's version.
    fn at(&self, ask: &Ask, port: usize) -> SocketAddr {
        let address: IpAddr =
            if ask.client.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        (address, self.ports[port]).into()
    }

    /// A socket to ask from, and whom.
    pub(crate) fn socket(&self, ask: &Ask, port: usize) -> UdpSocket {
        // Other addresses of 127.0.0.0/8 are ours as well.
        let socket = UdpSocket::bind((ask.client.ip(), 0)).unwrap();
        socket.connect(self.at(ask, port)).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket
    }

    /// The reply's bytes; by TCP if the question says so.
    pub(crate) fn bytes(&self, question: &str, port: usize) -> Option<Vec<u8>> {
        let ask = Ask::from(question);
        if ask.over_tcp {
            let mut stream = TcpStream::connect(self.at(&ask, port)).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            write_message(&mut stream, &ask.query).unwrap();
            return read_message(&mut stream);
        }
        let socket = self.socket(&ask, port);
        socket.send(&ask.query).unwrap();
        receive(&socket)
    }

    pub(crate) fn ask_at(&self, question: &str, port: usize) -> String {
        self.bytes(question, port).map_or_else(|| "silence".to_owned(), |reply| shown(&reply))
    }

    pub(crate) fn ask(&self, question: &str) -> String {
        self.ask_at(question, 0)
    }

    /// Whether nothing comes for a while.
    pub(crate) fn is_silent(&self, question: &str) -> bool {
        let ask = Ask::from(question);
        let socket = self.socket(&ask, 0);
        socket.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
        socket.send(&ask.query).unwrap();
        receive(&socket).is_none()
    }
}

pub(crate) fn receive(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_535];
    let length = socket.recv(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}
