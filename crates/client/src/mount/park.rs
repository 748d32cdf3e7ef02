//! Refused changes, kept for the user with their data: `refused/SEQ.json` and `SEQ.data`.
//!
//! A change is parked, durably, before it is settled. So it may be parked twice, by a process
//! that died in between and by the next one, whose container may be empty by then: what was
//! kept first stays.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use segue_core::modlog::{Change, DataChange, Logged, Outcome};
use segue_core::refusal::Refusal;

use super::Mount;
use super::source::Source;
use crate::state::replace_file;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;

/// A refused change, with where its data are whatever becomes of the file.
pub(super) struct Parking<'a> {
    logged: &'a Logged,
    refusal: Refusal,
    source: Option<Source<'a>>,
}

impl Mount {
    /// What is needed to keep `logged`, if it was refused.
    pub(super) fn parking<'a>(
        &'a self,
        logged: &'a Logged,
        outcome: &Outcome,
    ) -> Result<Option<Parking<'a>>, Refusal> {
        let Outcome::Refused { refusal } = outcome else { return Ok(None) };
        let source = match &logged.change {
            Change::Data(data) => Some(self.source(logged.seq, data)?),
            Change::Record(_) => None,
        };
        Ok(Some(Parking { logged, refusal: *refusal, source }))
    }

    /// Keeps a refused change, durably.
    pub(super) fn park(&self, parking: &Parking<'_>) -> Result<(), Refusal> {
        let Parking { logged, refusal, .. } = parking;
        let path = self.core().tree.path(logged.change.ino());
        let name = self.refused_dir.join(format!("{}.json", logged.seq));
        if name.exists() {
            return Ok(());
        }
        tracing::warn!("{path}: {} was refused by the server: {refusal}", logged.change.kind());
        let kept =
            serde_json::json!({ "path": path, "why": refusal.to_string(), "change": logged });
        let parked = self.park_data(parking).and_then(|()| {
            // The data's name is durable with this one's.
            replace_file(&name, &serde_json::to_vec_pretty(&kept)?)
        });
        parked.map_err(|error| self.disk_refusal("refused change", &error))?;
        self.refused.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn park_data(&self, parking: &Parking<'_>) -> io::Result<()> {
        let (Change::Data(data), Some(source)) = (&parking.logged.change, &parking.source) else {
            return Ok(());
        };
        let path = self.refused_dir.join(format!("{}.data", parking.logged.seq));
        let copied = copy(data, source, &File::create(&path)?);
        if copied.is_err() {
            // A part is of no use, and takes the room that is missing.
            std::fs::remove_file(&path).ok();
        }
        copied
    }
}

fn copy(data: &DataChange, source: &Source<'_>, file: &File) -> io::Result<()> {
    for range in &data.ranges {
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from((range.end - at).min(STEP)).unwrap_or(1 << 20);
            let bytes = source.read(at, len)?;
            file.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
    }
    file.sync_all()
}
