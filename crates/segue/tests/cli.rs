//! The command line as scripts see it: the real binary, with a home directory of its own.
//! Nothing here mounts.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A user of this host with an empty home directory.
struct User {
    home: TempDir,
}

impl User {
    fn new() -> User {
        User { home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        for (name, _) in std::env::vars() {
            if name.starts_with("SEGUE_") || name.starts_with("XDG_") {
                command.env_remove(name);
            }
        }
        command.args(arguments).env("HOME", self.home.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::from(self.command(arguments).output().unwrap())
    }

    fn write_config(&self, text: &str) {
        let directory = self.home.path().join(".config/segue");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("config.toml"), text).unwrap();
    }
}

#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    #[track_caller]
    fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    #[track_caller]
    fn json(self) -> Value {
        serde_json::from_str(&self.done()).unwrap()
    }

    /// Ended with `code`, and said `words` on stderr and nothing on stdout.
    #[track_caller]
    fn refused(self, code: i32, words: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(words), "{words:?} in {self:?}");
        assert_eq!(self.out, "");
    }
}

/// A server in the background, stopped at the end of the test, also of a failed one.
struct Served<'a>(&'a User);

impl Served<'_> {
    fn start(user: &User) -> (Served<'_>, String) {
        let words = user.run(&["serve", "--detach", "--listen", "127.0.0.1:0"]).done();
        let address = words.trim_end().strip_prefix("segue: serving on ").unwrap().to_owned();
        (Served(user), address)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.run(&["serve", "--stop"]);
    }
}

const COMMANDS: [&str; 18] = [
    "serve",
    "volume",
    "invite",
    "identity",
    "mount",
    "umount",
    "status",
    "sync",
    "where",
    "persist",
    "bwlimit",
    "log",
    "push",
    "why",
    "conflicts",
    "resolve",
    "metrics",
    "completions",
];

#[test]
fn help_lists_every_command_and_each_teaches_by_example() {
    let user = User::new();
    let all = user.run(&["help"]).done();
    for command in COMMANDS {
        assert!(all.contains(&format!("\n  {command} ")), "{command} in {all}");
        let help = user.run(&["help", command]).done();
        assert!(help.contains(&format!("Usage: segue {command}")), "{help}");
        assert!(help.contains("Examples:\n  "), "{help}");
    }
    assert!(!all.contains("\n  group "), "a command that is not there yet is not listed: {all}");
    assert!(user.run(&["--version"]).done().starts_with("segue 0."));
}

/// A command for tests is no user's.
#[test]
fn help_hides_the_command_that_loses_a_link() {
    let user = User::new();
    for arguments in [&["--help"][..], &["help"]] {
        let said = user.run(arguments).done();
        assert!(said.contains("umount") && !said.contains("lose-link"), "{arguments:?}: {said}");
    }
}

#[test]
fn lists_of_the_help_keep_their_columns_at_any_width() {
    let user = User::new();
    for columns in ["60", "80"] {
        let ended = user.command(&["help", "mount"]).env("COLUMNS", columns).output().unwrap();
        let help = Ended::from(ended).done();
        let options =
            help.split_once("Mount options:").unwrap().1.split_once("Examples:").unwrap().0;
        for line in options.lines().filter(|line| !line.is_empty()) {
            assert!(line.starts_with("  "), "{options}");
            assert!(line.chars().count() <= columns.parse().unwrap(), "{columns} columns: {line}");
        }
        assert!(!help.contains("Possible values"), "{help}");
    }
}

#[test]
fn every_mount_option_is_in_the_help() {
    let help = User::new().run(&["mount", "--help"]).done();
    for option in ["cache-dir=DIR", "write-back=", "fsync=", "grace=", "allow-other", "ro "] {
        assert!(help.contains(&format!("\n  {option}")), "{option} in {help}");
    }
}

#[test]
fn mistakes_in_usage_end_with_2_and_say_which() {
    let user = User::new();
    let directory = user.home.path().to_str().unwrap();
    user.run(&["no-such-command"]).refused(2, "no-such-command");
    user.run(&["status", "--no-such-flag"]).refused(2, "--no-such-flag");
    user.run(&["sync", "--timeout", "soon"]).refused(2, "30s");
    user.run(&["serve", "--listen", "here"]).refused(2, "here");
    let mount = |option| user.run(&["mount", "segue://localhost/home", directory, "-o", option]);
    mount("no-such-option").refused(2, "no-such-option");
    mount("prefetch=on").refused(2, "not in this version");
    mount("write-back=delay:30").refused(2, "'delay:30' is not async, delay:T, log:T");
    mount("write-back=later").refused(2, "later");
    mount("grace=5").refused(2, "grace");
    mount("bwlimit=5X:1M").refused(2, "'5X:1M' is not UP:DOWN in bytes a second such as 500K:2M");
    mount("bwlimit=08:00,1M 8:00,off").refused(2, "'8:00,off'");
    mount("bwlimit=08:00,500K:2M 18:00,off,no-such-option").refused(2, "no-such-option");
    user.run(&["bwlimit", directory, "fast"]).refused(2, "'fast' is not UP:DOWN");
    user.run(&["mount", "http://localhost/home", directory]).refused(2, "segue://");
    let words = "the volume is missing after 'segue://localhost': write segue://HOST[:PORT]/VOLUME";
    user.run(&["mount", "segue://localhost", directory]).refused(2, words);
    user.run(&["mount", "segue://localhost/", directory]).refused(2, words);
}

#[test]
fn a_host_name_without_an_address_is_named() {
    let user = User::new();
    let point = user.home.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    let invite = format!("segue://no-such-host.invalid/home?invite=x&ca={}", "a".repeat(64));
    let words = "cannot resolve the name no-such-host.invalid: ";
    user.run(&["mount", &invite, point.to_str().unwrap()]).refused(4, words);
}

/// Proves S12.18.
#[test]
fn sizes_and_times_have_units() {
    let user = User::new();
    let directory = user.home.path().to_str().unwrap();
    for (time, size) in [("5", "4096"), ("5x", "10X"), ("", "")] {
        let (no_time, no_size) =
            ("a time is a number with a unit", "a size is a number with a unit");
        user.run(&["sync", "--timeout", time]).refused(2, no_time);
        user.run(&["umount", directory, "--timeout", time]).refused(2, no_time);
        user.run(&["invite", "--ttl", time]).refused(2, no_time);
        user.run(&["volume", "set", "home", "--quota", size]).refused(2, no_size);
        user.run(&["volume", "check", "--rate", size]).refused(2, no_size);
        if !size.is_empty() {
            let mount = |option: &str, value| {
                let option = format!("{option}={value}");
                user.run(&["mount", "segue://localhost/home", directory, "-o", &option])
            };
            mount("grace", time).refused(2, no_time);
            mount("cache-size", size).refused(2, no_size);
            mount("cache-min-free", size).refused(2, no_size);
            mount("log-max", size).refused(2, no_size);
            mount("bwlimit", size).refused(2, "bytes a second such as 500K:2M");
        }
    }
    user.run(&["volume", "set", "home", "--quota", "99999999T"]).refused(2, "too large");
}

#[test]
fn a_path_that_does_not_exist_ends_with_3() {
    let user = User::new();
    let missing = user.home.path().join("missing");
    let missing = missing.to_str().unwrap();
    user.run(&["mount", "segue://localhost/home", missing]).refused(3, "mkdir");
    for command in ["umount", "where", "persist", "sync", "log", "status", "bwlimit"] {
        user.run(&[command, missing]).refused(3, "missing");
    }
    user.run(&["volume", "list"]).refused(3, "segue serve");
    assert!(!user.home.path().join(".local").exists(), "asking makes nothing");
}

#[test]
fn a_path_that_is_on_no_mount_is_named() {
    let user = User::new();
    let directory = user.home.path().to_str().unwrap();
    for command in ["umount", "where", "persist", "sync", "log", "status", "bwlimit"] {
        user.run(&[command, directory]).refused(1, "not on a Segue mount");
    }
}

#[test]
fn completions_know_the_commands() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = user.run(&["completions", shell]).done();
        for command in COMMANDS {
            assert!(script.contains(command), "{command} for {shell}");
        }
    }
}

#[test]
fn status_without_mounts_is_not_an_error() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if mounts.contains(" - fuse.segue ") {
        println!("skipped: Segue volumes are mounted on this host");
        return;
    }
    let user = User::new();
    assert_eq!(
        user.run(&["status", "--json"]).json(),
        serde_json::json!({ "mounts": [], "unmounted": [] })
    );
    assert!(user.run(&["status"]).done().contains("no volume is mounted"));
    assert_eq!(user.run(&["log", "--json"]).json(), serde_json::json!({ "records": [] }));
    let synced = user.run(&["sync", "--json"]).json();
    let nothing = serde_json::json!({
        "ok": true, "pending_records": 0, "pending_bytes": 0, "refused": 0, "unmounted": [],
    });
    assert_eq!(synced, nothing);
}

#[test]
fn unknown_keys_of_the_configuration_are_errors() {
    let user = User::new();
    let home = user.home.path().to_str().unwrap();
    let command = ["mount", "segue://127.0.0.1:1/home", home];
    user.write_config("cache-szie = \"1G\"\n");
    user.run(&command).refused(2, "config.toml: unknown key 'cache-szie'");
    user.write_config("write-back = \"log:1\"\n");
    user.run(&command).refused(2, "'log:1' is not async, delay:T");
    user.write_config("write-back = ");
    user.run(&command).refused(2, "config.toml");
    user.write_config("write-back = \"async\"\n");
    // Not `status`: its answer depends on the mounts of this host.
    user.run(&["where", home]).refused(1, "not on a Segue mount");
    for (name, value) in [("SEGUE_GRACE", "soon"), ("SEGUE_BWLIMIT", "fast")] {
        let ended = user.command(&command).env(name, value).output().unwrap();
        Ended::from(ended).refused(2, name);
    }
}

#[test]
fn a_server_is_administered_while_it_is_down_and_while_it_is_up() {
    let user = User::new();
    user.run(&["invite", "--host", "files.example"]).refused(3, "segue serve");
    drop(Served::start(&user));
    let offline = user.run(&["invite", "--host", "files.example"]).done();
    let (served, address) = Served::start(&user);
    let online = user.run(&["invite", "--host", "files.example", "--role", "reader"]).done();
    for url in [&offline, &online] {
        assert!(url.starts_with("segue://files.example"), "{url}");
        assert!(url.contains("/home?invite=") && url.contains("&ca="), "{url}");
        assert_eq!(url.lines().count(), 1, "only the line, for scripts: {url}");
    }
    let port = address.rsplit(':').next().unwrap();
    assert!(online.contains(&format!("files.example:{port}/")), "{online} on {address}");

    let forwarded = user.run(&["invite", "--host", "files.example:7421"]).done();
    assert!(forwarded.starts_with("segue://files.example:7421/home?"), "{forwarded}");
    let bracketed = user.run(&["invite", "--host", "[2001:db8::1]:7421"]).done();
    assert!(bracketed.starts_with("segue://[2001:db8::1]:7421/home?"), "{bracketed}");
    assert!(user.run(&["invite", "--host", "::1"]).done().starts_with("segue://[::1]:"));
    for (wrong, words) in [("files:0", "port"), ("files:x", "'x' is not a port"), ("a b", "'a b'")]
    {
        user.run(&["invite", "--host", wrong]).refused(2, words);
    }
    user.run(&["invite", "--ttl", "0s"]).refused(2, "from 1s to 366d");
    let inside = user.home.path().join(".local/share/segue/backups/home");
    let backup = ["volume", "backup", "home", inside.to_str().unwrap()];
    user.run(&backup).refused(2, "inside the server's own data directory");
    assert!(!inside.exists());
    let home = |user: &User| {
        let volume = user.run(&["volume", "show", "home", "--json"]).json();
        [volume["backed_up"].is_i64(), volume["checked"].is_i64()]
    };
    assert_eq!(home(&user), [false; 2], "a backup that was refused is none");
    assert_eq!(user.run(&["volume", "list"]).done().matches("never").count(), 2);
    user.run(&["volume", "check", "home", "--quick"]).done();
    assert_eq!(home(&user), [false; 2], "not each byte was read");
    user.run(&["volume", "check", "home"]).done();
    assert_eq!(home(&user), [false, true]);
    let beside = user.home.path().join("backups");
    let saved = user.run(&["volume", "backup", "home", beside.to_str().unwrap()]).done();
    assert!(saved.contains("warning: the backups are on the disk of the server's data"), "{saved}");
    assert_eq!(home(&user), [true; 2]);
    assert_eq!(user.run(&["volume", "list"]).done().matches(" ago").count(), 2);
    user.run(&["volume", "create", "photos"]).done();
    let show = user.run(&["volume", "show", "photos", "--json"]).json();
    assert_eq!(show["name"], "photos");
    user.run(&["volume", "create", "photos"]).refused(1, "photos");
    user.run(&["volume", "show", "nothing"]).refused(3, "nothing");
    user.run(&["invite", "--volume", "nothing"]).refused(3, "nothing");
    let checked = user.run(&["volume", "check", "photos", "--json"]).json();
    assert_eq!((&checked["line"], &checked["inodes"]), (&"checked".into(), &1.into()));
    user.run(&["volume", "check", "nothing"]).refused(3, "nothing");
    user.run(&["invite", "--no-root-squash"]).refused(2, "--role host");
    drop(served);

    let list = user.run(&["volume", "list", "--json"]).json();
    let names: Vec<&Value> =
        list["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]).collect();
    assert_eq!(names, ["home", "photos"]);
    assert!(user.run(&["volume", "list"]).done().contains("photos"));
    let checked = user.run(&["volume", "check"]).done();
    assert!(checked.contains("home: clean; 1 inode ") && checked.contains("photos: clean; "));
    user.run(&["volume", "check", "nothing"]).refused(3, "nothing");
    let identities = user.run(&["identity", "list", "--json"]).json();
    assert_eq!(identities, serde_json::json!({ "identities": [] }));
    user.run(&["identity", "revoke", "0000"]).refused(3, "0000");
}

#[test]
fn a_server_stops_when_told_and_starts_again() {
    let user = User::new();
    for _ in 0..2 {
        let (served, _) = Served::start(&user);
        let again = user.run(&["serve", "--detach", "--listen", "127.0.0.1:0"]);
        again.refused(1, ".local/share/segue");
        assert!(user.run(&["metrics", "--server"]).done().contains("segue_"));
        assert!(user.run(&["serve", "--stop"]).done().contains("stopped"));
        user.run(&["serve", "--stop"]).refused(1, "no server is running");
        drop(served);
    }
}

#[test]
fn a_server_notes_its_calls_where_it_is_told_to() {
    let user = User::new();
    let notes = user.home.path().join("calls");
    let serve = ["serve", "--detach", "--listen", "127.0.0.1:0", "--record-calls"];
    user.run(&[&serve[..], &[notes.to_str().unwrap()]].concat()).done();
    drop(Served(&user));
    assert!(notes.exists());
    let nowhere = user.home.path().join("missing/calls");
    let nowhere = nowhere.to_str().unwrap();
    user.run(&[&serve[..], &[nowhere]].concat()).refused(1, "missing/calls");
}

#[test]
fn a_server_sends_in_the_order_that_it_is_told() {
    let user = User::new();
    let serve = ["serve", "--detach", "--listen", "127.0.0.1:0", "--priorities"];
    user.run(&[&serve[..], &["off"]].concat()).refused(2, "'off' is not on, uniform or modal");
    user.run(&[&serve[..], &["uniform"]].concat()).done();
    let _served = Served(&user);
    let commands = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let words = std::fs::read(entry.unwrap().path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&words).replace('\0', " "))
    });
    let home = user.home.path().to_str().unwrap();
    let mut ours = commands.filter(|words| words.contains(" serve ") && words.contains(home));
    // The process in the background is told as well.
    assert!(ours.any(|words| words.contains(" --priorities uniform")));
}

#[test]
fn a_server_in_the_foreground_stops_cleanly_on_a_signal() {
    use std::io::{BufRead, BufReader};
    let user = User::new();
    let serve = &["serve", "--listen", "127.0.0.1:0"];
    let mut child = user.command(serve).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("segue: serving on 127.0.0.1:"), "{line}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// As systemd starts it (sd_notify(3)).
#[test]
fn a_server_tells_the_service_manager_that_it_is_ready() {
    let user = User::new();
    let path = user.home.path().join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut command = user.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).spawn().unwrap();
    let told = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(told().trim_end(), "READY=1");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(told().trim_end(), "STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_log_can_be_json() {
    let user = User::new();
    let (served, _) = Served::start(&user);
    drop(served);
    let log = user.home.path().join(".local/state/segue/log/serve.log");
    assert!(std::fs::read_to_string(&log).unwrap().contains("serving"));
    let serve = ["--log-format", "json", "serve", "--detach", "--listen", "127.0.0.1:0"];
    std::fs::remove_file(&log).unwrap();
    user.run(&serve).done();
    drop(Served(&user));
    assert_json_lines(&log);
}

fn assert_json_lines(log: &Path) {
    let text = std::fs::read_to_string(log).unwrap();
    assert!(!text.is_empty());
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(record["level"].is_string(), "{line}");
    }
}
