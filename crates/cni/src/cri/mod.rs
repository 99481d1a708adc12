//! What the container runtime says of its pods, by the Container Runtime
//! Interface (CRI): a gRPC service at a unix socket, which containerd and CRI-O
//! serve.
//!
//! A pod cannot change what the runtime says of it. `message` reads and writes
//! the few messages that are needed, without I/O; `grpc` exchanges them.

mod grpc;
pub mod message;

pub use grpc::CriError;
pub use message::PodSandbox;

use std::path::Path;
use std::time::Duration;

/// The sandboxes of all pods that run, as the runtime at this socket says. It may take this long in all.
pub fn sandboxes(socket: &Path, patience: Duration) -> Result<Vec<PodSandbox>, CriError> {
    grpc::within(socket, patience, async |runtime| {
        let list = runtime.call("ListPodSandbox", &message::list_ready()).await?;
        let mut found = Vec::new();
        for id in message::ids(&list)? {
            // One that has ended meanwhile is left out: the runtime does not know it any more.
            let status = match runtime.call("PodSandboxStatus", &message::status_of(&id)).await {
                Err(CriError::Refused { code, .. }) if code == grpc::NOT_FOUND => continue,
                status => status?,
            };
            found.extend(message::sandbox(&status)?);
        }
        Ok(found)
    })
}

#[cfg(test)]
mod tests;
