//! Settings from the configuration file and the environment.
//!
//! The precedence is flag, environment, file, default. Every mount option is a key of
//! `config.toml` and, in capitals after `SEGUE_`, an environment variable. A key that is unknown or
//! has a wrong value is an error for the commands that begin to serve or mount: a misspelt setting
//! must not silently become the default. The other commands warn and work, because hooks for sleep
//! and shutdown call them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;
use segue_client::MountOptions;
use segue_client::options::OptionError;

use crate::exit::Failure;
use crate::glob;
use crate::logging::LogFormat;
use crate::places::Places;

const ENVIRONMENT_PREFIX: &str = "SEGUE_";

/// The settings of the file and the environment.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The server's data directory.
    data: Option<PathBuf>,
    /// The server's listen address.
    pub(crate) listen: Option<String>,
    /// The filter of log lines, as in SEGUE_LOG.
    pub(crate) log: Option<String>,
    /// The format of log lines.
    pub(crate) log_format: Option<LogFormat>,
    /// What is wrong with the settings. The rest of them counts.
    pub(crate) problems: Vec<String>,
    /// The file has a data directory that cannot be read from it, or may have one.
    data_unknown: bool,
    merge: Vec<MergeRule>,
    mount: MountOptions,
    home: PathBuf,
}

/// The merge program for a pattern of names: `[[merge]]` in the file.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct MergeRule {
    /// Matched against the file's name without its directory.
    pattern: String,
    program: String,
}

impl Config {
    /// Reads `config.toml`, if there is one, then the environment.
    pub(crate) fn load(places: &Places) -> Config {
        let path = &places.config_file;
        let mut config = Config { home: places.home.clone(), ..Config::default() };
        match std::fs::read_to_string(path) {
            Ok(text) => config.read_file(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                config.data_unknown = true;
                config.problems.push(format!("cannot be read: {error}"));
            }
        }
        for problem in &mut config.problems {
            *problem = format!("{}: {problem}", path.display());
        }
        // A variable that is no text is none of ours. PWD is one in a directory with such a name.
        let text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        config.read_environment(std::env::vars_os().filter_map(text).collect());
        config
    }

    /// An error if something is wrong with the settings.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.problems.first() {
            None => Ok(()),
            Some(problem) => Err(Failure::usage(problem.clone())),
        }
    }

    /// The server's data directory, if the settings name one. An error if they may name one that
    /// cannot be read: another one must not take its place.
    pub(crate) fn data(&self) -> Result<Option<&PathBuf>, Failure> {
        match self.data_unknown {
            true => self.check().map(|()| None),
            false => Ok(self.data.as_ref()),
        }
    }

    /// The mount options of the file and the environment, overridden by `flags`. Each flag is a
    /// list as after `-o`.
    pub(crate) fn mount_options(&self, flags: &[String]) -> Result<MountOptions, Failure> {
        let mut options = self.mount.clone();
        for text in flags.iter().flat_map(|list| segue_client::options::split(list)) {
            let (key, value) = match text.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (text.as_str(), None),
            };
            options.set(key, value).map_err(|error| Failure::usage(error.to_string()))?;
        }
        let make_absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        options.cache_dir = options.cache_dir.map(|path| make_absolute(self.expand(path)));
        options.record_calls = options.record_calls.map(|path| make_absolute(self.expand(path)));
        Ok(options)
    }

    /// The program that merges files called `name`, from the first rule that matches.
    pub(crate) fn merge_program(&self, name: &str) -> Option<&str> {
        let rule = self.merge.iter().find(|rule| glob::matches(&rule.pattern, name))?;
        Some(&rule.program)
    }

    fn read_file(&mut self, text: &str) {
        let table: toml::Table = match text.parse() {
            Ok(table) => table,
            Err(error) => {
                self.data_unknown = true;
                return self.problems.push(not_toml(&error));
            }
        };
        for (key, value) in &table {
            if let Err(problem) = self.set(key, value) {
                self.data_unknown |= key == "data";
                self.problems.push(problem);
            }
        }
    }

    fn set(&mut self, key: &str, value: &toml::Value) -> Result<(), String> {
        if key == "merge" {
            let rules = value.clone().try_into();
            self.merge = rules.map_err(|error| format!("[[merge]]: {}", error.message()))?;
            return Ok(());
        }
        let value = plain(value).ok_or_else(|| {
            format!("the value of '{key}' is not a string, an integer or a boolean")
        })?;
        match key {
            "data" => self.data = Some(self.expand(PathBuf::from(value))),
            "listen" => self.listen = Some(value),
            "log" => self.log = Some(value),
            "log-format" => self.log_format = Some(LogFormat::from_str(&value, false)?),
            _ => self.mount.set(key, Some(&value)).map_err(|error| match error {
                OptionError::Unknown(_) => format!("unknown key '{key}'"),
                error => error.to_string(),
            })?,
        }
        Ok(())
    }

    /// Ignores variables that are no mount option: other programs may use the prefix too.
    fn read_environment(&mut self, variables: BTreeMap<String, String>) {
        for (name, value) in variables {
            let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX) else { continue };
            let key = key.to_ascii_lowercase().replace('_', "-");
            match self.mount.set(&key, Some(&value)) {
                Ok(()) | Err(OptionError::Unknown(_)) => {}
                Err(error) => self.problems.push(format!("{name}: {error}")),
            }
        }
    }

    fn expand(&self, path: PathBuf) -> PathBuf {
        path.strip_prefix("~").map(|rest| self.home.join(rest)).unwrap_or(path)
    }
}

/// One line of an error that shows the place in the text on more lines.
fn not_toml(error: &toml::de::Error) -> String {
    let shown = error.to_string();
    let place = shown.lines().next().unwrap_or_default();
    format!("not TOML: {place}: {}", error.message())
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use segue_client::options::Lm;

    use super::*;

    fn config(file: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let mut config = Config { home: PathBuf::from("/home/a"), ..Config::default() };
        config.read_file(file);
        let variables = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        config.read_environment(variables.collect());
        config.check().map_err(|failure| failure.to_string())?;
        Ok(config)
    }

    /// A misspelt key had stopped the hooks for sleep and shutdown.
    #[test]
    fn the_rest_of_the_settings_counts() {
        let mut config = Config::default();
        config.read_file("cache-szie = 1\ngrace = \"soon\"\ndata = \"/d\"\nwrite-back = \"sync\"");
        assert_eq!(config.problems.len(), 2, "{:?}", config.problems);
        assert_eq!(config.mount_options(&[]).unwrap().write_back, Lm::Sync);
        assert_eq!(config.data().unwrap(), Some(&PathBuf::from("/d")));
        for unclear in ["data = [1]", "data = "] {
            let mut config = Config::default();
            config.read_file(unclear);
            assert!(config.data().is_err(), "no other directory takes its place");
        }
    }

    #[test]
    fn flag_beats_environment_beats_file_beats_default() {
        let write_back = |file, environment: &[(&str, &str)], flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
            config(file, environment).unwrap().mount_options(&flags).unwrap().write_back
        };
        let file = "write-back = \"sync\"";
        let environment = [("SEGUE_WRITE_BACK", "async")];
        assert_eq!(write_back("", &[], &[]), MountOptions::default().write_back);
        assert_eq!(write_back(file, &[], &[]), Lm::Sync);
        assert_eq!(write_back(file, &environment, &[]), Lm::Async);
        assert_eq!(write_back(file, &environment, &["ro,write-back=close"]), Lm::Close);
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_errors() {
        assert_eq!(config("cache-szie = 1", &[]).unwrap_err(), "unknown key 'cache-szie'");
        assert!(config("uid = \"me\"", &[]).is_err());
        assert!(config("ro = [1]", &[]).is_err());
        assert!(config("merge = 1", &[]).is_err());
        assert!(config("[[merge]]\npattern = \"*\"\n", &[]).is_err());
        assert!(config("[[merge]]\npattern = \"*\"\nprogram = \"x\"\nbase = 1\n", &[]).is_err());
        assert!(config("log-format = \"xml\"", &[]).is_err());
        assert!(config("", &[("SEGUE_GRACE", "soon")]).is_err());
        assert!(config("", &[("SEGUE_SOMETHING_ELSE", "1")]).is_ok());
    }

    #[test]
    fn the_first_merge_program_that_fits_is_taken() {
        let rule = |pattern, program| {
            format!("[[merge]]\npattern = \"{pattern}\"\nprogram = \"{program}\"\n")
        };
        let file = ["grace = \"5s\"\n".into(), rule("*.txt", "one"), rule("n*", "two")].concat();
        let config = config(&file, &[]).unwrap();
        let programs = ["notes.txt", "notes", "other"].map(|name| config.merge_program(name));
        assert_eq!(programs, [Some("one"), Some("two"), None]);
    }

    #[test]
    fn a_tilde_is_the_home_directory() {
        let config = config("data = \"~/d\"\ncache-dir = \"~/c\"\nuid = 5", &[]).unwrap();
        assert_eq!(config.data, Some(PathBuf::from("/home/a/d")));
        let options = config.mount_options(&[]).unwrap();
        assert_eq!(options.cache_dir, Some(PathBuf::from("/home/a/c")));
        assert_eq!(options.uid, Some(5));
    }
}
