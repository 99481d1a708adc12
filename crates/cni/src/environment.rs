//! What a runtime says by environment variables: the command, and for which
//! container.

use crate::attachment::AttachmentId;
use crate::error::{CniError, Code};
use std::path::PathBuf;

/// The variable that makes a process a plugin.
pub const COMMAND: &str = "CNI_COMMAND";
/// The longest name of an interface.
const LONGEST_INTERFACE: usize = 15;
/// The longest identifier that becomes part of a file's name.
const LONGEST_CONTAINER: usize = 200;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Add(Container),
    Delete(AttachmentId),
    Check(Container),
    /// Removes what belongs to no attachment that the configuration lists.
    CollectGarbage,
    Status,
    Version,
}

/// A container whose network is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    pub id: AttachmentId,
    /// Its network namespace.
    pub namespace: PathBuf,
    /// None for a container that is no pod.
    pub pod: Option<Pod>,
}

/// The pod that a container is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

impl Request {
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let container = || {
            let namespace = set("CNI_NETNS").ok_or_else(|| missing("CNI_NETNS"))?.into();
            Ok(Container { id: id(&set)?, namespace, pod: pod(&set("CNI_ARGS").unwrap_or_default())? })
        };
        match set(COMMAND).as_deref() {
            Some("ADD") => container().map(Self::Add),
            Some("CHECK") => container().map(Self::Check),
            Some("DEL") => id(&set).map(Self::Delete),
            Some("GC") => Ok(Self::CollectGarbage),
            Some("STATUS") => Ok(Self::Status),
            Some("VERSION") => Ok(Self::Version),
            Some(other) => {
                let message = format!("{COMMAND} `{other}` is unknown; use ADD, DEL, CHECK, GC, STATUS or VERSION");
                Err(CniError::new(Code::InvalidEnvironment, message))
            }
            None => Err(missing(COMMAND)),
        }
    }
}

fn missing(name: &str) -> CniError {
    CniError::new(Code::InvalidEnvironment, format!("{name} is not set"))
}

fn id(set: &dyn Fn(&str) -> Option<String>) -> Result<AttachmentId, CniError> {
    let read = |name: &str, is_good: fn(&str) -> bool, accepted: &str| {
        let value = set(name).ok_or_else(|| missing(name))?;
        let wrong = || CniError::new(Code::InvalidEnvironment, format!("{name} `{value}` is not accepted: {accepted}"));
        if is_good(&value) { Ok(value) } else { Err(wrong()) }
    };
    Ok(AttachmentId {
        container: read("CNI_CONTAINERID", is_container, "letters, digits, `_`, `.`, `-`, a letter or digit first")?,
        interface: read("CNI_IFNAME", is_interface, "at most 15 characters, without `/`, `:` and spaces")?,
    })
}

/// Identifiers become names of files.
pub(crate) fn is_container(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    text.len() <= LONGEST_CONTAINER
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && text.bytes().all(is_inner)
}

pub(crate) fn is_interface(text: &str) -> bool {
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    !text.is_empty() && text.len() <= LONGEST_INTERFACE && text != "." && text != ".." && !text.contains(is_bad)
}

/// The pod in `CNI_ARGS`, which are pairs like `K8S_POD_NAME=web`, set apart by semicolons.
fn pod(arguments: &str) -> Result<Option<Pod>, CniError> {
    let argument = |wanted: &str| {
        let mut pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, value)| *name == wanted && !value.is_empty()).map(|(_, value)| value.to_owned())
    };
    let Some(name) = argument("K8S_POD_NAME") else { return Ok(None) };
    let needed = |wanted: &str| {
        argument(wanted).ok_or_else(|| {
            let message = format!("CNI_ARGS have K8S_POD_NAME={name} and no {wanted}");
            CniError::new(Code::InvalidEnvironment, message)
                .with_details("the container runtime must say it: containerd 1.5, CRI-O 1.20 or newer do")
        })
    };
    let (namespace, uid) = (needed("K8S_POD_NAMESPACE")?, needed("K8S_POD_UID")?);
    Ok(Some(Pod { namespace, name, uid }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINERD: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
        K8S_POD_INFRA_CONTAINER_ID=8f3c;K8S_POD_UID=0c1f0b0e-6d7c-4bb0-8d6f-6f0b6b1c2d3e";

    fn read(set: &[(&str, &str)]) -> Result<Request, CniError> {
        Request::read(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    fn add<'a>(change: &[(&'a str, &'a str)]) -> Result<Request, CniError> {
        let usual = [
            (COMMAND, "ADD"),
            ("CNI_CONTAINERID", "8f3c"),
            ("CNI_NETNS", "/run/netns/cni-1"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", CONTAINERD),
        ];
        read(&[change, &usual].concat())
    }

    #[test]
    fn a_pod_is_read_as_containerd_says_it() {
        let Ok(Request::Add(container)) = add(&[]) else { panic!("it is an ADD") };
        assert_eq!((container.id.container.as_str(), container.id.interface.as_str()), ("8f3c", "eth0"));
        let pod = container.pod.expect("it is a pod");
        assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("shop", "web-0"));
        assert_eq!(pod.uid, "0c1f0b0e-6d7c-4bb0-8d6f-6f0b6b1c2d3e");
    }

    #[test]
    fn a_container_need_not_be_a_pod() {
        let Ok(Request::Add(container)) = add(&[("CNI_ARGS", "IgnoreUnknown=1")]) else { panic!("it is an ADD") };
        assert_eq!(container.pod, None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let message = |set: &[(&str, &str)]| add(set).expect_err("it is refused").message;
        assert_eq!(message(&[("CNI_NETNS", "")]), "CNI_NETNS is not set");
        assert!(message(&[(COMMAND, "PLUG")]).contains("`PLUG` is unknown"));
        assert!(message(&[("CNI_CONTAINERID", "../x")]).contains("CNI_CONTAINERID `../x` is not accepted"));
        assert!(message(&[("CNI_IFNAME", "a/b")]).contains("CNI_IFNAME"));
        assert!(message(&[("CNI_ARGS", "K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop")]).contains("no K8S_POD_UID"));
        assert_eq!(read(&[]).expect_err("no command").code, Code::InvalidEnvironment);
    }

    #[test]
    fn other_commands_need_less() {
        let delete = read(&[(COMMAND, "DEL"), ("CNI_CONTAINERID", "8f3c"), ("CNI_IFNAME", "eth0")]);
        assert!(matches!(delete, Ok(Request::Delete(id)) if id.container == "8f3c"));
        assert_eq!(read(&[(COMMAND, "GC")]), Ok(Request::CollectGarbage));
        assert_eq!(read(&[(COMMAND, "STATUS")]), Ok(Request::Status));
        assert_eq!(read(&[(COMMAND, "VERSION")]), Ok(Request::Version));
    }
}
