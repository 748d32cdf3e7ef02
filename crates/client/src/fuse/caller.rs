//! Who is asking: resolved once, when the request arrives, because a process may be gone when
//! its change is sent.

use std::fs::File;
use std::io::{self, Read};

use segue_core::nouns::Caller;
use segue_fuse::Request;

/// Room for a status, which is read at one go: who asks waits meanwhile.
const STATUS: usize = 4096;

/// The caller of `request`.
pub(super) fn resolve(request: &Request<'_>) -> Caller {
    let header = &request.header;
    let groups = request.groups.clone();
    let (uid, gid, pid) = (header.uid, header.gid, header.pid);
    let caller = Caller { uid, gid, pid, groups, ..Caller::default() };
    // A process of another pid namespace is 0, and one that has just ended has no status.
    match status(pid) {
        Ok(status) if pid != 0 => with_status(caller, &String::from_utf8_lossy(&status)),
        _ => caller,
    }
}

/// What /proc/PID/status says. The file does not tell its length, so it is not asked.
fn status(pid: u32) -> io::Result<Vec<u8>> {
    let mut status = Vec::with_capacity(STATUS);
    let file = File::open(format!("/proc/{pid}/status"))?;
    file.take(u64::MAX).read_to_end(&mut status)?;
    Ok(status)
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
    use super::*;

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
