//! Mount options: one parser for `-o`, the configuration file and the environment.

use std::path::PathBuf;
use std::time::Duration;

use segue_core::host::cache::MinFree;
use segue_core::quantity::{parse_duration, parse_size};
use segue_core::sched::Discipline;
use segue_core::sharing::Hidden;

use crate::bandwidth::{self, Timetable};

pub use segue_core::persist::{Lm, LmError};

/// The disk that fsync(2) waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsyncLevel {
    /// This host's disk.
    Local,
    /// The server's disk.
    Server,
}

/// Passthrough: the kernel reads large cached files directly from their containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passthrough {
    /// Used if possible.
    Auto,
    /// Required: the mount fails without it.
    On,
    /// Not used.
    Off,
}

/// The options of a mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Parent of the cache directories of volumes; default `$XDG_STATE_HOME/segue`.
    pub cache_dir: Option<PathBuf>,
    /// Most bytes of clean data in the cache.
    pub cache_size: u64,
    /// Free space that clean data leave on their disk.
    pub cache_min_free: MinFree,
    /// Level of files without a level of their own or of a directory above them.
    pub write_back: Lm,
    /// The disk that fsync waits for.
    pub fsync: FsyncLevel,
    /// Time that a call waits for an unreachable server before EHOSTUNREACH.
    pub grace: Duration,
    /// What an open does where a host is away that has changes of the file.
    pub hidden: Hidden,
    /// Changes that are pending for longer go before younger ones.
    pub due: Duration,
    /// Order of sending.
    pub priorities: Discipline,
    /// A promise of the server counts for so long after it came, for experiments.
    pub promises: Option<Duration>,
    /// Most pending bytes; writers are slowed from three quarters of it.
    pub log_max: u64,
    /// Bandwidth limit, with its times.
    pub bwlimit: Timetable,
    /// All other traffic on the link goes first.
    pub background: bool,
    /// File for a record of each call to the server, for experiments.
    pub record_calls: Option<PathBuf>,
    /// Refuse changes.
    pub read_only: bool,
    /// Device files open devices.
    pub dev: bool,
    /// Set-id bits count.
    pub suid: bool,
    /// Programs on the mount cannot be started.
    pub no_exec: bool,
    /// No symbolic link on the mount is followed.
    pub no_symfollow: bool,
    /// Access times stay as they are.
    pub no_atime: bool,
    /// Mount over a directory that has files.
    pub nonempty: bool,
    /// Show every file as owned by this user.
    pub uid: Option<u32>,
    /// Show every file with this group.
    pub gid: Option<u32>,
    /// Other users of this host may enter the mount.
    pub allow_other: bool,
    /// Receive kernel requests over io_uring if the kernel offers it.
    pub io_uring: bool,
    /// Passthrough of large cached files.
    pub passthrough: Passthrough,
    /// Another server than the one that the cache is of has the volume now.
    pub new_server: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cache_dir: None,
            cache_size: 20 << 30,
            cache_min_free: MinFree::Less(5 << 30, 10),
            write_back: Lm::Async,
            fsync: FsyncLevel::Local,
            grace: Duration::from_secs(10),
            hidden: Hidden::Last,
            due: Duration::from_secs(600),
            priorities: Discipline::Priorities,
            promises: None,
            log_max: 4 << 30,
            bwlimit: Timetable::default(),
            background: false,
            record_calls: None,
            read_only: false,
            dev: false,
            suid: false,
            no_exec: false,
            no_symfollow: false,
            no_atime: false,
            nonempty: false,
            uid: None,
            gid: None,
            allow_other: false,
            io_uring: false,
            passthrough: Passthrough::Auto,
            new_server: false,
        }
    }
}

/// The error of an invalid option.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// No version has this option.
    #[error("unknown mount option '{0}' (see 'segue help mount')")]
    Unknown(String),
    /// A later version has it.
    #[error("mount option '{0}' is not in this version")]
    NotInThisVersion(String),
    /// The value is not valid.
    #[error("mount option '{key}': {reason}")]
    Invalid {
        /// The option.
        key: String,
        /// The fault, with an example of a valid value.
        reason: String,
    },
}

/// The options of this version with their values, as `segue help mount` lists them. Those for
/// experiments are not among them: `docs/experiments.md` lists these.
pub const KEYS: &[(&str, &str)] = &[
    ("allow-other", "other users of this host may enter the mount"),
    ("bwlimit=UP:DOWN", "most bytes per second, or a timetable: see 'segue help bwlimit'"),
    ("cache-dir=DIR", "directory for the cache and for unsent changes"),
    (
        "cache-min-free=5G",
        "free space to leave on its disk: a size or a share such as 10%; by default the lesser of \
         5G and 10%",
    ),
    ("cache-size=20G", "most clean data in the cache; unsent data do not count"),
    ("dev", "device files open devices; only with the role host"),
    ("due=10min", "changes that are pending for longer go before younger ones"),
    ("fsync=local|server", "fsync waits for this host's disk, or for the server's disk"),
    ("gid=GID", "show every file with this group"),
    ("grace=10s", "time that a call waits for an unreachable server before it fails"),
    (
        "hidden=last|fail|wait",
        "if a host is away that has changed a file, an open of it gets the server's version, or \
         fails with EHOSTUNREACH, or waits; a new file is never read before it has its contents",
    ),
    ("link=equal|background", "beside other traffic: an equal share, or only what that leaves"),
    ("log-max=4G", "most pending data; writers are slowed from three quarters of it"),
    ("new-server", "go on with another server that has the volume now, restored from a backup"),
    ("noatime", "access times stay as they are"),
    ("noexec", "programs on the mount cannot be started"),
    ("nonempty", "mount over a directory that has files, and hide them"),
    ("nosymfollow", "no symbolic link on the mount is followed (Linux 5.10; root)"),
    (
        "passthrough=auto|on|off",
        "the kernel reads large cached files itself: where possible, or the mount fails, or never",
    ),
    ("ro", "refuse changes"),
    ("suid", "set-user-id and set-group-id bits count; only with the role host"),
    ("uid=UID", "show every file as owned by this user"),
    (
        "write-back=async|delay:T|log:T|close|sync",
        "when changes are sent: at once, file data after T, all in batches of T, before close \
         returns, or before each call returns; levels of files and directories take precedence: \
         see 'segue help persist'",
    ),
];

const LATER: &[&str] = &["consistency", "observe", "prefetch"];

/// Options that mount(8) passes to every file system and that have no effect here.
const IGNORED: &[&str] = &["_netdev", "auto", "defaults", "noauto", "nofail"];
const IGNORED_MORE: &[&str] = &["relatime", "rw", "user", "users"];

impl MountOptions {
    /// Sets one option as written in `-o KEY[=VALUE]`.
    pub fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), OptionError> {
        match key {
            "allow-other" | "allow_other" => self.allow_other = flag(key, value)?,
            "io-uring" => self.io_uring = flag(key, value)?,
            "new-server" => self.new_server = flag(key, value)?,
            "record-calls" => self.record_calls = Some(PathBuf::from(needed(key, value)?)),
            "dev" => self.dev = flag(key, value)?,
            "nodev" => self.dev = !flag(key, value)?,
            "suid" => self.suid = flag(key, value)?,
            "nosuid" => self.suid = !flag(key, value)?,
            "noexec" => self.no_exec = flag(key, value)?,
            "exec" => self.no_exec = !flag(key, value)?,
            "nosymfollow" => self.no_symfollow = flag(key, value)?,
            "symfollow" => self.no_symfollow = !flag(key, value)?,
            "noatime" => self.no_atime = flag(key, value)?,
            "atime" => self.no_atime = !flag(key, value)?,
            "nonempty" => self.nonempty = flag(key, value)?,
            "ro" => self.read_only = flag(key, value)?,
            "cache-dir" => self.cache_dir = Some(PathBuf::from(needed(key, value)?)),
            "cache-size" => self.cache_size = at_least_1m(key, needed(key, value)?)?,
            "cache-min-free" => self.cache_min_free = min_free(key, needed(key, value)?)?,
            "uid" => self.uid = Some(number(key, value)?),
            "gid" => self.gid = Some(number(key, value)?),
            "grace" => self.grace = duration(key, needed(key, value)?)?,
            "hidden" => {
                let choices =
                    [("last", Hidden::Last), ("fail", Hidden::Fail), ("wait", Hidden::Wait)];
                self.hidden = choice(key, value, &choices)?;
            }
            "due" => self.due = duration(key, needed(key, value)?)?,
            "promises" => self.promises = Some(duration(key, needed(key, value)?)?),
            "priorities" => self.priorities = priorities(key, needed(key, value)?)?,
            "bwlimit" => {
                let timetable = needed(key, value)?.parse();
                self.bwlimit = timetable.map_err(|error| invalid(key, format!("{error}")))?;
            }
            "link" => {
                let links = [("equal", false), ("background", true)];
                self.background = choice(key, value, &links)?;
            }
            "log-max" => self.log_max = at_least_1m(key, needed(key, value)?)?,
            "fsync" => {
                let levels = [("local", FsyncLevel::Local), ("server", FsyncLevel::Server)];
                self.fsync = choice(key, value, &levels)?;
            }
            "passthrough" => {
                let choices = [
                    ("auto", Passthrough::Auto),
                    ("on", Passthrough::On),
                    ("off", Passthrough::Off),
                ];
                self.passthrough = choice(key, value, &choices)?;
            }
            "write-back" => self.write_back = write_back(key, needed(key, value)?)?,
            _ if LATER.contains(&key) => return Err(OptionError::NotInThisVersion(key.into())),
            _ if IGNORED.contains(&key) || IGNORED_MORE.contains(&key) => {}
            _ if key.starts_with("x-") => {}
            _ => return Err(OptionError::Unknown(key.into())),
        }
        Ok(())
    }
}

/// The options of a list as after `-o`, each `KEY[=VALUE]`. A comma inside a timetable does not end
/// it.
pub fn split(list: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for part in list.split(',') {
        let timetable = options
            .last_mut()
            .filter(|before| before.strip_prefix("bwlimit=").is_some_and(bandwidth::is_cut));
        match timetable {
            Some(before) => {
                before.push(',');
                before.push_str(part);
            }
            None if part.is_empty() => {}
            None => options.push(part.into()),
        }
    }
    options
}

fn write_back(key: &str, value: &str) -> Result<Lm, OptionError> {
    value.parse().map_err(|error| invalid(key, format!("{error}")))
}

/// Below this a mount would be slowed by its own log, and cache next to nothing.
const LEAST: u64 = 1 << 20;

fn at_least_1m(key: &str, value: &str) -> Result<u64, OptionError> {
    match size(key, value)? {
        bytes if bytes < LEAST => Err(invalid(key, format!("'{value}' is less than 1M"))),
        bytes => Ok(bytes),
    }
}

/// A share of the disk such as `10%`, or a size.
fn min_free(key: &str, value: &str) -> Result<MinFree, OptionError> {
    let Some(percent) = value.strip_suffix('%') else {
        return size(key, value).map(MinFree::Bytes);
    };
    match percent.parse() {
        Ok(percent) if percent < 100 => Ok(MinFree::Percent(percent)),
        _ => Err(invalid(key, format!("'{value}' is not a share such as 10%, or a size"))),
    }
}

fn priorities(key: &str, value: &str) -> Result<Discipline, OptionError> {
    value.parse().map_err(|error| invalid(key, format!("{error}")))
}

/// One of these words.
fn choice<T: Copy>(
    key: &str,
    value: Option<&str>,
    choices: &[(&str, T)],
) -> Result<T, OptionError> {
    let value = needed(key, value)?;
    let chosen = choices.iter().find(|(word, _)| *word == value);
    chosen.map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let (last, others) =
            words.split_last().map_or(("", &words[..]), |(last, all)| (*last, all));
        invalid(key, format!("'{value}' is not {} or {last}", others.join(", ")))
    })
}

fn invalid(key: &str, reason: String) -> OptionError {
    OptionError::Invalid { key: key.into(), reason }
}

fn needed<'a>(key: &str, value: Option<&'a str>) -> Result<&'a str, OptionError> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| invalid(key, "needs a value".into()))
}

fn flag(key: &str, value: Option<&str>) -> Result<bool, OptionError> {
    match value {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(other) => Err(invalid(key, format!("'{other}' is not true or false"))),
    }
}

fn number(key: &str, value: Option<&str>) -> Result<u32, OptionError> {
    let value = needed(key, value)?;
    value.parse().map_err(|_| invalid(key, format!("'{value}' is not a number")))
}

fn duration(key: &str, text: &str) -> Result<Duration, OptionError> {
    parse_duration(text).map_err(|error| invalid(key, format!("'{text}': {error}")))
}

fn size(key: &str, text: &str) -> Result<u64, OptionError> {
    parse_size(text).map_err(|error| invalid(key, format!("'{text}': {error}")))
}

#[cfg(test)]
mod tests {
    use segue_core::sched::Modes;

    use super::*;

    #[test]
    fn options_say_what_is_wrong_with_them() {
        let mut options = MountOptions::default();
        options.set("write-back", Some("async")).unwrap();
        assert_eq!(options.write_back, Lm::Async);
        options.set("grace", Some("500ms")).unwrap();
        assert_eq!(options.grace, Duration::from_millis(500));
        options.set("log-max", Some("1536M")).unwrap();
        assert_eq!(options.log_max, 3 << 29);
        for wrong in ["", "G", "1.5", "-1", "4X", "1023K", "99999999999T"] {
            let refused = options.set("log-max", Some(wrong));
            assert!(matches!(refused, Err(OptionError::Invalid { .. })), "{wrong}");
        }
        options.set("cache-size", Some("8M")).unwrap();
        assert_eq!(
            (options.cache_size, options.cache_min_free),
            (8 << 20, MinFree::Less(5 << 30, 10))
        );
        options.set("cache-min-free", Some("5G")).unwrap();
        assert_eq!(options.cache_min_free, MinFree::Bytes(5 << 30));
        options.set("cache-min-free", Some("0%")).unwrap();
        assert_eq!(options.cache_min_free, MinFree::Percent(0));
        for wrong in ["", "%", "100%", "-1%", "1.5%", "10 %", "x"] {
            let refused = options.set("cache-min-free", Some(wrong));
            assert!(matches!(refused, Err(OptionError::Invalid { .. })), "{wrong}");
        }
        options.set("x-systemd.automount", None).unwrap();
        options.set("_netdev", None).unwrap();
        assert!(matches!(options.set("nonsense", None), Err(OptionError::Unknown(_))));
        assert!(matches!(
            options.set("prefetch", Some("on")),
            Err(OptionError::NotInThisVersion(_))
        ));
        options.set("hidden", Some("wait")).unwrap();
        assert_eq!(options.hidden, Hidden::Wait);
        let odd = options.set("hidden", Some("never")).unwrap_err().to_string();
        assert_eq!(odd, "mount option 'hidden': 'never' is not last, fail or wait");
        options.set("passthrough", Some("off")).unwrap();
        assert_eq!(options.passthrough, Passthrough::Off);
        let odd = options.set("passthrough", Some("maybe"));
        assert!(matches!(odd, Err(OptionError::Invalid { .. })));
        assert!(matches!(options.set("grace", Some("10")), Err(OptionError::Invalid { .. })));
        assert!(matches!(options.set("uid", Some("me")), Err(OptionError::Invalid { .. })));
        assert!(matches!(options.set("uid", None), Err(OptionError::Invalid { .. })));
    }

    #[test]
    fn options_for_experiments_work_and_are_not_in_the_help() {
        let mut options = MountOptions::default();
        for (key, value) in [
            ("io-uring", None),
            ("priorities", Some("uniform")),
            ("priorities", Some("modal")),
            ("promises", Some("500ms")),
            ("record-calls", Some("/tmp/calls")),
        ] {
            options.set(key, value).unwrap();
            assert!(!KEYS.iter().any(|(listed, _)| listed.starts_with(key)), "{key}");
        }
        assert!(options.io_uring && options.record_calls.is_some());
        assert_eq!(options.priorities, Discipline::Modal(Modes::default()));
        assert_eq!(options.promises, Some(Duration::from_millis(500)));
        let odd = options.set("priorities", Some("off")).unwrap_err().to_string();
        assert_eq!(odd, "mount option 'priorities': 'off' is not on, uniform or modal");
    }

    #[test]
    fn a_timetable_has_commas_of_its_own() {
        let list = "ro,bwlimit=08:00,500K:2M 18:00,off,,uid=5,bwlimit=1M";
        let each = ["ro", "bwlimit=08:00,500K:2M 18:00,off", "uid=5", "bwlimit=1M"];
        assert_eq!(split(list), each);
        let mut options = MountOptions::default();
        options.set("bwlimit", Some("\"08:00,500K:2M 18:00,off\"")).unwrap();
        assert_eq!(options.bwlimit.to_string(), "08:00,500K:2M 18:00,off");
        let odd = options.set("bwlimit", Some("5X:1M")).unwrap_err().to_string();
        assert!(odd.starts_with("mount option 'bwlimit': '5X:1M' is not UP:DOWN"), "{odd}");
    }
}
