//! What a container runtime says to the CNI plugin on standard input, and
//! configurations that the plugin is chained into: read or refused. What is read
//! has no address that cannot be a pod's, and what is chained ends in the plugin.

use namewall_cni::cri::message;
use namewall_cni::environment::{COMMAND, Container, Request};
use namewall_cni::network::NetworkConfig;
use namewall_cni::result::PodEnd;
use namewall_cni::{NAME, VERSIONS, chain};
use serde_json::{Value, json};

pub fn cni(bytes: &[u8]) {
    // What a container runtime answers.
    if let (Ok(_), Ok(Some(sandbox))) = (message::ids(bytes), message::sandbox(bytes)) {
        assert!(sandbox.id.len() <= bytes.len() && sandbox.addresses.len() <= bytes.len());
    }
    let container = container(bytes);
    if let Ok(config) = NetworkConfig::read(bytes) {
        assert!(VERSIONS.contains(&config.version.as_str()));
        assert!(config.socket.is_absolute() && config.records.is_absolute());
        let end = config.previous.as_ref().and_then(|result| PodEnd::read(result, &container).ok());
        for address in end.into_iter().flat_map(|end| end.addresses) {
            assert!(!address.is_unspecified() && !address.is_loopback() && !address.is_multicast());
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(chained) = chain::chained(text, &json!({"type": NAME})) else { return };
    let list: Value = serde_json::from_str(&chained).expect("it is JSON");
    let plugins = list["plugins"].as_array().expect("it lists plugins");
    assert!(plugins.len() > 1 && plugins[plugins.len() - 1]["type"] == NAME);
    let again = chain::chained(&chained, &json!({"type": NAME}));
    assert_eq!(again, Err(chain::ChainError::Chained));
}

/// The bytes as CNI_ARGS, which are read or refused.
fn container(bytes: &[u8]) -> Container {
    let arguments = String::from_utf8_lossy(bytes).into_owned();
    let read = |arguments: &str| {
        Request::read(|name| {
            Some(match name {
                COMMAND => "ADD".to_owned(),
                "CNI_CONTAINERID" => "c1".to_owned(),
                "CNI_IFNAME" => "eth0".to_owned(),
                "CNI_NETNS" => "/run/netns/a".to_owned(),
                _ => arguments.to_owned(),
            })
        })
    };
    let Ok(Request::Add(container)) = read(&arguments).or_else(|_| read("")) else { unreachable!("it is an ADD") };
    container
}
