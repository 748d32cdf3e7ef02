//! Callers that want to be in nobody's way: what they wait for travels as what nobody waits for.
//!
//! That is a process of the idle I/O class (`ionice -c 3`), which it also has by the idle
//! scheduling policy (`chrt -i 0`), and one in a control group whose processor time or I/O is idle.

use std::fs;
use std::path::Path;
use std::time::Duration;

use segue_core::nouns::Class;
use segue_rpc::Rpc;

/// Where control groups of version 2 are.
const GROUPS: &str = "/sys/fs/cgroup";
/// While a directory is listed the kernel keeps others from changing it: so long for one who is in
/// no hurry.
const LISTING_MAX: Duration = Duration::from_secs(1);

/// The class of a fetch that process `pid` waits for; 0: one that cannot be told.
pub(crate) fn class_of(pid: u32) -> Class {
    let is_idle = pid != 0 && (is_idle_class(pid) || is_idle_group(pid));
    if is_idle { Class::Prefetch } else { Class::Fetch }
}

/// Waits for `listing`, whose calls go with `rpc`: behind what others fetch for as long as it may
/// keep them waiting.
pub(crate) async fn list<T>(rpc: &Rpc, listing: impl Future<Output = T>) -> T {
    tokio::pin!(listing);
    if let Ok(listed) = tokio::time::timeout(LISTING_MAX, &mut listing).await {
        return listed;
    }
    rpc.raise(Class::Fetch);
    listing.await
}

fn is_idle_class(pid: u32) -> bool {
    const OF_PROCESS: libc::c_int = 1;
    const IDLE: libc::c_long = 3;
    const CLASS_SHIFT: u32 = 13;
    // SAFETY: takes two numbers and returns one; it touches no memory of ours.
    #[expect(unsafe_code, reason = "no library has this system call")]
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, OF_PROCESS, pid) };
    // Of a process that is gone it is -1.
    priority >= 0 && priority >> CLASS_SHIFT == IDLE
}

fn is_idle_group(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    group.is_some_and(|group| is_idle_below(Path::new(GROUPS), Path::new(group)))
}

/// Whether `group` below `root`, or one that it is in, is idle.
fn is_idle_below(root: &Path, group: &Path) -> bool {
    let says = |group: &Path, file: &str, word: &str| {
        let path = root.join(group).join(file);
        fs::read_to_string(path).is_ok_and(|said| said.trim() == word)
    };
    group
        .ancestors()
        .any(|group| says(group, "cpu.idle", "1") || says(group, "io.prio.class", "idle"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_idle_by_itself_or_by_one_that_it_is_in() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("user/backup");
        fs::create_dir_all(&group).unwrap();
        let is_idle = || is_idle_below(root.path(), Path::new("user/backup"));
        assert!(!is_idle());
        fs::write(group.join("cpu.idle"), "0\n").unwrap();
        assert!(!is_idle());
        fs::write(root.path().join("user/cpu.idle"), "1\n").unwrap();
        assert!(is_idle());
        fs::remove_file(root.path().join("user/cpu.idle")).unwrap();
        fs::write(group.join("io.prio.class"), "idle\n").unwrap();
        assert!(is_idle());
    }

    #[test]
    fn this_process_is_not_idle_and_one_that_says_so_is() {
        assert_eq!(class_of(std::process::id()), Class::Fetch);
        assert_eq!(class_of(0), Class::Fetch);
        let mut idle =
            std::process::Command::new("ionice").args(["-c", "3", "sleep", "60"]).spawn().unwrap();
        // It is one once it runs what it was started for.
        let mut tries = 0;
        while class_of(idle.id()) != Class::Prefetch && tries < 1000 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            tries += 1;
        }
        let class = class_of(idle.id());
        idle.kill().unwrap();
        idle.wait().unwrap();
        assert_eq!(class, Class::Prefetch);
    }
}
