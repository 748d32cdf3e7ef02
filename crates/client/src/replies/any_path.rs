//! Paths of any bytes in JSON, which has text only.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A path relative to the mount point, without a leading slash; empty for that itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct AnyPath(Vec<u8>);

/// How it stands in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    /// Bytes that are no text.
    Bytes(Vec<u8>),
}

impl AnyPath {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&Path> for AnyPath {
    fn from(path: &Path) -> AnyPath {
        AnyPath(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<Form> for AnyPath {
    fn from(form: Form) -> AnyPath {
        match form {
            Form::Text(text) => AnyPath(text.into_bytes()),
            Form::Bytes(bytes) => AnyPath(bytes),
        }
    }
}

impl From<AnyPath> for Form {
    fn from(AnyPath(bytes): AnyPath) -> Form {
        String::from_utf8(bytes).map_or_else(|error| Form::Bytes(error.into_bytes()), Form::Text)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn each_path_arrives_as_it_is() {
        for (bytes, json) in [(&b"a/b"[..], "\"a/b\""), (b"a\xff", "[97,255]"), (b"", "\"\"")] {
            let path = AnyPath::from(Path::new(OsStr::from_bytes(bytes)));
            assert_eq!(serde_json::to_string(&path).unwrap(), json);
            assert_eq!(serde_json::from_str::<AnyPath>(json).unwrap(), path);
            assert_eq!(path.as_bytes(), bytes);
        }
    }
}
