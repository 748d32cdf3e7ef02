//! Who is asking: resolved once, when the request arrives, because a process may be gone when
//! its change is sent.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;

use segue_core::nouns::Caller;
use segue_fuse::Request;

use crate::rank::Ranked;

/// Room for a status, which is read at one go: who asks waits meanwhile.
const STATUS: usize = 4096;
/// Processes whose status stays open: as many as usually work in a mount at a time.
const OPEN_MAX: usize = 16;

/// The files /proc/PID/status of the last callers, the last one at the end.
///
/// An open file saves a third of the time, and tells the state at the moment of the read. It
/// belongs to one process for ever. When that has ended, the read fails, whichever process has the
/// number.
#[derive(Debug)]
pub(super) struct Statuses(Ranked<Vec<(u32, File)>>);

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses(Ranked::leaf(Vec::with_capacity(OPEN_MAX)))
    }
}

impl Statuses {
    /// The caller of `request`.
    pub(super) fn resolve(&self, request: &Request<'_>) -> Caller {
        let header = &request.header;
        let groups = request.groups.clone();
        let (uid, gid, pid) = (header.uid, header.gid, header.pid);
        let caller = Caller { uid, gid, pid, groups, ..Caller::default() };
        // A process of another pid namespace is 0, and one that has just ended has no status.
        let read = |status: &str| with_status(caller.clone(), status);
        let asked = if pid == 0 { None } else { self.with(pid, read).ok() };
        asked.unwrap_or(caller)
    }

    /// The result of `read` for the status of process `pid`.
    fn with<R>(&self, pid: u32, read: impl Fn(&str) -> R) -> io::Result<R> {
        let mut open = self.0.lock();
        let known = open.iter().rposition(|(known, _)| *known == pid).map(|at| open.remove(at).1);
        let still = known.and_then(|file| with_text(&file, &read).ok().map(|read| (file, read)));
        let (file, read) = match still {
            Some(still) => still,
            None => {
                let file = File::open(format!("/proc/{pid}/status"))?;
                let read = with_text(&file, &read)?;
                (file, read)
            }
        };
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push((pid, file));
        Ok(read)
    }
}

/// The result of `read` for the text of `file`, which does not tell its length. A text that does
/// not fill the room is whole.
fn with_text<R>(file: &File, read: impl Fn(&str) -> R) -> io::Result<R> {
    let mut room = [0; STATUS];
    let len = file.read_at(&mut room, 0)?;
    let mut long = Vec::new();
    if len == STATUS {
        // Of a process in hundreds of groups.
        let mut file = file;
        file.rewind()?;
        file.read_to_end(&mut long)?;
    }
    let text = if long.is_empty() { room.get(..len).unwrap_or_default() } else { &long };
    Ok(read(&String::from_utf8_lossy(text)))
}

/// Adds what /proc/PID/status says.
fn with_status(mut caller: Caller, status: &str) -> Caller {
    for line in status.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key {
            "Name" => caller.program = value.into(),
            "Groups" => {
                caller.groups = value.split(' ').filter_map(|group| group.parse().ok()).collect();
            }
            "NSpgid" => {
                caller.process_group = first(value);
            }
            "NSsid" => {
                caller.session = first(value);
                break;
            }
            _ => {}
        }
    }
    caller
}

/// The first of some numbers: that of our own pid namespace.
fn first(numbers: &str) -> u32 {
    numbers.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_is_asked_anew_each_time_and_the_next_one_with_its_number_too() {
        let statuses = Statuses::default();
        let mut command = Command::new("sh");
        let mut child =
            command.args(["-c", "read go; exec sleep 60"]).stdin(Stdio::piped()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let pid = child.id();
        let wait_for = |program: &str| {
            let is_it = |text: &str| with_status(Caller::default(), text).program == program;
            while !statuses.with(pid, is_it).unwrap() {
                assert!(Instant::now() < deadline, "it is not {program}");
            }
        };
        wait_for("sh");
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        wait_for("sleep");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(statuses.with(child.id(), str::len).is_err());
        // As if we had got the number of a process that has ended.
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let ended = File::open(format!("/proc/{}/status", other.id())).unwrap();
        other.kill().unwrap();
        other.wait().unwrap();
        let our = std::process::id();
        statuses.0.lock().push((our, ended));
        let is_ours = |text: &str| text.contains(&format!("\nPid:\t{our}\n"));
        assert!(statuses.with(our, is_ours).unwrap());
    }

    #[test]
    fn a_status_of_any_length_is_read_whole() {
        let mut file = tempfile::tempfile().unwrap();
        for groups in [0, 1, 2_000] {
            let text = format!("Name:\tcp\nGroups:\t{}\nNSsid:\t70\n", "100 ".repeat(groups));
            file.set_len(0).unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            let caller = with_text(&file, |text| with_status(Caller::default(), text)).unwrap();
            assert_eq!((caller.groups.len(), caller.session), (groups, 70));
            file.rewind().unwrap();
        }
    }

    #[test]
    fn many_processes_leave_few_files_open() {
        let statuses = Statuses::default();
        let our = std::process::id();
        for _ in 0..3 * OPEN_MAX {
            statuses.with(our, str::len).unwrap();
        }
        assert_eq!(statuses.0.lock().len(), 1);
        let threads: Vec<u32> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
            .collect();
        threads.iter().for_each(|pid| drop(statuses.with(*pid, str::len)));
        assert!(statuses.0.lock().len() <= OPEN_MAX);
    }

    #[test]
    fn a_status_names_program_groups_process_group_and_session() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let caller = with_status(Caller::default(), &status);
        // Numbers of /proc/PID/stat after the name: state, parent, process group, session. Both are
        // 0 where the leader is of another pid namespace, as in a container.
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (_, numbers) = stat.rsplit_once(')').unwrap();
        let mut numbers = numbers.split_whitespace().skip(2).map(|number| number.parse().unwrap());
        assert_eq!(Some(caller.process_group), numbers.next());
        assert_eq!(Some(caller.session), numbers.next());
        assert!(!caller.program.is_empty());
        let made = "Name:\tcp\nGroups:\t4 24 27 \nNSpgid:\t77\t3\nNSsid:\t70\t1\n";
        let caller = with_status(Caller::default(), made);
        assert_eq!((caller.program.as_str(), caller.process_group, caller.session), ("cp", 77, 70));
        assert_eq!(caller.groups, [4, 24, 27]);
    }
}
