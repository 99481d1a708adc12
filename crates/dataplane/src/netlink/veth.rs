//! Veths whose other end is in another network namespace: the links of pods.

use super::link::{
    GET_LINK, INFO_KIND, LINK_HARDWARE, LINK_HEADER, LINK_INFO, LINK_MASTER, LINK_NAME, LINK_NAMESPACE, LINK_PEER,
    NEW_LINK, index, request, uninterrupted,
};
use super::{ACK, Error, Messages, Received, Socket};
use crate::nft::rule::Hardware;
use nix::errno::Errno;
use std::collections::BTreeSet;

/// Asks about a link of the network namespace with this number.
const TARGET_NAMESPACE: u16 = 46;

pub(super) struct Veth {
    pub(super) name: String,
    pub(super) index: u32,
    /// True for a port of a bridge.
    pub(super) is_port: bool,
    peer: u32,
    namespace: u32,
}

impl Veth {
    /// None for other links, and for veths with both ends here.
    pub(super) fn read(message: Received<'_>) -> Option<Self> {
        let attributes = message.attributes(LINK_HEADER);
        let kind = attributes.nested(LINK_INFO).text(INFO_KIND);
        if message.kind != NEW_LINK || kind != Some("veth") {
            return None;
        }
        let native = |kind| attributes.get(kind).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
        let index = index(message)?;
        let name = attributes.text(LINK_NAME)?.to_owned();
        let is_port = attributes.get(LINK_MASTER).is_some();
        Some(Self { name, index, is_port, peer: native(LINK_PEER)?, namespace: native(LINK_NAMESPACE)? })
    }

    /// The hardware address of the other end. None if it is gone, or of a namespace that we have no right to ask about.
    pub(super) fn far_hardware(&self, socket: &mut Socket) -> Result<Option<Hardware>, Error> {
        let mut header = [0; LINK_HEADER];
        header[4..8].copy_from_slice(&self.peer.to_ne_bytes());
        let mut request = Messages::new();
        request.begin(GET_LINK, ACK, &header);
        request.native_u32(TARGET_NAMESPACE, self.namespace);
        let mut hardware = None;
        let asked = socket.commit_echoed(&request, |message| {
            let bytes = message.attributes(LINK_HEADER).get(LINK_HARDWARE);
            hardware = bytes.and_then(|bytes| bytes.try_into().ok()).map(Hardware);
        });
        match asked {
            Ok(()) => Ok(hardware),
            Err(Error::Refused { errno: Errno::ENODEV | Errno::EINVAL | Errno::EACCES | Errno::EPERM, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// All of them.
pub(super) fn veths(socket: &mut Socket) -> Result<Vec<Veth>, Error> {
    let request = request(GET_LINK, LINK_HEADER);
    uninterrupted(|| {
        let mut found = Vec::new();
        socket.dump(&request, |message| found.extend(Veth::read(message))).map(|()| found)
    })
}

/// The node's end of a pod's link, and the hardware address of the pod's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodLink {
    pub name: String,
    pub index: u32,
    pub hardware: Hardware,
}

/// Those of these links that lead to other network namespaces, and whose other end the kernel tells of.
pub fn pod_links(socket: &mut Socket, wanted: &BTreeSet<u32>) -> Result<Vec<PodLink>, Error> {
    let mut links = Vec::new();
    for veth in veths(socket)?.into_iter().filter(|veth| wanted.contains(&veth.index)) {
        if let Some(hardware) = veth.far_hardware(socket)? {
            links.push(PodLink { name: veth.name, index: veth.index, hardware });
        }
    }
    Ok(links)
}
