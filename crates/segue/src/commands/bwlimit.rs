//! `segue bwlimit`: the bandwidth limit of a mount.

use std::path::PathBuf;

use segue_client::bandwidth::Timetable;
use segue_client::quantity;
use segue_client::replies::{Bandwidth, BandwidthRequest};

use super::{Context, block_on};
use crate::exit::{Exit, Outcome};
use crate::{control, mounts, output};

/// The route of the control socket.
const PATH: &str = "/v1/bwlimit";

/// Show or set the bandwidth limit of a mount
///
/// The limit holds for the traffic of this mount to the server and from the server, as an average
/// over one second with all headers included. Within the limit, data that an application waits for
/// still go first. The limit holds until the next 'segue bwlimit' or the end of the mount. The
/// mount option bwlimit takes the same values and sets the limit from the start.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A mount, or any path on it
    mountpoint: PathBuf,
    /// UP:DOWN in bytes per second, one value for both, off, or a timetable [default: show the
    /// present limit]
    limit: Option<Timetable>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue bwlimit ~/home                     show the present limit
  segue bwlimit ~/home 500K:2M             at most 500 KiB/s to the server, 2 MiB/s from it
  segue bwlimit ~/home off:2M              no limit to the server
  segue bwlimit ~/home off                 no limit
  segue bwlimit ~/home '08:00,500K:2M 18:00,off'            each day, in local time
  segue bwlimit ~/home 'Mon-08:00,500K:2M Fri-18:00,off'    each week, in local time
  segue mount segue://server/home ~/home -o 'bwlimit=08:00,500K:2M 18:00,off,ro'

In ~/.config/segue/config.toml: bwlimit = \"08:00,500K:2M 18:00,off\"";

/// Sets a limit if one is given, and shows the present one.
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
            output::print(&format!("{}: {words}\n", output::path(&mount.mountpoint)))?;
        }
    }
    Ok(Exit::Done)
}

/// The present limit as text; `None` if no limit holds now or later.
pub(super) fn words(bandwidth: &Bandwidth) -> Option<String> {
    let Bandwidth { bwlimit, limit_up, limit_down, limit_seconds, .. } = bandwidth;
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
            words(&Bandwidth { bwlimit, limit_up, limit_down, limit_seconds, background: false })
        };
        let expected = "at most 500.0 KiB/s up, at most 2.0 MiB/s down";
        assert_eq!(told(Some(500 << 10), Some(2 << 20), None).as_deref(), Some(expected));
        let expected = "at most 2.0 MiB/s down, for another 2 h (T)";
        assert_eq!(told(None, Some(2 << 20), Some(7_300.0)).as_deref(), Some(expected));
        let expected = "no limit, for another 5 s (T)";
        assert_eq!(told(None, None, Some(5.0)).as_deref(), Some(expected));
        assert_eq!(told(None, None, None), None);
    }
}
