//! Whether a process is about to die: read from /proc, where the kernel lets everybody look.

/// Signals that do nothing unless they are caught: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG,
/// WINCH.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28);
const KILL: u64 = bit(9);
/// Process flags in /proc/PID/stat.
const PF_EXITING: u64 = 0x4;
const PF_SIGNALED: u64 = 0x400;

const fn bit(signal: u32) -> u64 {
    1 << (signal - 1)
}

/// A signal that ends thread `pid` is pending, or it has ended. A thread that cannot be seen
/// from here (0) counts as dying: better an error than a process that nobody can kill.
pub(super) fn is_dying(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) if pid != 0 => is_deadly(&status) || has_flags(pid, PF_EXITING | PF_SIGNALED),
        _ => true,
    }
}

/// Thread `pid` is being ended by a signal: a file that it closes now is closed for it.
pub(super) fn was_killed(pid: u32) -> bool {
    has_flags(pid, PF_SIGNALED)
}

fn has_flags(pid: u32, flags: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| flags_of(&stat).is_some_and(|set| set & flags != 0))
}

/// The seventh field behind the program's name, which may hold anything but ends with ')'.
fn flags_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(6)?.parse().ok()
}

/// Whether a signal is pending that is neither blocked, ignored nor caught, and ends the
/// process.
fn is_deadly(status: &str) -> bool {
    let mask = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = mask("SigPnd:") | mask("ShdPnd:");
    let handled = mask("SigBlk:") | mask("SigIgn:") | mask("SigCgt:") | HARMLESS;
    pending & (KILL | !handled) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pending: u64, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tcat\nSigPnd:\t{pending:016x}\nShdPnd:\t0000000000000000\n\
             SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn only_signals_that_nobody_handles_are_deadly() {
        let (int, alarm, child) = (bit(2), bit(14), bit(17));
        assert!(is_deadly(&status(KILL, !0, !0, !0)));
        assert!(is_deadly(&status(int, 0, 0, alarm)));
        assert!(!is_deadly(&status(alarm, 0, 0, alarm)));
        assert!(!is_deadly(&status(int, int, 0, 0)));
        assert!(!is_deadly(&status(int, 0, int, 0)));
        assert!(!is_deadly(&status(child, 0, 0, 0)));
        assert!(!is_deadly(&status(0, 0, 0, 0)));
    }

    #[test]
    fn flags_are_found_behind_any_name() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194560 100 0";
        assert_eq!(flags_of(stat), Some(4_194_560));
        assert_eq!(flags_of("12 (cut"), None);
    }

    #[test]
    fn this_process_lives_and_one_that_is_not_there_does_not() {
        assert!(!is_dying(std::process::id()));
        assert!(!was_killed(std::process::id()));
        assert!(is_dying(0));
    }
}
