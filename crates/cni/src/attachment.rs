//! A pod at its interface: what the plugin tells the agent and writes down.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// One interface of one container, as a runtime names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AttachmentId {
    pub container: String,
    /// Its name inside the pod.
    pub interface: String,
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.interface, self.container)
    }
}

/// The host's end of a pod's interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostLink {
    pub name: String,
    pub index: u32,
}

/// The hardware address of the pod's end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no hardware address like 0a:58:0a:f4:01:05")]
pub struct NotAMac(String);

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let wrong = || NotAMac(text.to_owned());
        let bytes: Vec<u8> = text
            .split(':')
            .map(|part| if part.len() == 2 { u8::from_str_radix(part, 16).map_err(|_| wrong()) } else { Err(wrong()) })
            .collect::<Result<_, _>>()?;
        <[u8; 6]>::try_from(bytes).map(Self).map_err(|_| wrong())
    }
}

impl TryFrom<String> for Mac {
    type Error = NotAMac;

    fn try_from(text: String) -> Result<Self, NotAMac> {
        text.parse()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

/// A pod at its interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    #[serde(flatten)]
    pub id: AttachmentId,
    /// The network, as its configuration is called.
    pub network: String,
    /// The pod's namespace, name and uid.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The pod's network namespace.
    pub netns: PathBuf,
    /// None where the host has no end of it, as of a macvlan.
    pub host: Option<HostLink>,
    /// None where the network has none, as of a tunnel.
    pub mac: Option<Mac>,
    pub addresses: Vec<IpAddr>,
    /// True if the agent has said that its tables are in the pod's network namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_inside: bool,
}

impl Attachment {
    /// True if its addresses are the pod's own. Those of a second network are not (S1.9).
    pub fn is_own(&self) -> bool {
        self.id.interface == crate::OWN_INTERFACE
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn attachment() -> Attachment {
        Attachment {
            id: AttachmentId { container: "8f3c".to_owned(), interface: "eth0".to_owned() },
            network: "pods".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            uid: "0c1f".to_owned(),
            netns: "/run/netns/cni-1".into(),
            host: Some(HostLink { name: "veth1".to_owned(), index: 7 }),
            mac: Some(Mac([0x0a, 0x58, 0x0a, 0xf4, 1, 5])),
            addresses: vec![[10, 244, 1, 5].into()],
            is_inside: false,
        }
    }

    #[test]
    fn an_attachment_is_json_and_back() {
        let one = attachment();
        let text = serde_json::to_string(&one).expect("it is JSON");
        expect_test::expect![[r#"{"container":"8f3c","interface":"eth0","network":"pods","namespace":"shop","name":"web","uid":"0c1f","netns":"/run/netns/cni-1","host":{"name":"veth1","index":7},"mac":"0a:58:0a:f4:01:05","addresses":["10.244.1.5"]}"#]]
        .assert_eq(&text);
        assert_eq!(serde_json::from_str::<Attachment>(&text).expect("it is read"), one);
    }

    #[test]
    fn a_hardware_address_is_six_bytes() {
        for wrong in
            ["", "0a:58:0a:f4:01", "0a:58:0a:f4:01:05:06", "0a:58:0a:f4:01:zz", "+a:58:0a:f4:01:5", "00:0:0:0:0:0"]
        {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
        assert_eq!("0A:58:0a:F4:01:05".parse(), Ok(Mac([0x0a, 0x58, 0x0a, 0xf4, 1, 5])));
    }
}
