//! Strict JSON parsing for requests: duplicate names in an object are refused, as client and server
//! could choose different values.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Parses one object.
///
/// # Errors
/// The text is not JSON, not an object, or has a duplicate name.
pub(super) fn object(text: &[u8]) -> Result<Value, serde_json::Error> {
    match serde_json::from_slice(text)? {
        Unique(object @ Value::Object(_)) => Ok(object),
        Unique(_) => Err(Error::custom("the request is not an object")),
    }
}

/// A value in which no object has a duplicate name.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Unique, E> {
        Ok(Unique(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Unique, E> {
        Ok(Unique(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Unique, E> {
        Ok(Unique(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = access.next_element()? {
            values.push(value);
        }
        Ok(Unique(Value::Array(values)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
        let mut object = Map::new();
        while let Some((name, Unique(value))) = access.next_entry::<String, Unique>()? {
            if object.contains_key(&name) {
                return Err(Error::custom(format_args!("the name \"{name}\" occurs twice")));
            }
            object.insert(name, value);
        }
        Ok(Unique(Value::Object(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        object(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_that_occur_twice_are_refused_at_any_depth() {
        let fine = r#"{"a": {"a": [{"a": null}, {"a": -1}]}, "b": [true, 1.5, "x", 7]}"#;
        assert_eq!(read(fine).unwrap(), serde_json::from_str::<Value>(fine).unwrap());
        for twice in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"set": {"x": "1", "y": "2", "x": "3"}}"#,
            r#"{"b": [{"a": 1, "a": 2}]}"#,
            "{\"a\": 1, \"\\u0061\": 2}",
        ] {
            assert!(read(twice).unwrap_err().contains("occurs twice"), "{twice}");
        }
        for wrong in ["[1]", "1", "null", "\"x\"", "{", "", "{} {}", "{\"a\": 1,}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
