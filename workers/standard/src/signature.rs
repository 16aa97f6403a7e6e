//! Signatures as the Standard Webhooks specification describes them, so that receivers find a verifier in their
//! language.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Where the keys for signatures come from: the environment, or fixed values for a test.
///
/// A job names its key, it never carries one: jobs are stored, and shown to operators.
#[derive(Clone, Default)]
pub struct SigningKeys {
    /// `None`: the environment.
    fixed: Option<Arc<BTreeMap<String, String>>>,
}

/// Why a request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// This worker has no such variable. Another one may have it, and this one may get it.
    #[error("the environment variable {0} with the key for the signature is not set in this worker")]
    Missing(String),
    /// A name that no key may have, so that a job cannot have other secrets of the worker used as keys.
    #[error("sign_with names the variable {0:?}; it must begin with {prefix}", prefix = SigningKeys::PREFIX)]
    Name(String),
    /// The variable's value is no key.
    #[error("the environment variable {name} holds no usable key: {problem}")]
    Value {
        /// The variable.
        name: String,
        /// What is wrong with it; never the value.
        problem: &'static str,
    },
}

impl SigningKeys {
    /// What the name of each key's variable begins with.
    pub const PREFIX: &str = "CELERIAC_HTTP_KEY_";

    /// A key is at least this many bytes: shorter ones can be guessed.
    pub const SHORTEST: usize = 16;

    /// Keys from the environment of this process; the default.
    pub const fn from_env() -> Self {
        Self { fixed: None }
    }

    /// These variables instead of the environment.
    pub fn fixed<N: Into<String>, V: Into<String>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { fixed: Some(Arc::new(variables)) }
    }

    /// The headers that sign `body` with the keys in the variable `name`.
    ///
    /// The variable may hold several keys, separated by blanks, while a key is being exchanged: each gives a
    /// signature, and a receiver accepts any of them.
    pub(crate) fn sign(
        &self,
        name: &str,
        id: &str,
        timestamp: u64,
        body: &[u8],
    ) -> Result<[(&'static str, String); 3], KeyError> {
        let value = self.find(name)?;
        let refuse = |problem| KeyError::Value { name: name.to_owned(), problem };
        let mut signatures = Vec::new();
        for key in value.split_whitespace() {
            let key = key_bytes(key).map_err(refuse)?;
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|_| refuse("its length is wrong"))?;
            mac.update(id.as_bytes());
            mac.update(format!(".{timestamp}.").as_bytes());
            mac.update(body);
            signatures.push(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())));
        }
        if signatures.is_empty() {
            return Err(refuse("it is empty"));
        }
        Ok([
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", timestamp.to_string()),
            ("webhook-signature", signatures.join(" ")),
        ])
    }

    fn find(&self, name: &str) -> Result<String, KeyError> {
        // An `=` or a zero byte would make the look-up panic on some systems; neither can be part of a name.
        let proper = name.strip_prefix(Self::PREFIX).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        if !proper {
            return Err(KeyError::Name(name.to_owned()));
        }
        match &self.fixed {
            Some(variables) => variables.get(name).cloned().ok_or_else(|| KeyError::Missing(name.to_owned())),
            None => std::env::var(name).map_err(|error| match error {
                std::env::VarError::NotPresent => KeyError::Missing(name.to_owned()),
                std::env::VarError::NotUnicode(_) => {
                    KeyError::Value { name: name.to_owned(), problem: "it is not UTF-8" }
                }
            }),
        }
    }
}

impl fmt::Debug for SigningKeys {
    /// No values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.fixed.is_some() { "SigningKeys(fixed)" } else { "SigningKeys(environment)" })
    }
}

/// `whsec_` and base64, or any other text as it is.
fn key_bytes(text: &str) -> Result<Vec<u8>, &'static str> {
    let bytes = match text.strip_prefix("whsec_") {
        Some(encoded) => STANDARD_NO_PAD
            .decode(encoded.trim_end_matches('='))
            .map_err(|_| "what follows whsec_ is no base64")?,
        None => text.as_bytes().to_vec(),
    };
    if bytes.len() < SigningKeys::SHORTEST {
        return Err("it is shorter than 16 bytes");
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "CELERIAC_HTTP_KEY_SHOP";

    fn signature(value: &str) -> Result<String, KeyError> {
        let keys = SigningKeys::fixed([(NAME, value)]);
        let [_, _, (_, signature)] =
            keys.sign(NAME, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#)?;
        Ok(signature)
    }

    /// The test vector of the reference implementations of Standard Webhooks.
    #[test]
    fn the_reference_signature_is_reproduced() {
        assert_eq!(
            signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap(),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn each_of_several_keys_signs() {
        let both =
            signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw a-plain-text-key-of-some-length").unwrap();
        let parts: Vec<&str> = both.split(' ').collect();
        assert_eq!(parts[0], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(parts.len(), 2);
        assert_ne!(parts[0], parts[1]);
    }

    #[test]
    fn unusable_keys_are_named_without_their_value() {
        for (value, part) in [
            ("", "empty"),
            ("  ", "empty"),
            ("tiny-secret", "shorter than 16"),
            ("whsec_c2hvcnQ=", "shorter than 16"),
            ("whsec_%%%%%%%%%%%%%%%%%%%%%%%%%", "no base64"),
        ] {
            let error = signature(value).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(NAME), "{value:?} gave {error}");
            assert!(value.trim().is_empty() || !error.contains(value), "{error}");
        }
        assert_eq!(
            SigningKeys::fixed::<String, String>([]).find(NAME),
            Err(KeyError::Missing(NAME.to_owned()))
        );
    }

    #[test]
    fn a_job_cannot_use_other_variables_as_keys() {
        let keys = SigningKeys::from_env();
        for name in ["PATH", "", "CELERIAC_HTTP_KEY_", "CELERIAC_HTTP_KEY_A=B", "CELERIAC_HTTP_KEY_A\0"] {
            assert_eq!(keys.find(name), Err(KeyError::Name(name.to_owned())));
        }
    }
}
