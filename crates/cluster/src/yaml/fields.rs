//! The names of a type's fields, as its objects write them.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;

/// The fields that a struct is read from. They are what `#[derive(Deserialize)]` asks for.
pub(crate) fn field_names<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Question) {
        Ok(_) => &[],
        Err(Answer(fields)) => fields,
    }
}

/// Has no value. A struct that is read from it says which fields it wants, and that is the error.
struct Question;

#[derive(Debug)]
struct Answer(&'static [&'static str]);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the fields {}", self.0.join(", "))
    }
}

impl std::error::Error for Answer {}

impl de::Error for Answer {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for Question {
    type Error = Answer;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Answer> {
        Err(Answer(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Answer> {
        Err(Answer(fields))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    #[allow(dead_code, reason = "only its shape is looked at")]
    struct Sample {
        pod_selector: String,
        #[serde(default, rename = "type")]
        kind: u8,
    }

    #[test]
    fn fields_are_named_as_they_are_written() {
        assert_eq!(field_names::<Sample>(), ["podSelector", "type"]);
        assert!(field_names::<String>().is_empty());
    }
}
