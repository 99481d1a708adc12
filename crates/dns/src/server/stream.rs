//! The bytes of a connection: as they are, or within TLS (RFC 7858). Nothing here waits.

use super::settings::Tls;
use rustls::ClientConnection;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;

#[derive(Debug)]
pub(super) struct Stream {
    pub(super) tcp: TcpStream,
    session: Option<Box<ClientConnection>>,
}

impl Stream {
    pub(super) fn plain(tcp: TcpStream) -> Self {
        Self { tcp, session: None }
    }

    /// The handshake goes along with the first bytes that are written and read.
    pub(super) fn within(tcp: TcpStream, tls: &Tls) -> io::Result<Self> {
        let session = ClientConnection::new(tls.config.clone(), tls.name.clone()).map_err(io::Error::other)?;
        Ok(Self { tcp, session: Some(Box::new(session)) })
    }

    /// Takes some of the bytes, which may still have to be flushed.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.tcp.write(bytes) };
        match session.writer().write(bytes)? {
            // There is no room until some of it has gone out.
            0 => {
                self.flush()?;
                Err(io::ErrorKind::WouldBlock.into())
            }
            count => Ok(count),
        }
    }

    /// Sends what was taken, as far as the other end takes it.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(session) = &mut self.session else { return Ok(()) };
        while session.wants_write() {
            if session.write_tls(&mut self.tcp)? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Whether there is something to send that nobody has to write.
    pub(super) fn must_flush(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Reads once, by way of a buffer. False at the end of the stream.
    pub(super) fn read(&mut self, buffer: &mut [u8], input: &mut Vec<u8>) -> io::Result<bool> {
        let Some(session) = &mut self.session else {
            let count = self.tcp.read(buffer)?;
            input.extend_from_slice(&buffer[..count]);
            return Ok(count > 0);
        };
        let count = session.read_tls(&mut self.tcp)?;
        if let Err(error) = session.process_new_packets() {
            // The other end is told why, if it still listens.
            let _ = session.write_tls(&mut self.tcp);
            return Err(io::Error::other(error));
        }
        // All of it: nobody tells that there is more once it has been taken from the socket.
        loop {
            match session.reader().read(buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => input.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count > 0),
                // Messages have their lengths before them: one that is cut off is seen without a goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells the other end that no more will come.
    pub(super) fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.send_close_notify();
            let _ = self.flush();
        }
    }
}
