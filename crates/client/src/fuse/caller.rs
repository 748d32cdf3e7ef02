//! Who is asking: resolved once, when the request arrives, because a process may be gone when
//! its change is sent.

use segue_core::types::Caller;
use segue_fuse::Request;

/// The caller of `request`.
pub(super) fn resolve(request: &Request<'_>) -> Caller {
    let header = &request.header;
    let groups = request.groups.clone();
    let (uid, gid, pid) = (header.uid, header.gid, header.pid);
    let caller = Caller { uid, gid, pid, groups, ..Caller::default() };
    // A process of another pid namespace is 0, and one that has just ended has no status.
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) if pid != 0 => with_status(caller, &status),
        _ => caller,
    }
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
                let own = value.split_whitespace().next();
                caller.process_group = own.and_then(|group| group.parse().ok()).unwrap_or(0);
                break;
            }
            _ => {}
        }
    }
    caller
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_program_groups_and_process_group() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let caller = with_status(Caller::default(), &status);
        let own = rustix::process::getpgrp().as_raw_nonzero().get();
        assert_eq!(i64::from(caller.process_group), i64::from(own));
        assert!(!caller.program.is_empty());
        let made = "Name:\tcp\nGroups:\t4 24 27 \nNSpgid:\t77\t3\n";
        let caller = with_status(Caller::default(), made);
        assert_eq!((caller.program.as_str(), caller.process_group), ("cp", 77));
        assert_eq!(caller.groups, [4, 24, 27]);
    }
}
