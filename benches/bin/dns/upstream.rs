//! The upstream of every forwarder: it knows all names and answers at once. It
//! is no thread of its own, but served by whoever sends the load, so that
//! neither waits for the other to be woken.

use crate::datagrams::{self, Inbox, Outbox};
use crate::wire::{Answers, answer};
use anyhow::{Context, Result};
use std::net::{SocketAddrV4, UdpSocket};

#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) socket: UdpSocket,
    pub(crate) answers: Answers,
    inbox: Inbox,
    outbox: Outbox,
}

impl Upstream {
    pub(crate) fn listen(at: SocketAddrV4) -> Result<Self> {
        let socket = datagrams::open(at).context("cannot listen as upstream")?;
        let answers = Answers { ttl: 60, aliased: false };
        Ok(Self { socket, answers, inbox: Inbox::new(), outbox: Outbox::new() })
    }

    /// Answers what is there, up to a batch.
    pub(crate) fn serve(&mut self) -> Result<()> {
        let Self { socket, answers, inbox, outbox } = self;
        inbox.receive(socket, |query, from| outbox.put(Some(from), |out| answer(query, *answers, out)))?;
        Ok(outbox.send(socket)?)
    }
}
