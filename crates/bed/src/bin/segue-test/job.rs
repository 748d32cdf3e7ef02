//! One process: a test of its own, or the unit tests of a crate.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::binaries::Binary;

/// A job that takes this long hangs. The longest test of `make test` took 106 s beside others, the
/// longest of `make test-long` 764 s.
const HANGS_AFTER: Duration = Duration::from_secs(600);
const HANGS_AFTER_LONG: Duration = Duration::from_secs(3600);
/// How long the kernel may take to end a killed process. One that it leaves waiting inside a
/// system call is reported and left.
const KILL_MAX: Duration = Duration::from_secs(20);

/// Something to run.
#[derive(Debug)]
pub(crate) struct Job {
    /// The binary, and the test if it runs alone: `segue/e2e::promises::a_test`.
    pub(crate) name: String,
    /// Whether it keeps a processor busy rather than waits.
    pub(crate) is_busy: bool,
    test: Option<String>,
    program: PathBuf,
    dir: PathBuf,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// What it printed.
    pub(crate) output: String,
    pub(crate) ended: Ended,
}

impl Done {
    /// Whether it did not end by itself.
    pub(crate) fn hung(&self) -> bool {
        matches!(self.ended, Ended::Killed | Ended::LeftWaiting)
    }
}

/// The end of a process.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself.
    Exited(ExitStatus),
    /// It hung and was killed.
    Killed,
    /// It hung, was killed, and did not end: it waits in the kernel.
    LeftWaiting,
    /// It was never there.
    NotStarted(io::Error),
}

impl Job {
    /// The jobs of `binary`.
    pub(crate) fn of(binary: &Binary) -> Result<Vec<Job>, String> {
        let job = |test: Option<String>| Job {
            name: match &test {
                Some(test) => format!("{}::{test}", binary.name),
                None => binary.name.clone(),
            },
            is_busy: binary.has_units || !WAITING.contains(&binary.name.as_str()),
            test,
            program: binary.program.clone(),
            dir: binary.dir.clone(),
        };
        if binary.has_units {
            return Ok(vec![job(None)]);
        }
        let mut list = Command::new(&binary.program);
        list.args(["--list", "--format", "terse"]).current_dir(&binary.dir);
        let listed = list.stdin(Stdio::null()).output();
        let listed = listed.map_err(|error| format!("{}: {error}", binary.program.display()))?;
        let lines = String::from_utf8_lossy(&listed.stdout).into_owned();
        let tests = lines.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(tests.map(|test| job(Some(test.to_owned()))).collect())
    }

    /// Whether `name` asks for it: its binary or module, with or without the package.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let begins = |full: &str| {
            let rest = full.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        begins(&self.name) || self.name.split_once('/').is_some_and(|(_, rest)| begins(rest))
    }

    /// It is not run.
    pub(crate) fn left_out(self, why: &'static str) -> Done {
        let ended = Ended::NotStarted(io::Error::other(why));
        Done { name: self.name, seconds: 0.0, output: String::new(), ended }
    }

    /// Runs it to its end.
    pub(crate) fn run(self) -> Done {
        let start = Instant::now();
        let (ended, output) = match self.start() {
            Ok((child, output)) => {
                let ended = wait(child);
                let said = fs::read(&output).unwrap_or_default();
                fs::remove_file(output).ok();
                (ended, String::from_utf8_lossy(&said).into_owned())
            }
            Err(error) => (Ended::NotStarted(error), String::new()),
        };
        Done { name: self.name, seconds: start.elapsed().as_secs_f64(), output, ended }
    }

    /// Starts it; what it prints goes to the file, which a process that it leaves behind cannot
    /// keep open as it could a pipe.
    fn start(&self) -> io::Result<(Child, PathBuf)> {
        let flat = self.name.replace(['/', ':'], "-");
        let output = std::env::temp_dir().join(format!("segue-test-{}-{flat}", std::process::id()));
        let file = File::create(&output)?;
        let mut command = Command::new(&self.program);
        if let Some(test) = &self.test {
            command.args(["--exact", test]);
        }
        command.arg("--nocapture").current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok((command.spawn()?, output))
    }
}

/// Test binaries most of whose time is spent waiting.
const WAITING: [&str; 6] = [
    "segue/e2e",
    "segue-server/loopback",
    "segue-bed/bed",
    "segue-bed/disk",
    "segue-bench/run",
    "segue-fuse/memory",
];

/// Whether all tests run at full length.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SEGUE_TEST_LONG").is_some_and(|value| value == "1")
}

/// Waits for `child`, and kills it when it hangs.
fn wait(mut child: Child) -> Ended {
    let longest = if is_long() { HANGS_AFTER_LONG } else { HANGS_AFTER };
    if let Some(status) = wait_for(&mut child, longest) {
        return Ended::Exited(status);
    }
    // What it leaves behind, its bed's reaper removes.
    child.kill().ok();
    match wait_for(&mut child, KILL_MAX) {
        Some(_) => Ended::Killed,
        None => Ended::LeftWaiting,
    }
}

/// Asks again and again, because the standard library can wait for a process or for a time, not
/// for both.
fn wait_for(child: &mut Child, longest: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + longest;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            _ if Instant::now() > deadline => return None,
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> Job {
        let (test, program, dir) = (None, PathBuf::new(), PathBuf::new());
        Job { name: name.to_owned(), is_busy: false, test, program, dir }
    }

    #[test]
    fn a_name_asks_for_a_binary_a_module_or_a_test() {
        let one = job("segue/e2e::promises::a_test");
        for name in ["segue/e2e", "e2e", "e2e::promises", "segue/e2e::promises::a_test"] {
            assert!(one.is_called(name), "{name}");
        }
        for name in ["e2", "e2e::prom", "promises", "segue-core"] {
            assert!(!one.is_called(name), "{name}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_a_failure() {
        let done = Job { program: "/nonexistent".into(), ..job("a") }.run();
        assert!(matches!(done.ended, Ended::NotStarted(_)), "{done:?}");
    }
}
