//! A forwarder that only copies: the least that a question costs on this kernel.
//!
//! It takes all datagrams that are there with one call and joins those that it sends, as namewall does. It reads two
//! bytes of a message, the id, and writes its own there. It has one port to the upstream, matches nothing, learns
//! nothing and bounds nothing. What a forwarder takes beyond that is its own; what this one takes is the kernel's.

use crate::datagrams::{self, Inbox, Outbox};
use crate::forwarder::{LISTEN, UPSTREAM};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockaddrIn;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;

/// Who asked under an id of ours, and the client's own id.
#[derive(Clone, Copy)]
struct Asked {
    from: SockaddrIn,
    id: [u8; 2],
}

/// The questions that were asked last, by our own ids.
struct Copier {
    asked: Vec<Option<Asked>>,
    next: u16,
}

impl Copier {
    fn new() -> Self {
        Self { asked: vec![None; 1 << 16], next: 0 }
    }

    /// Copies a question under an id of ours.
    fn question(&mut self, query: &[u8], from: SockaddrIn, out: &mut Vec<u8>) -> Option<()> {
        let id = *query.first_chunk()?;
        self.next = self.next.wrapping_add(1);
        self.asked[usize::from(self.next)] = Some(Asked { from, id });
        copy(query, self.next.to_be_bytes(), out)
    }

    /// Who asked what this answers, and under which id. Each is answered once.
    fn asker(&mut self, answer: &[u8]) -> Option<Asked> {
        self.asked[usize::from(u16::from_be_bytes(*answer.first_chunk()?))].take()
    }
}

/// A message under another id.
fn copy(message: &[u8], id: [u8; 2], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    out.extend_from_slice(&id);
    out.extend_from_slice(message.get(2..)?);
    Some(())
}

/// Forwards until the process is killed.
pub(crate) fn serve() -> Result<()> {
    let clients = datagrams::open(LISTEN).context("cannot listen")?;
    let upstream = datagrams::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).context("cannot open a socket")?;
    upstream.connect(UPSTREAM)?;
    let (mut copier, mut inbox, mut outbox) = (Copier::new(), Inbox::new(), Outbox::new());
    loop {
        let mut polled = [&clients, &upstream].map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let [has_questions, has_answers] = polled.map(|one| one.any() == Some(true));
        if has_questions {
            inbox.receive(&clients, |query, from| outbox.put(None, |out| copier.question(query, from, out)))?;
            outbox.send(&upstream)?;
        }
        if has_answers {
            inbox.receive(&upstream, |answer, _| {
                if let Some(Asked { from, id }) = copier.asker(answer) {
                    outbox.put(Some(from), |out| copy(answer, id, out));
                }
            })?;
            outbox.send(&clients)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_to_who_asked_under_the_id_it_was_asked_by() {
        let mut copier = Copier::new();
        let clients = [5_000, 5_001].map(|port| SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)));
        let asked = clients.map(|client| {
            let mut out = Vec::new();
            copier.question(b"IDquestion", client, &mut out).expect("it is long enough");
            out
        });
        assert!(asked.iter().all(|out| out[2..] == *b"question") && asked[0][..2] != asked[1][..2]);
        let answered = copier.asker(&asked[1]).expect("it was asked");
        assert_eq!((answered.from, answered.id), (clients[1], *b"ID"));
        assert!(copier.asker(&asked[1]).is_none(), "it is answered once");
        assert!(copier.asker(b"x").is_none() && copier.question(b"x", clients[0], &mut Vec::new()).is_none());
    }
}
