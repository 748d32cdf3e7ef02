//! Volumes of this user that are not mounted and whose changes exist on this host only.

use segue_client::quantity;
use segue_client::unmounted::{UnmountedCache, unmounted};

use crate::commands::Context;
use crate::exit::Failure;
use crate::output;

/// The caches with changes that their servers lack.
pub(crate) fn caches(context: &Context) -> Result<Vec<UnmountedCache>, Failure> {
    let configured = context.config.mount_options(&[])?.cache_dir;
    Ok(unmounted(&context.places.paths.state_home, configured.as_deref()))
}

/// What a cache has that the server lacks, and the way out.
pub(crate) fn words(cache: &UnmountedCache) -> String {
    let (directory, name) = (cache.cache.display(), name(cache));
    let mut parts = Vec::new();
    if cache.pending_records > 0 {
        let records = quantity::count(cache.pending_records, "change");
        let bytes = quantity::bytes(cache.pending_bytes);
        parts.push(format!("{records} ({bytes} of data) not on the server"));
    }
    if cache.refused > 0 {
        let refused = quantity::count(cache.refused, "change");
        parts.push(format!("{refused} refused by the server, or lost"));
    }
    if let Some(damage) = &cache.damage {
        parts.push(format!("its changes cannot all be read: {damage}"));
    }
    let remedy = match cache.url.is_empty() {
        _ if cache.damage.is_some() => {
            format!("'segue recover {directory}' lists those that can be read")
        }
        true => format!("'segue recover {directory}' lists them"),
        false => format!("mount the volume to send them (segue mount {} DIR)", cache.url),
    };
    let words = format!(
        "{name} is not mounted; kept on this host only, in {directory}: {}; {remedy}",
        parts.join("; ")
    );
    output::printable(&words, &[])
}

/// The volume of a cache, for a person.
pub(crate) fn name(cache: &UnmountedCache) -> String {
    match cache.url.is_empty() {
        true => "a volume".to_owned(),
        false => cache.url.clone(),
    }
}
