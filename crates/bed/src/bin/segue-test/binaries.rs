//! The test binaries, as cargo names them.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A test binary.
#[derive(Debug)]
pub(crate) struct Binary {
    /// Package and target, as in `segue-core` or `segue/e2e`.
    pub(crate) name: String,
    /// The program.
    pub(crate) program: PathBuf,
    /// Where cargo runs it: the directory of its package.
    pub(crate) dir: PathBuf,
    /// Whether it is a crate's own unit tests.
    pub(crate) has_units: bool,
}

/// Reads cargo's messages from `file`.
pub(crate) fn read(file: &Path) -> Result<Vec<Binary>, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{}: {error}: build the tests first", file.display()))?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let binaries: Vec<_> = messages.filter_map(|message| binary(&message)).collect();
    match binaries.is_empty() {
        true => Err(format!("{}: names no test binary", file.display())),
        false => Ok(binaries),
    }
}

fn binary(message: &Value) -> Option<Binary> {
    if message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = package(message["package_id"].as_str()?)?;
    let target = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let name = match kind {
        "lib" => package.to_owned(),
        _ => format!("{package}/{target}"),
    };
    Some(Binary { name, program, dir, has_units: kind != "test" })
}

/// The package's name in its id, `path+file:///work/crates/core#segue-core@0.1.0`, which leaves
/// the name out where it is the directory's: `path+file:///work/crates/segue#0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (path, rest) = id.rsplit_once('#')?;
    match rest.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_their_names() {
        let named = "path+file:///work/crates/core#segue-core@0.1.0";
        assert_eq!(package(named), Some("segue-core"));
        assert_eq!(package("path+file:///work/crates/segue#0.1.0"), Some("segue"));
        assert_eq!(package("nothing"), None);
    }

    #[test]
    fn only_test_binaries_count() {
        let built = |test: bool, kind: &str| {
            serde_json::json!({
                "profile": {"test": test}, "executable": "/target/e2e-1", "target":
                {"name": "e2e", "kind": [kind]}, "manifest_path": "/work/crates/segue/Cargo.toml",
                "package_id": "path+file:///work/crates/segue#0.1.0",
            })
        };
        assert!(binary(&built(false, "bin")).is_none());
        let tests = binary(&built(true, "test")).unwrap();
        assert_eq!((tests.name.as_str(), tests.has_units), ("segue/e2e", false));
        assert_eq!(tests.dir, Path::new("/work/crates/segue"));
        let units = binary(&built(true, "lib")).unwrap();
        assert_eq!((units.name.as_str(), units.has_units), ("segue", true));
    }
}
