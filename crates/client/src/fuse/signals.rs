//! What signals have done to a process: read from /proc, where the kernel lets everybody look.
//!
//! Only from `status`, as long as the process may be in execve(2): that holds a lock of the
//! kernel while it closes files, which are ours perhaps, and whoever reads `stat`, `syscall`,
//! `stack` or `io` of the process waits for that lock. We would wait for each other.

/// Signals that do nothing unless they are caught: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG,
/// WINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);
const KILL: u64 = bit(9);
/// A process flag in /proc/PID/stat: ended by a signal.
const PF_SIGNALED: u64 = 0x400;

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// What is known of a thread that waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// No signal is on its way to it.
    Lives,
    /// It is to get a signal that it handles.
    Signalled,
    /// It is ending by itself: its files are closed for it.
    Exits,
    /// A signal ends it, or it has ended. So does one that cannot be seen from here (0): better
    /// an error than a process that nobody can kill.
    Dies,
}

/// The fate of thread `pid`, as it looks now.
pub(super) fn fate(pid: u32) -> Fate {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) if pid != 0 => match by_status(&status) {
            Fate::Exits if was_killed(pid) => Fate::Dies,
            fate => fate,
        },
        _ => Fate::Dies,
    }
}

fn by_status(status: &str) -> Fate {
    let mask = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    let passed_over = mask("SigBlk:") | mask("SigIgn:");
    let caught = mask("SigCgt:");
    if pending & (KILL | !(passed_over | caught | HARMLESS)) != 0 {
        return Fate::Dies;
    }
    // Its memory goes before its files are closed.
    if !status.contains("\nVmSize:") {
        return Fate::Exits;
    }
    if pending & caught & !passed_over != 0 { Fate::Signalled } else { Fate::Lives }
}

/// An exiting process was ended by a signal.
fn was_killed(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| flags_of(&stat).is_some_and(|flags| flags & PF_SIGNALED != 0))
}

/// The seventh field behind the program's name, which may hold anything but ends with ')'.
fn flags_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcat\nVmSize:\t    2828 kB\n\
             SigPnd:\t{pending:016x}\nShdPnd:\t0000000000000000\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn a_signal_that_nobody_handles_ends_its_process() {
        let (int, alarm, child) = (bit(2), bit(14), bit(17));
        assert_eq!(by_status(&status(KILL, !0, !0, !0)), Fate::Dies);
        assert_eq!(by_status(&status(int, 0, 0, alarm)), Fate::Dies);
        assert_eq!(by_status(&status(alarm, 0, 0, alarm)), Fate::Signalled);
        assert_eq!(by_status(&status(alarm, alarm, 0, alarm)), Fate::Lives);
        assert_eq!(by_status(&status(int, int, 0, 0)), Fate::Lives);
        assert_eq!(by_status(&status(int, 0, int, 0)), Fate::Lives);
        assert_eq!(by_status(&status(child, 0, 0, 0)), Fate::Lives);
        assert_eq!(by_status(&status(0, 0, 0, 0)), Fate::Lives);
        let exiting = status(0, 0, 0, 0).replace("VmSize", "Kthread");
        assert_eq!(by_status(&exiting), Fate::Exits);
    }

    #[test]
    fn flags_are_found_behind_any_name() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194560 100 0";
        assert_eq!(flags_of(stat), Some(4_194_560));
        assert_eq!(flags_of("12 (cut"), None);
    }

    #[test]
    fn this_process_lives_and_one_that_is_not_there_does_not() {
        assert_eq!(fate(std::process::id()), Fate::Lives);
        assert!(!was_killed(std::process::id()));
        assert_eq!(fate(0), Fate::Dies);
    }
}
