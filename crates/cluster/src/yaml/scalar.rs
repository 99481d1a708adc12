//! Plain scalars as Kubernetes reads them: the YAML 1.1 words and numbers of
//! Go's parser, after the turn through JSON that every manifest takes.
//! `yes` and `on` are booleans, `0120` is 80, `1e3` is 1000.

use super::{Value, Written};
use std::borrow::Cow;

/// The value of a plain scalar. One that is not written as its value usually is keeps its text.
pub(super) fn resolve(text: &str) -> Value {
    if !may_be_special(text) {
        return Value::String(text.into());
    }
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match number(text) {
            Some(value) => value,
            None => return Value::String(text.into()),
        },
    };
    if value.usual_text().as_deref() == Some(text) {
        return value;
    }
    Value::Written(Box::new(Written { text: text.into(), value }))
}

/// The key that a plain scalar is in JSON; `None` for null, which is no key.
pub(super) fn key(text: &str) -> Option<Cow<'_, str>> {
    if !may_be_special(text) {
        return Some(text.into());
    }
    match resolve(text) {
        Value::Null => None,
        Value::String(_) => Some(text.into()),
        Value::Written(written) => key_of(&written.value),
        value => key_of(&value),
    }
}

fn key_of(value: &Value) -> Option<Cow<'static, str>> {
    match value {
        Value::Bool(value) => Some(value.to_string().into()),
        Value::Int(value) => Some(value.to_string().into()),
        Value::Float(value) if value.is_nan() => Some(".nan".into()),
        Value::Float(value) if value.is_infinite() => Some(if *value > 0.0 { ".inf" } else { "-.inf" }.into()),
        // Keys pass through 32 bits there.
        Value::Float(value) => Some((*value as f32).to_string().into()),
        _ => None,
    }
}

/// Most words need no further look: they start with a letter that no special word starts with.
fn may_be_special(text: &str) -> bool {
    match text.bytes().next() {
        None => true,
        Some(first) => matches!(
            first,
            b'0'..=b'9'
                | b'+'
                | b'-'
                | b'.'
                | b'~'
                | b'y'
                | b'Y'
                | b'n'
                | b'N'
                | b't'
                | b'T'
                | b'f'
                | b'F'
                | b'o'
                | b'O'
        ),
    }
}

fn number(text: &str) -> Option<Value> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Value::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Value::Float(f64::NEG_INFINITY)),
        ".nan" | ".NaN" | ".NAN" => return Some(Value::Float(f64::NAN)),
        _ => {}
    }
    match text.as_bytes().first()? {
        b'.' => float(text),
        b'0'..=b'9' | b'+' | b'-' => {
            let plain: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { text.into() };
            integer(&plain).or_else(|| float(&plain))
        }
        _ => None,
    }
}

/// With a sign and the prefixes 0x, 0o, 0b and 0, the last two for octal.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust accepts a second sign, Go does not.
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    let signed = if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    match signed {
        Some(value) => Some(Value::Int(value)),
        None if !negative => Some(Value::Float(magnitude as f64)),
        None => None,
    }
}

fn float(text: &str) -> Option<Value> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let good = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    let value: f64 = if good { text.parse().ok()? } else { return None };
    if !value.is_finite() {
        return None;
    }
    // JSON does not tell 1000.0 from 1000.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() == 0.0 && (-LIMIT..LIMIT).contains(&value) {
        return Some(Value::Int(value as i64));
    }
    Some(Value::Float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sigs.k8s.io/yaml v1.6.0 makes of `a: TEXT`, and of `TEXT: 1` where the key is not the text.
    const TABLE: &[(&str, &str)] = &[
        ("0120", "80"),
        ("0o120", "80"),
        ("0O17", "15"),
        ("0x50", "80"),
        ("0X50", "80"),
        ("0b101", "5"),
        ("0B101", "5"),
        ("1_000", "1000"),
        ("1_0.5", "10.5"),
        ("_1", "\"_1\""),
        ("1_", "1"),
        ("1__0", "10"),
        ("+1", "1"),
        ("-1", "-1"),
        ("+0120", "80"),
        ("-0120", "-80"),
        ("-0x50", "-80"),
        ("+0x50", "80"),
        ("0_7", "7"),
        ("08", "8"),
        ("09", "9"),
        ("00", "0"),
        ("0", "0"),
        ("-0", "0"),
        ("0x", "\"0x\""),
        ("0b", "\"0b\""),
        ("0o", "\"0o\""),
        ("0o8", "\"0o8\""),
        ("1:30", "\"1:30\""),
        ("190:20:30", "\"190:20:30\""),
        ("1.5", "1.5"),
        ("1.", "1"),
        ("0.", "0"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("+.5", "0.5"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("1e+3", "1000"),
        ("1.e3", "1000"),
        (".5e1", "5"),
        ("1.10", "1.1"),
        ("01.5", "1.5"),
        ("1e1_0", "10000000000"),
        ("1_0e1", "100"),
        ("0x_5", "5"),
        ("0b1_0", "2"),
        ("0_0", "0"),
        ("0x1.8p1", "\"0x1.8p1\""),
        ("0x1p4", "\"0x1p4\""),
        ("1e400", "\"1e400\""),
        ("1e", "\"1e\""),
        ("e3", "\"e3\""),
        ("--1", "\"--1\""),
        ("+-1", "\"+-1\""),
        (".", "\".\""),
        ("..", "\"..\""),
        ("1 000", "\"1 000\""),
        ("inf", "\"inf\""),
        ("nan", "\"nan\""),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0777777777777777777777", "9223372036854775807"),
        ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ("2001-01-01", "\"2001-01-01\""),
        ("10.0.0.1", "\"10.0.0.1\""),
        ("1.2.3", "\"1.2.3\""),
        ("1-2", "\"1-2\""),
        ("=", "\"=\""),
        ("yEs", "\"yEs\""),
        ("tRUE", "\"tRUE\""),
        ("t", "\"t\""),
        ("f", "\"f\""),
        ("~", "null"),
        ("null", "null"),
        ("Null", "null"),
        ("NULL", "null"),
        ("nULL", "\"nULL\""),
        ("none", "\"none\""),
        ("٣", "\"٣\""),
    ];

    #[test]
    fn scalars_are_what_kubernetes_reads() {
        let json = |value: &Value| match value.plain() {
            Value::Null => "null".to_owned(),
            Value::String(text) => format!("\"{text}\""),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => serde_json::json!(value).to_string(),
            other => format!("{other:?}"),
        };
        for (text, expected) in TABLE {
            assert_eq!(json(&resolve(text)), *expected, "{text}");
        }
        for (word, value) in [("y", true), ("n", false), ("yes", true), ("no", false), ("on", true), ("off", false)] {
            let capital = word[..1].to_uppercase() + &word[1..];
            for word in [word.to_owned(), capital, word.to_uppercase()] {
                assert_eq!(*resolve(&word).plain(), Value::Bool(value), "{word}");
                assert_eq!(key(&word).unwrap(), value.to_string());
            }
        }
        assert_eq!(key("0120").unwrap(), "80");
        assert_eq!(key("1.10").unwrap(), "1.1");
        assert_eq!(key("app").unwrap(), "app");
        assert!(key("~").is_none());
    }

    #[test]
    fn what_is_written_otherwise_keeps_its_text() {
        assert_eq!(resolve("true"), Value::Bool(true));
        assert_eq!(resolve("8080"), Value::Int(8080));
        assert_eq!(resolve("1.5"), Value::Float(1.5));
        let Value::Written(written) = resolve("0120") else { panic!("0120 keeps its text") };
        assert_eq!((&*written.text, &written.value), ("0120", &Value::Int(80)));
    }
}
