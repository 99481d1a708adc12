//! One question from the control socket, with the file descriptors that came
//! with it.

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// More file descriptors than this come with no question. The kernel closes the rest.
const MOST_DESCRIPTORS: usize = 8;

pub(super) struct Received {
    /// Without the end of its line.
    pub(super) question: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Reads a line of at most this length. None if nothing was sent.
pub(super) fn receive(stream: &UnixStream, longest: usize) -> io::Result<Option<Received>> {
    let (mut question, mut descriptors) = (Vec::new(), Vec::new());
    let mut part = vec![0; 8 << 10];
    while question.len() < longest {
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let length = match recvmsg(stream, &mut [IoSliceMut::new(&mut part)], &mut ancillary, flags) {
            Ok(received) => received.bytes,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = message {
                descriptors.extend(some);
            }
        }
        let text = &part[..length];
        match text.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                question.extend_from_slice(&text[..end]);
                break;
            }
            None if text.is_empty() => break,
            None => question.extend_from_slice(text),
        }
    }
    Ok((!question.is_empty()).then_some(Received { question, descriptors }))
}
