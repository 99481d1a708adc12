//! The network configuration on standard input.

use crate::attachment::AttachmentId;
use crate::error::{CniError, Code};
use crate::{RECORDS, SOCKET, VERSIONS};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time a pod may wait for the agent: runtimes give up after two minutes.
const LONGEST_TIMEOUT: u64 = 100;
const TIMEOUT: Duration = Duration::from_secs(10);

/// What to do with a new pod while no agent answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenAgentAway {
    /// The pod does not start; kubelet tries again.
    Deny,
    /// The pod starts, and is closed until an agent knows its address.
    Allow,
}

/// The configuration of one call.
#[derive(Clone, PartialEq, Debug)]
pub struct NetworkConfig {
    pub version: String,
    /// The network's name.
    pub name: String,
    /// What the plugins before this one have done, as it was given.
    pub previous: Option<Value>,
    /// Where the agent answers.
    pub socket: PathBuf,
    /// Where records are.
    pub records: PathBuf,
    /// How long to wait for the agent.
    pub timeout: Duration,
    pub when_agent_away: WhenAgentAway,
    /// The attachments that exist, for GC. None if they are not listed.
    pub valid: Option<BTreeSet<AttachmentId>>,
}

impl NetworkConfig {
    pub fn read(text: &[u8]) -> Result<Self, CniError> {
        let undecodable = |error| CniError::new(Code::Undecodable, format!("the configuration is no JSON: {error}"));
        let tree: Value = serde_json::from_slice(text).map_err(undecodable)?;
        let Value::Object(fields) = tree else {
            return Err(CniError::new(Code::Undecodable, "the configuration is no JSON object"));
        };
        let version = version(&fields)?;
        let text = |key: &str, usual: &str| match fields.get(key) {
            None | Some(Value::Null) => Ok(usual.to_owned()),
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(other) => Err(wrong(key, other, "a text")),
        };
        let path = |key: &str, usual: &str| match text(key, usual)? {
            path if path.starts_with('/') => Ok(PathBuf::from(path)),
            other => Err(wrong(key, &other.into(), "an absolute path")),
        };
        let when_agent_away = match text("whenAgentAway", "deny")?.as_str() {
            "deny" => WhenAgentAway::Deny,
            "allow" => WhenAgentAway::Allow,
            other => return Err(wrong("whenAgentAway", &other.into(), "deny or allow")),
        };
        let timeout = match fields.get("timeoutSeconds") {
            None | Some(Value::Null) => TIMEOUT,
            Some(value) => match value.as_u64() {
                Some(seconds @ 1..=LONGEST_TIMEOUT) => Duration::from_secs(seconds),
                _ => return Err(wrong("timeoutSeconds", value, "a number from 1 to 100")),
            },
        };
        let previous = match fields.get("prevResult") {
            None | Some(Value::Null) => None,
            Some(result @ Value::Object(_)) => Some(result.clone()),
            Some(other) => return Err(wrong("prevResult", other, "an object")),
        };
        Ok(Self {
            version,
            name: text("name", "")?,
            previous,
            socket: path("socket", SOCKET)?,
            records: path("records", RECORDS)?,
            timeout,
            when_agent_away,
            valid: valid(&fields)?,
        })
    }
}

/// The version that a configuration is of. VERSION is asked for without the rest.
pub fn version(fields: &Map<String, Value>) -> Result<String, CniError> {
    let said = fields.get("cniVersion").and_then(Value::as_str).unwrap_or_default();
    if VERSIONS.contains(&said) {
        return Ok(said.to_owned());
    }
    let message = format!("cniVersion `{said}` is not spoken; use one of {}", VERSIONS.join(", "));
    Err(CniError::new(Code::IncompatibleVersion, message))
}

fn wrong(key: &str, value: &Value, accepted: &str) -> CniError {
    CniError::new(Code::InvalidNetwork, format!("`{key}` is {value}; use {accepted}"))
}

/// What GC is told that exists. A list that cannot be read is an error: by an empty one everything would go.
fn valid(fields: &Map<String, Value>) -> Result<Option<BTreeSet<AttachmentId>>, CniError> {
    let key = "cni.dev/valid-attachments";
    let items = match fields.get(key) {
        None => return Ok(None),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong(key, other, "a list of attachments")),
    };
    let read = |item: &Value| {
        let text = |field: &str| item[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (container, interface) = (text("containerID"), text("ifname"));
        let id = container.zip(interface).map(|(container, interface)| AttachmentId { container, interface });
        id.ok_or_else(|| wrong(key, item, "containerID and ifname for each"))
    };
    items.iter().map(read).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(change: &Value) -> Result<NetworkConfig, CniError> {
        let mut config = json!({"cniVersion": "1.0.0", "name": "pods", "type": "namewall"});
        for (key, value) in change.as_object().expect("an object") {
            config[key] = value.clone();
        }
        NetworkConfig::read(config.to_string().as_bytes())
    }

    #[test]
    fn without_settings_an_agent_that_is_away_denies() {
        let config = read(&json!({})).expect("it is read");
        assert_eq!((config.when_agent_away, config.timeout), (WhenAgentAway::Deny, TIMEOUT));
        assert_eq!(config.socket, PathBuf::from("/run/namewall/run.sock"));
        assert_eq!(config.records, PathBuf::from("/run/namewall/attachments"));
        assert_eq!((config.previous, config.valid), (None, None));
    }

    #[test]
    fn settings_are_read() {
        let set = json!({"whenAgentAway": "allow", "timeoutSeconds": 3, "socket": "/a/run.sock", "records": "/b"});
        let config = read(&set).expect("it is read");
        assert_eq!((config.when_agent_away, config.timeout), (WhenAgentAway::Allow, Duration::from_secs(3)));
        assert_eq!((config.socket, config.records), ("/a/run.sock".into(), "/b".into()));
    }

    #[test]
    fn a_setting_that_is_wrong_is_an_error_that_says_what_is_accepted() {
        let message = |change: Value| read(&change).expect_err("it is refused").message;
        assert_eq!(message(json!({"whenAgentAway": "open"})), "`whenAgentAway` is \"open\"; use deny or allow");
        assert!(message(json!({"timeoutSeconds": 0})).contains("from 1 to 100"));
        assert!(message(json!({"timeoutSeconds": "10"})).contains("from 1 to 100"));
        assert!(message(json!({"socket": "run.sock"})).contains("an absolute path"));
        assert!(message(json!({"prevResult": []})).contains("an object"));
        assert!(message(json!({"cniVersion": "0.2.0"})).contains("`0.2.0` is not spoken"));
        assert!(message(json!({"cniVersion": null})).contains("use one of 0.3.1"));
    }

    #[test]
    fn no_json_is_an_error() {
        for text in ["", "{", "[]", "null", "\u{0}"] {
            assert_eq!(NetworkConfig::read(text.as_bytes()).expect_err(text).code, Code::Undecodable);
        }
    }

    #[test]
    fn a_list_that_garbage_collection_cannot_read_is_no_empty_list() {
        let valid = |list: Value| read(&json!({"cni.dev/valid-attachments": list})).map(|config| config.valid);
        let one = AttachmentId { container: "8f3c".to_owned(), interface: "eth0".to_owned() };
        let listed = json!([{"containerID": "8f3c", "ifname": "eth0"}]);
        assert_eq!(valid(listed), Ok(Some(BTreeSet::from([one]))));
        assert_eq!(valid(json!([])), Ok(Some(BTreeSet::new())));
        assert!(valid(json!([{"containerID": "8f3c"}])).is_err());
        assert!(valid(json!({})).is_err());
    }
}
