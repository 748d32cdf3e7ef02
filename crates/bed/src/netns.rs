//! Network namespaces, by their names in /run/netns.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::error::{Doing, Result, check, run};

/// Where `ip netns` keeps the namespaces that have names.
const ALL: &str = "/run/netns";

/// A named network namespace. Deleted by the bed's reaper, never by its own drop.
#[derive(Debug, Clone)]
pub(crate) struct NetNs {
    name: String,
}

/// Bytes that the devices of a namespace have carried, loopback left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Bytes received.
    pub rx: u64,
    /// Bytes sent.
    pub tx: u64,
}

impl NetNs {
    /// Makes a namespace with its loopback up and without IPv6 on its links, whose router
    /// solicitations would show in byte counts.
    pub(crate) fn create(name: String) -> Result<NetNs> {
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let ns = NetNs { name };
        ns.sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        ns.sysctl("net/ipv4/conf/all/rp_filter", "0")?;
        ns.sysctl("net/ipv4/conf/default/rp_filter", "0")?;
        ns.ip("link set lo up")?;
        Ok(ns)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether there is a namespace called `name`, whoever made it.
    pub(crate) fn exists(name: &str) -> bool {
        Path::new(ALL).join(name).exists()
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new(ALL).join(&self.name)
    }

    /// Runs `ip` commands, one a line, in this namespace; the first error ends them.
    pub(crate) fn ip(&self, lines: &str) -> Result<()> {
        self.batch("ip", lines)
    }

    /// Runs `tc` commands, one a line, in this namespace; the first error ends them.
    pub(crate) fn tc(&self, lines: &str) -> Result<()> {
        self.batch("tc", lines)
    }

    fn batch(&self, tool: &str, lines: &str) -> Result<()> {
        let mut command = Command::new(tool);
        command.args(["-n", &self.name, "-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().doing(tool)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.as_bytes()).doing(tool)?;
        }
        let output = child.wait_with_output().doing(tool)?;
        check(command.arg(lines), &output)
    }

    /// Sets a network sysctl, named by its path below /proc/sys.
    pub(crate) fn sysctl(&self, path: &str, value: &str) -> Result<()> {
        let file = Path::new("/proc/sys").join(path);
        match self.enter(|| fs::write(&file, value))? {
            // A kernel without IPv6 has nothing to switch off.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            result => result.doing(path),
        }
    }

    /// Runs `work` on a thread inside this namespace: sockets that it opens stay there.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let door = File::open(self.path()).doing(format!("open namespace {}", self.name))?;
        let inside = || {
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        };
        let joined = thread::scope(|scope| scope.spawn(inside).join());
        let entered: rustix::io::Result<T> =
            joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        entered.doing(format!("enter namespace {}", self.name))
    }

    /// What the devices here have counted so far.
    pub(crate) fn counters(&self) -> Result<Counters> {
        self.enter(counters_here)?
    }
}

/// What the devices of the calling thread's network have counted so far.
pub fn counters_here() -> Result<Counters> {
    let table = fs::read_to_string("/proc/thread-self/net/dev");
    Ok(sum_counters(&table.doing("read /proc/thread-self/net/dev")?))
}

/// Adds up a /proc/net/dev table: received bytes are its 1st column, sent ones its 9th.
fn sum_counters(table: &str) -> Counters {
    let mut sum = Counters::default();
    for (device, columns) in table.lines().filter_map(|line| line.split_once(':')) {
        // What passes a queue of ours is counted where it goes on.
        if device.trim() == "lo" || device.trim().starts_with("ifb") {
            continue;
        }
        let mut columns = columns.split_whitespace().map(|c| c.parse::<u64>().unwrap_or(0));
        sum.rx += columns.next().unwrap_or(0);
        sum.tx += columns.nth(7).unwrap_or(0);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_all_devices_but_loopback() {
        let table = "Inter-|   Receive        |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n\
            lo:  1000 1 0 0 0 0 0 0  1000 1 0 0 0 0 0 0\n\
            eth0: 20 1 0 0 0 0 0 0  30 1 0 0 0 0 0 0\n\
            ifb0: 50 1 0 0 0 0 0 0  50 1 0 0 0 0 0 0\n\
            tun0:  4 1 0 0 0 0 0 0  5 1 0 0 0 0 0 0\n";
        let sum = sum_counters(table);
        assert_eq!((sum.rx, sum.tx), (24, 35));
    }
}
