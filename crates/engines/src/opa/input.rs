//! What a policy is told.

use super::InputField;
use namewall_expression::{Fact, Facts, Value};

/// A field's value as text, if it is sent. What a message has, or could have, is always there, empty if
/// need be; a label is there only if it is set. So policies written for CoreDNS' plugin see what they are
/// used to (`not input["kubernetes/client-namespace"]`).
pub(super) fn text(field: &InputField, facts: &dyn Facts) -> Option<String> {
    let value = facts.get(&field.fact);
    let is_sent = !matches!(field.fact, Fact::Label(_)) || value != Value::UNSET;
    is_sent.then(|| value.to_string())
}
