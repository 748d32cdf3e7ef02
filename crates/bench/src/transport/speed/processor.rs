//! Processor time, by process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use segue_bed::{Doing, Host, Result};

/// The kernel's unit in /proc: a hundredth of a second on every machine that we measure.
const TICK: Duration = Duration::from_millis(10);
/// Fields before a process's time in user mode, and after its name.
const BEFORE: usize = 11;

/// What the process has used so far: its id, or `self`, or `thread-self`.
pub(super) fn of(process: &str) -> Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).doing(format!("read {path}"))?;
    Ok(parse(&stat))
}

/// What all processes on `host` have used that are still there.
pub(super) fn of_host(host: &Host) -> Result<Duration> {
    let network = |of: &Path| fs::read_link(of.join("ns/net"));
    let ours = host.enter(|| network(Path::new("/proc/thread-self")))?.doing("find the host")?;
    let mut sum = Duration::ZERO;
    for entry in fs::read_dir("/proc").doing("list processes")? {
        let path = entry.doing("list processes")?.path();
        // Others may end meanwhile.
        if network(&path).is_ok_and(|theirs| theirs == ours) {
            sum +=
                fs::read_to_string(path.join("stat")).map_or(Duration::ZERO, |stat| parse(&stat));
        }
    }
    Ok(sum)
}

/// Time in user mode and in the kernel. The name before it may hold anything, also brackets.
fn parse(stat: &str) -> Duration {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(BEFORE).take(2);
    times.filter_map(|ticks| ticks.parse::<u32>().ok()).map(|ticks| TICK * ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_user_and_system_time_of_a_process_of_any_name() {
        let stat = "12 (a) b (c) S 1 12 12 0 -1 4194560 1 0 0 0 150 25 7 8 20 0 1 0 99";
        assert_eq!(parse(stat), Duration::from_millis(1750));
        assert_eq!(parse(""), Duration::ZERO);
    }

    #[test]
    fn a_process_that_works_uses_time() {
        let before = of("self").unwrap();
        while of("self").unwrap() == before {}
    }
}
