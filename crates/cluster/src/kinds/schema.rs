//! Rust types → schemas as an API server wants them: structural, which is to say written out in full, with one type
//! each and no null.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// The schema of an object whose fields, but those that all objects have, are `T`'s.
pub(super) fn object<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(structural).transform(&mut schema);
    let mut schema = Value::from(schema);
    let mut properties = Map::new();
    properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
    properties.insert("kind".to_owned(), json!({"type": "string"}));
    properties.insert("metadata".to_owned(), json!({"type": "object"}));
    if let Some(own) = schema["properties"].as_object_mut() {
        properties.append(own);
    }
    schema["properties"] = Value::Object(properties);
    schema
}

/// An object of which there is only one, or one a namespace.
pub(super) fn only_named_default(mut schema: Value, message: &str) -> Value {
    schema["x-kubernetes-validations"] = json!([{"rule": "self.metadata.name == 'default'", "message": message}]);
    schema
}

fn structural(schema: &mut Schema) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("title");
    // A field that may be absent is one that is not required; null is nothing that anybody writes.
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = &types[..] {
            let one = one.clone();
            fields.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(options)) = fields.get_mut("enum") {
        options.retain(|one| !one.is_null());
    }
    if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
        let is_null = |choice: &Value| choice["type"] == "null";
        if choices.iter().any(is_null) {
            choices.retain(|choice| !is_null(choice));
            let only = choices.pop();
            fields.remove("anyOf");
            if let Some(Value::Object(only)) = only {
                for (key, value) in only {
                    // What the field says of itself counts more than what its type says.
                    fields.entry(key).or_insert(value);
                }
            }
        }
    }
    if fields.get("default").is_some_and(Value::is_null) {
        fields.remove("default");
    }
    // Where a comment's lines end means nothing. What is read first stands first.
    if let Some(Value::String(text)) = fields.shift_remove("description") {
        let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        fields.shift_insert(0, "description".to_owned(), Value::String(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its shape is looked at")]
    struct Thing {
        /// A word,
        /// or none.
        word: Option<String>,
        part: Option<Part>,
    }

    /// A part.
    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its shape is looked at")]
    struct Part {
        #[schemars(length(min = 1, max = 2))]
        kinds: Vec<Kind>,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code, reason = "only its shape is looked at")]
    enum Kind {
        One,
        Two,
    }

    #[test]
    fn a_type_becomes_a_structural_schema() {
        let expected = json!({
            "type": "object",
            "description": "Something.",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "word": {"type": "string", "description": "A word, or none."},
                "part": {
                    "type": "object",
                    "description": "A part.",
                    "properties": {
                        "kinds": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": 2,
                            "items": {"type": "string", "enum": ["One", "Two"]},
                        },
                    },
                    "required": ["kinds"],
                },
            },
        });
        assert_eq!(object::<Thing>(), expected);
    }
}
