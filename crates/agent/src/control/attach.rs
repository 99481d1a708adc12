//! What the CNI plugin asks: `attach`, `detach` and `attached`; and `unreached` and
//! `reach`, by which somebody who may enter pods' network namespaces passes
//! sockets of them. Only root may: who attaches a pod says which address it has.

use crate::identity::Attachments;
use namewall_cni::{Attachment, AttachmentId};
use namewall_dataplane::netlink::PodSockets;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a plugin waits that does not say it.
const USUAL: u64 = 10_000;

pub(super) fn is_attach(question: &Value) -> bool {
    ["attach", "detach", "attached", "unreached", "reach"].iter().any(|verb| question.get(verb).is_some())
}

pub(super) fn answer(
    attachments: &Attachments,
    stream: &UnixStream,
    question: &Value,
    descriptors: Vec<OwnedFd>,
) -> Result<Value, String> {
    let user = getsockopt(stream, PeerCredentials).map_err(|errno| format!("cannot tell who asks: {errno}"))?.uid();
    if user != 0 {
        return Err(format!("only root may attach pods, and this is user {user}"));
    }
    if let Some(attachment) = question.get("attach") {
        let attachment: Attachment = read(attachment)?;
        let patience = Duration::from_millis(question["milliseconds"].as_u64().unwrap_or(USUAL));
        // A plugin of an earlier version passes none.
        let sockets = PodSockets::received(descriptors);
        let is_inside = sockets.is_some();
        attachments.attach(attachment, sockets, patience).map_err(|error| error.to_string())?;
        return Ok(json!({"enforced": true, "inside": is_inside}));
    }
    if question.get("unreached").is_some() {
        let unreached = attachments.unreached();
        let listed = unreached.iter().map(|(id, netns)| json!({"id": id, "netns": netns}));
        return Ok(json!({"unreached": listed.collect::<Vec<_>>()}));
    }
    if let Some(id) = question.get("reach") {
        let sockets = PodSockets::received(descriptors).ok_or("there are no sockets with it")?;
        return Ok(json!({"reached": attachments.reach(&read::<AttachmentId>(id)?, sockets)}));
    }
    if let Some(id) = question.get("detach") {
        return Ok(json!({"detached": attachments.detach(&read::<AttachmentId>(id)?)}));
    }
    match question.get("attached") {
        Some(Value::Null) | None => Ok(json!({})),
        Some(id) => Ok(json!({"enforced": attachments.is_enforced(&read::<AttachmentId>(id)?)})),
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("it cannot read this: {error}; is it another version of namewall?"))
}
