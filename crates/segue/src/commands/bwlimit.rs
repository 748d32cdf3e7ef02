//! `segue bwlimit`: how much of the link a mount may take.

use std::path::PathBuf;

use segue_client::bandwidth::Timetable;
use segue_client::control::types::{Bandwidth, BandwidthRequest};

use super::{Context, block_on};
use crate::exit::{Exit, Outcome};
use crate::{control, mounts, output, quantity};

/// Where the mount's process is asked.
const PATH: &str = "/v1/bwlimit";

/// Show or set how much of its link a mount may take
///
/// What this host sends to the server, and the server to this host for this mount, never exceeds
/// it, averaged over a second and counted with all headers. What somebody waits for still goes
/// before the rest. It holds until it is set again or the mount ends; the mount option bwlimit,
/// with the same values, sets it from the start.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it
    mountpoint: PathBuf,
    /// UP:DOWN in bytes a second, one for both, off, or a timetable [default: show what holds]
    limit: Option<Timetable>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue bwlimit ~/home                     what holds now
  segue bwlimit ~/home 500K:2M             at most 500 KB/s to the server, 2 MB/s from it
  segue bwlimit ~/home off:2M              whatever the link takes to the server
  segue bwlimit ~/home off
  segue bwlimit ~/home '08:00,500K:2M 18:00,off'            by day, in local time
  segue bwlimit ~/home 'Mon-08:00,500K:2M Fri-18:00,off'    in the week
  segue mount segue://server/home ~/home -o 'bwlimit=08:00,500K:2M 18:00,off,ro'

In ~/.config/segue/config.toml: bwlimit = \"08:00,500K:2M 18:00,off\"";

/// Sets it if asked to, and shows what holds.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let (mount, _) = control::holding(&mounts::list()?, &arguments.mountpoint)?;
    let bandwidth: Bandwidth = match &arguments.limit {
        None => block_on(control::get(&context.places, &mount, PATH))?,
        Some(limit) => {
            let request = BandwidthRequest { bwlimit: limit.to_string() };
            block_on(control::post(&context.places, &mount, PATH, &request))?
        }
    };
    match arguments.json {
        true => output::print_json(&bandwidth)?,
        false => {
            let words = words(&bandwidth).unwrap_or_else(|| "no limit".to_owned());
            output::print(&format!("{}: {words}\n", mount.mountpoint.display()))?;
        }
    }
    Ok(Exit::Done)
}

/// What holds, in words; nothing where nothing is ever limited.
pub(super) fn words(bandwidth: &Bandwidth) -> Option<String> {
    let Bandwidth { bwlimit, limit_up, limit_down, limit_seconds } = bandwidth;
    if limit_up.is_none() && limit_down.is_none() && limit_seconds.is_none() {
        return None;
    }
    let rate = |limit: &Option<u64>, way: &str| {
        limit.map(|bytes| format!("at most {}/s {way}", quantity::bytes(bytes)))
    };
    let rates: Vec<String> =
        [rate(limit_up, "up"), rate(limit_down, "down")].into_iter().flatten().collect();
    let mut words = match rates.is_empty() {
        true => "no limit".to_owned(),
        false => rates.join(", "),
    };
    if let Some(seconds) = limit_seconds {
        let time = std::time::Duration::try_from_secs_f64(*seconds).unwrap_or_default();
        words.push_str(&format!(", for another {} ({bwlimit})", quantity::age(time)));
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_in_words() {
        let told = |limit_up, limit_down, limit_seconds| {
            let bwlimit = "T".to_owned();
            words(&Bandwidth { bwlimit, limit_up, limit_down, limit_seconds })
        };
        let expected = "at most 500.0 KB/s up, at most 2.0 MB/s down";
        assert_eq!(told(Some(500 << 10), Some(2 << 20), None).as_deref(), Some(expected));
        let expected = "at most 2.0 MB/s down, for another 2 h (T)";
        assert_eq!(told(None, Some(2 << 20), Some(7_300.0)).as_deref(), Some(expected));
        let expected = "no limit, for another 5 s (T)";
        assert_eq!(told(None, None, Some(5.0)).as_deref(), Some(expected));
        assert_eq!(told(None, None, None), None);
    }
}
