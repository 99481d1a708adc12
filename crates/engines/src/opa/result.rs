//! What a policy says.

use crate::EngineError;
use namewall_expression::Outcome;
use namewall_policy::addr::parse_address;
use regorus::Value;
use std::net::SocketAddr;

/// The result of a rule: a word, or an object with an `action`, and with `to` where that is `redirect`.
/// Nothing at all is the next rule's turn. Everything else is an error: a policy that says `Allow` means
/// something, and it is not ours to guess what.
pub(super) fn outcome(result: &Value) -> Result<Outcome, EngineError> {
    let read = match result {
        Value::Undefined => Some(Outcome::Undefined),
        Value::String(word) => plain(word),
        Value::Object(_) => object(result),
        _ => None,
    };
    read.ok_or_else(|| EngineError(format!("{} is no result: {EXPECTED}", excerpt(result))))
}

const EXPECTED: &str = "a policy says \"allow\", \"block\", \"refuse\", \"drop\" or \"log\", or \
                        {\"action\": \"redirect\", \"to\": ADDRESS}";

fn plain(word: &str) -> Option<Outcome> {
    let plain = [Outcome::Allow, Outcome::Block, Outcome::Refuse, Outcome::Drop, Outcome::Log];
    plain.into_iter().find(|outcome| outcome.word() == word)
}

fn object(result: &Value) -> Option<Outcome> {
    let text = |key: &str| result.as_object().ok()?.get(&Value::from(key))?.as_string().ok();
    let action = text("action")?;
    match (&**action, result.as_object().ok()?.len()) {
        ("redirect", 2) => server(text("to")?).map(Outcome::Redirect),
        (word, 1) => plain(word),
        _ => None,
    }
}

/// `192.0.2.1`, `192.0.2.1:53`, `2001:db8::1` or `[2001:db8::1]:53`.
fn server(text: &str) -> Option<SocketAddr> {
    match parse_address(text) {
        Some(address) => Some(SocketAddr::new(address, 53)),
        None => text.parse().ok().filter(|server: &SocketAddr| server.port() > 0),
    }
}

fn excerpt(result: &Value) -> String {
    let text = result.to_string();
    match text.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results() {
        let read = |json: &str| outcome(&Value::from_json_str(json).unwrap()).map(|outcome| outcome.to_string()).ok();
        for (json, expected) in [
            (r#""allow""#, Some("allow")),
            (r#""block""#, Some("block")),
            (r#""refuse""#, Some("refuse")),
            (r#""drop""#, Some("drop")),
            (r#""log""#, Some("log")),
            (r#"{"action":"block"}"#, Some("block")),
            (r#"{"action":"redirect","to":"192.0.2.1"}"#, Some("redirect to 192.0.2.1:53")),
            (r#"{"action":"redirect","to":"[2001:db8::1]:5353"}"#, Some("redirect to [2001:db8::1]:5353")),
            (r#"{"action":"redirect","to":"2001:db8::1"}"#, Some("redirect to [2001:db8::1]:53")),
            (r#"{"action":"redirect"}"#, None),
            (r#"{"action":"redirect","to":"dns.example"}"#, None),
            (r#"{"action":"redirect","to":"192.0.2.1:0"}"#, None),
            (r#"{"action":"redirect","to":53}"#, None),
            (r#"{"action":"allow","unless":"x"}"#, None),
            (r#"{"action":["allow"]}"#, None),
            (r#"{"allow":true}"#, None),
            (r#""Allow""#, None),
            (r#""undefined""#, None),
            (r#""redirect""#, None),
            (r#""""#, None),
            ("null", None),
            ("true", None),
            ("1", None),
            (r#"["allow"]"#, None),
        ] {
            assert_eq!(read(json).as_deref(), expected, "{json}");
        }
        assert_eq!(outcome(&Value::Undefined), Ok(Outcome::Undefined));
        let long = outcome(&Value::from("ä".repeat(1000))).unwrap_err();
        assert!(long.0.chars().count() < 300, "{long}");
    }
}
