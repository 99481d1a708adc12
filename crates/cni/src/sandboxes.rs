//! The pods that a container runtime runs, each with the host's end of its
//! interface. Who may talk to the runtime is as good as root, so the agent does
//! not: another process asks the runtime and writes a file, which the agent
//! reads.

use crate::attachment::HostLink;
use crate::cri::{self, PodSandbox};
use crate::link::{HostEnds, LinkError};
use namewall_runtime::files::open_regular;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest file, in bytes. One that is longer is cut off, and cannot be read.
const LONGEST: u64 = 64 << 20;

/// The name of the file, in the folder of the agent's socket.
pub const FILE: &str = "sandboxes.json";

/// Where a runtime is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runtime {
    /// Its CRI socket.
    pub socket: PathBuf,
    /// The folder with the network namespaces of pods, as it is seen here.
    pub namespaces: PathBuf,
}

/// A pod that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLink {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The addresses that its network plugin has given it, as the runtime keeps them.
    pub addresses: Vec<IpAddr>,
    /// The host's end of its interface; None if it was not found.
    pub host: Option<HostLink>,
    /// Why it was not found.
    pub problem: Option<String>,
}

/// What a runtime says.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandboxes {
    pub socket: PathBuf,
    /// Why nothing is known.
    pub error: Option<String>,
    pub pods: Vec<SandboxLink>,
}

impl Sandboxes {
    /// Asks the runtime and the kernel. What fails is a part of the answer.
    pub fn find(runtime: &Runtime, patience: Duration) -> Self {
        let socket = runtime.socket.clone();
        let failed = |error: &dyn Error| Self { socket: socket.clone(), error: Some(causes(error)), pods: Vec::new() };
        let sandboxes = match cri::sandboxes(&runtime.socket, patience) {
            Ok(sandboxes) => sandboxes,
            Err(error) => return failed(&error),
        };
        // After the runtime was asked: links of its pods are there.
        let mut ends = match HostEnds::read() {
            Ok(ends) => ends,
            Err(error) => return failed(&error),
        };
        let mut pods: Vec<SandboxLink> =
            newest(sandboxes).into_iter().filter_map(|sandbox| located(sandbox, runtime, &mut ends)).collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Self { socket, error: None, pods }
    }

    /// This, or where it is an error, the error with the pods that were known before. An interface that is gone meanwhile
    /// is not found by its index and name.
    #[must_use]
    pub fn or_else(mut self, known: Option<Self>) -> Self {
        if self.error.is_some() {
            self.pods = known.map(|known| known.pods).unwrap_or(self.pods);
        }
        self
    }

    /// Writes the file, by a rename.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::remove_file(&new).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        io::Write::write_all(&mut file, &serde_json::to_vec(self)?)?;
        std::fs::rename(&new, path)
    }

    /// Reads the file. None if there is none: nobody asks a runtime on this node.
    pub fn read(path: &Path) -> Option<Self> {
        let unreadable = |why: String| {
            let error = Some(format!("cannot read {}: {why}", path.display()));
            Some(Self { error, ..Self::default() })
        };
        let read = || {
            let mut bytes = Vec::new();
            open_regular(path)?.take(LONGEST).read_to_end(&mut bytes).map(|_| bytes)
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => unreadable(error.to_string()),
            Ok(bytes) => serde_json::from_slice(&bytes).or_else(|error| unreadable(error.to_string()).ok_or(())).ok(),
        }
    }
}

/// Of several sandboxes of one pod the newest counts.
fn newest(mut sandboxes: Vec<PodSandbox>) -> Vec<PodSandbox> {
    let pod = |sandbox: &PodSandbox| (sandbox.namespace.clone(), sandbox.name.clone());
    sandboxes.sort_by_key(|sandbox| (pod(sandbox), std::cmp::Reverse(sandbox.created)));
    sandboxes.dedup_by_key(|sandbox| pod(sandbox));
    sandboxes
}

/// A sandbox with the host's end of its interface. None for a pod on the node's own network.
fn located(sandbox: PodSandbox, runtime: &Runtime, ends: &mut HostEnds) -> Option<SandboxLink> {
    let PodSandbox { namespace, name, uid, addresses, netns, .. } = sandbox;
    // The runtime names the file as the host sees it. Only its name counts here.
    let path = runtime.namespaces.join(netns?.file_name()?);
    let found = ends.of(&path).map_err(|error: LinkError| causes(&error)).and_then(|mut found| match found.len() {
        1 => found.pop().ok_or_else(String::new),
        0 => Err("its interface is no veth".to_owned()),
        // Which of them is the pod's own, and which a second network's, is the pod's word.
        _ => Err("it has several veths".to_owned()),
    });
    let (host, problem) = match found {
        Ok(link) => (Some(link), None),
        Err(problem) => (None, Some(problem)),
    };
    Some(SandboxLink { namespace, name, uid, addresses, host, problem })
}

fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str, name: &str, created: i64) -> PodSandbox {
        PodSandbox {
            id: id.to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: "u1".to_owned(),
            created,
            addresses: Vec::new(),
            netns: None,
        }
    }

    #[test]
    fn of_two_sandboxes_of_a_pod_the_newer_counts() {
        let found = newest(vec![sandbox("a", "web", 1), sandbox("b", "db", 1), sandbox("c", "web", 2)]);
        assert_eq!(found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn a_runtime_that_is_away_is_told_of_through_the_file() {
        let folder = std::env::temp_dir().join(format!("namewall-sandboxes-{}", std::process::id()));
        let file = folder.join(FILE);
        assert_eq!(Sandboxes::read(&file), None);
        let runtime = Runtime { socket: "/nonexistent/cri.sock".into(), namespaces: "/run/netns".into() };
        let found = Sandboxes::find(&runtime, Duration::from_secs(60));
        let error = found.error.clone().unwrap_or_default();
        assert!(error.contains("/nonexistent/cri.sock"), "{error}");
        found.write(&file).expect("it is written");
        found.write(&file).expect("it is written again");
        assert_eq!(Sandboxes::read(&file), Some(found));
        std::fs::write(&file, "{").expect("a file");
        let read = Sandboxes::read(&file).expect("there is a file");
        std::fs::remove_dir_all(&folder).ok();
        assert!(read.error.is_some_and(|error| error.contains(FILE)), "a file that cannot be read is an error");
    }
}

#[cfg(all(test, feature = "system"))]
mod system_tests;
