//! The runtime's network configuration with this plugin appended: pure.

use crate::{NAME, VERSIONS};
use serde_json::{Map, Value, json};

/// The names that a chained configuration may have. Runtimes take the first file by name.
pub const FILES: [&str; 2] = ["00-namewall.conflist", "0-namewall.conflist"];

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChainError {
    #[error("it is no JSON object")]
    NotAnObject,
    #[error("it lists no plugins")]
    NoPlugins,
    #[error("its cniVersion is `{0}`, by which no result is passed on; use one of {known}", known = VERSIONS.join(", "))]
    Version(String),
    #[error("it has {NAME} already")]
    Chained,
    #[error("no name of ours sorts before it; rename it, for instance to 10-{0}")]
    First(String),
}

/// A configuration with this plugin as its last. A single plugin becomes a list.
pub fn chained(text: &str, plugin: &Value) -> Result<String, ChainError> {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(text) else { return Err(ChainError::NotAnObject) };
    if !fields.contains_key("plugins") {
        fields = list_of(fields)?;
    }
    version(&fields)?;
    let Some(Value::Array(plugins)) = fields.get_mut("plugins") else { return Err(ChainError::NoPlugins) };
    if plugins.is_empty() {
        return Err(ChainError::NoPlugins);
    }
    if plugins.iter().any(|one| one["type"] == NAME) {
        return Err(ChainError::Chained);
    }
    plugins.push(plugin.clone());
    Ok(format!("{:#}\n", Value::Object(fields)))
}

/// A list with one plugin.
fn list_of(plugin: Map<String, Value>) -> Result<Map<String, Value>, ChainError> {
    if !plugin.get("type").is_some_and(Value::is_string) {
        return Err(ChainError::NoPlugins);
    }
    let field = |key: &str| plugin.get(key).cloned().unwrap_or_default();
    let list = json!({"cniVersion": field("cniVersion"), "name": field("name"), "plugins": [plugin]});
    let Value::Object(list) = list else { return Err(ChainError::NotAnObject) };
    Ok(list)
}

/// A version that passes results on to the next plugin. Since 1.1.0 a configuration may list several.
fn version(fields: &Map<String, Value>) -> Result<(), ChainError> {
    let listed = fields.get("cniVersions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let said = fields.get("cniVersion").into_iter().chain(listed).filter_map(Value::as_str);
    let said: Vec<&str> = said.collect();
    if said.iter().any(|version| VERSIONS.contains(version)) {
        return Ok(());
    }
    Err(ChainError::Version(said.join(", ")))
}

/// The name for a chained copy of a file, so that it comes before that file.
pub fn file_before(original: &str) -> Result<&'static str, ChainError> {
    let before = FILES.into_iter().find(|name| *name < original);
    before.ok_or_else(|| ChainError::First(original.to_owned()))
}

/// True if runtimes would read a file of this name as a configuration, and it is not ours.
pub fn is_configuration(name: &str) -> bool {
    let extensions = [".conf", ".conflist", ".json"];
    extensions.iter().any(|extension| name.ends_with(extension)) && !FILES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn chain(text: &str) -> Result<String, ChainError> {
        chained(text, &json!({"type": NAME, "whenAgentAway": "deny"}))
    }

    #[test]
    fn a_list_gets_one_more_plugin_and_keeps_the_rest() {
        let list = r#"{"cniVersion": "0.4.0", "name": "pods", "disableCheck": true,
            "plugins": [{"type": "bridge", "mtu": 1450}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
        expect![[r#"
            {
              "cniVersion": "0.4.0",
              "name": "pods",
              "disableCheck": true,
              "plugins": [
                {
                  "type": "bridge",
                  "mtu": 1450
                },
                {
                  "type": "portmap",
                  "capabilities": {
                    "portMappings": true
                  }
                },
                {
                  "type": "namewall",
                  "whenAgentAway": "deny"
                }
              ]
            }
        "#]]
        .assert_eq(&chain(list).expect("it is chained"));
    }

    #[test]
    fn a_single_plugin_becomes_a_list() {
        let chained = chain(r#"{"cniVersion": "1.0.0", "name": "pods", "type": "ptp"}"#).expect("it is chained");
        let chained: Value = serde_json::from_str(&chained).expect("it is JSON");
        assert_eq!((&chained["cniVersion"], &chained["name"]), (&"1.0.0".into(), &"pods".into()));
        assert_eq!((&chained["plugins"][0]["type"], &chained["plugins"][1]["type"]), (&"ptp".into(), &NAME.into()));
    }

    #[test]
    fn what_cannot_be_chained_says_why() {
        let why = |text: &str| chain(text).expect_err(text);
        assert_eq!(why("{"), ChainError::NotAnObject);
        assert_eq!(why("[]"), ChainError::NotAnObject);
        assert_eq!(why(r#"{"cniVersion": "1.0.0"}"#), ChainError::NoPlugins);
        assert_eq!(why(r#"{"cniVersion": "1.0.0", "plugins": []}"#), ChainError::NoPlugins);
        assert_eq!(why(r#"{"plugins": [{"type": "ptp"}]}"#), ChainError::Version(String::new()));
        assert_eq!(why(r#"{"cniVersion": "2.0.0", "type": "ptp"}"#), ChainError::Version("2.0.0".to_owned()));
        assert_eq!(why(r#"{"cniVersion": "1.0.0", "plugins": [{"type": "namewall"}]}"#), ChainError::Chained);
        let several = r#"{"cniVersion": "1.2.0", "cniVersions": ["1.2.0", "1.1.0"], "plugins": [{"type": "ptp"}]}"#;
        assert!(chain(several).is_ok());
    }

    #[test]
    fn our_file_comes_before_the_other() {
        assert_eq!(file_before("10-calico.conflist"), Ok("00-namewall.conflist"));
        assert_eq!(file_before("00-multus.conf"), Ok("0-namewall.conflist"));
        assert!(file_before("!first.conf").is_err());
        assert!(is_configuration("87-podman.conflist") && !is_configuration(FILES[0]) && !is_configuration("x.bak"));
    }
}
