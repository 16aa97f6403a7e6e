use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How the bytes of a payload are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// JSON, for callers that are not Rust: command lines, SQL, other languages. Code 2.
    Json,
    /// MessagePack with fields by name, so that adding an optional field is safe. Code 1, the default.
    MessagePack,
}

impl Codec {
    /// The byte that stands before the payload in a store.
    pub const fn code(self) -> u8 {
        match self {
            Self::MessagePack => 1,
            Self::Json => 2,
        }
    }

    /// The codec of a code byte, if this version knows it.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::MessagePack),
            2 => Some(Self::Json),
            _ => None,
        }
    }
}

/// The arguments of a job: a codec byte and a map of the parameters by name.
///
/// A payload is only bytes until a worker decodes it, so one that is damaged can still be stored, moved and
/// shown.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Vec<u8>);

/// Arguments that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the arguments cannot be encoded: {0}")]
pub struct EncodeError(String);

/// Bytes that are no payload, or not the one that the task expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload cannot be decoded: {0}")]
pub struct DecodeError(String);

impl Payload {
    /// Encodes arguments as a MessagePack map.
    ///
    /// # Errors
    /// [`EncodeError`] when a value cannot be serialised.
    pub fn encode<T: Serialize + ?Sized>(arguments: &T) -> Result<Self, EncodeError> {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(Codec::MessagePack.code());
        let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        arguments.serialize(&mut serializer).map_err(|error| EncodeError(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Takes JSON text as arguments. The text must be one object.
    ///
    /// # Errors
    /// [`EncodeError`] when the text is no JSON object.
    pub fn from_json(text: &str) -> Result<Self, EncodeError> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| EncodeError(format!("they are no JSON: {error}")))?;
        if !value.is_object() {
            return Err(EncodeError("they must be a JSON object, such as {\"path\": \"a.png\"}".to_owned()));
        }
        let mut bytes = vec![Codec::Json.code()];
        bytes.extend_from_slice(text.trim().as_bytes());
        Ok(Self(bytes))
    }

    /// Takes bytes from a store, damaged or not.
    pub const fn from_stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes as they are stored, codec byte first.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as they are stored, codec byte first.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Size in bytes, codec byte included.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes at all: always a damaged payload.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes the arguments.
    ///
    /// # Errors
    /// [`DecodeError`] names the field or the place in the bytes.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        let (codec, body) = self.split()?;
        match codec {
            Codec::MessagePack => {
                let mut deserializer = rmp_serde::Deserializer::from_read_ref(body);
                deserializer.set_max_depth(MAX_DEPTH);
                T::deserialize(&mut deserializer).map_err(|error| DecodeError(error.to_string()))
            }
            Codec::Json => serde_json::from_slice(body).map_err(|error| DecodeError(error.to_string())),
        }
    }

    /// The arguments as JSON for a person to read. Byte strings become arrays of numbers.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are damaged.
    pub fn to_json(&self) -> Result<serde_json::Value, DecodeError> {
        self.decode()
    }

    fn split(&self) -> Result<(Codec, &[u8]), DecodeError> {
        let Some((code, body)) = self.0.split_first() else {
            return Err(DecodeError("it is empty, without even a codec byte".to_owned()));
        };
        let codec = Codec::from_code(*code).ok_or_else(|| {
            DecodeError(format!("codec {code} is unknown to this version (1 and 2 are known)"))
        })?;
        Ok((codec, body))
    }
}

impl fmt::Debug for Payload {
    /// Length only: arguments may hold what must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

/// Deeper nesting is refused, as by `serde_json`: the decoder recurses, and a hostile payload must not reach the
/// end of a thread's stack.
const MAX_DEPTH: usize = 128;

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Old {
        path: String,
    }

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct New {
        path: String,
        width: Option<u32>,
    }

    #[test]
    fn an_optional_field_may_be_added() {
        let stored = Payload::encode(&Old { path: "a".into() }).unwrap();
        assert_eq!(stored.decode::<New>().unwrap(), New { path: "a".into(), width: None });
    }

    #[test]
    fn json_and_messagepack_decode_alike() {
        let json = Payload::from_json(r#" {"path": "a", "width": 7} "#).unwrap();
        let packed = Payload::encode(&New { path: "a".into(), width: Some(7) }).unwrap();
        assert_eq!(json.decode::<New>().unwrap(), packed.decode::<New>().unwrap());
        assert_eq!(packed.to_json().unwrap(), serde_json::json!({"path": "a", "width": 7}));
    }

    #[test]
    fn damage_is_an_error_that_says_where() {
        assert!(Payload::from_json("[1]").is_err());
        assert!(Payload::from_json("{").is_err());
        let unknown = Payload::from_stored(vec![9, 1, 2]).decode::<Old>().unwrap_err();
        assert!(unknown.to_string().contains("codec 9"), "{unknown}");
        assert!(Payload::from_stored(vec![]).decode::<Old>().is_err());
        assert!(Payload::from_stored(vec![1, 0xc1, 0xff]).decode::<Old>().is_err());
        let missing = Payload::from_json("{}").unwrap().decode::<Old>().unwrap_err();
        assert!(missing.to_string().contains("path"), "{missing}");
    }

    #[test]
    fn hostile_depth_is_an_error_and_no_crash() {
        let mut nested = vec![1u8];
        nested.extend(std::iter::repeat_n(0x91, 1 << 20));
        assert!(Payload::from_stored(nested).to_json().is_err());
    }
}
