//! Checking volumes: first their rows, then the bytes of their chunks.
//!
//! ```text
//!   rows    on one snapshot: core::upkeep::check
//!   bytes   page by page, each page on a snapshot of its own: packs ─▶ decompress ─▶ BLAKE3
//! ```
//!
//! A snapshot keeps the store's log from being written back, so none is held while bytes are
//! read, which may take a day. What is written meanwhile is found whole or not at all: chunks
//! never change, and a page names only what was there when it was read.
//!
//! Whoever listens ends a check by going away.

mod bytes;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use segue_core::namespace::{Readable, find_volume, keys, volumes};
use segue_core::nouns::{Ino, VolumeId};
use segue_core::upkeep::check::{Counts, Damage, Finding, Halt, Visitor, check, shared};
use serde::{Deserialize, Serialize};

use crate::admin::{FailReason, no_volume_words};
use crate::data_dir::{Data, DataDir};
use crate::error::ServeError;
use crate::meta::StoreError;
use crate::serve::Server;
use crate::task::{LIVE_RATE_BYTES, RateLimit, Reporter, times};

/// What is to be checked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// Name of the volume; all volumes without one.
    pub volume: Option<String>,
    /// Leave out the bytes of chunks.
    pub quick: bool,
    /// Most bytes to read from packs in a second, 0 for no limit; by default a gentle rate
    /// while the server serves, and no limit while it is down.
    pub rate_bytes: Option<u64>,
}

/// One line of the answer. The last one is `Finished` or `Failed`; without either, the check broke
/// off and says nothing of what it had not come to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum CheckLine {
    /// How far it has come.
    Progress {
        /// Name of the volume.
        volume: String,
        /// Inodes looked at.
        inodes: u64,
        /// Bytes of files whose chunks were gone through.
        bytes: u64,
        /// All bytes of files that are in chunks; 0 as long as that is not known.
        total_bytes: u64,
    },
    /// Something is wrong.
    Finding {
        /// Name of the volume.
        volume: String,
        /// Where, if a name leads there.
        path: Option<String>,
        /// The inode, if it is about one.
        ino: Option<u64>,
        /// What is wrong.
        what: String,
        /// What can be done.
        remedy: String,
    },
    /// A volume is checked.
    Checked {
        /// Its name.
        volume: String,
        /// Nothing is wrong.
        ok: bool,
        /// How many findings there were.
        findings: u64,
        /// Inodes in it.
        inodes: u64,
        /// Names in it.
        names: u64,
        /// Chunks read.
        chunks: u64,
        /// Bytes of packs read.
        bytes_read: u64,
    },
    /// All volumes that were asked for are checked.
    Finished,
    /// The check did not come to its end.
    Failed {
        /// Why, for programs.
        reason: FailReason,
        /// Why, for people.
        words: String,
    },
}

/// Checks on a data directory whose server is down; `tell` says whether to go on.
pub fn check_offline(
    data: &Path,
    request: &CheckRequest,
    tell: &mut dyn FnMut(CheckLine) -> bool,
) -> Result<(), ServeError> {
    let data = Data::open(DataDir::open(data)?)?;
    let rate = request.rate_bytes.unwrap_or(0);
    run((&data, &|_, _, _| {}), request, rate, &AtomicBool::new(false), tell);
    Ok(())
}

/// Checks while `server` serves, one check at a time; may take long.
pub(crate) fn check_live(
    server: &Arc<Server>,
    request: &CheckRequest,
    tell: &mut dyn FnMut(CheckLine) -> bool,
) {
    if server.checking.swap(true, Ordering::AcqRel) {
        let words = "another check is running on this server; wait for it, or stop it with Ctrl-C";
        tell(CheckLine::Failed { reason: FailReason::Exists, words: words.to_owned() });
        return;
    }
    let _checking = Checking(server);
    let mut tell = |line| {
        if let CheckLine::Finding { volume, path, ino, what, .. } = &line {
            tracing::error!(volume, path, ino, "check: {what}");
        }
        tell(line)
    };
    let rate = request.rate_bytes.unwrap_or(LIVE_RATE_BYTES);
    let found = |volume, ino, offset| server.healing.found(volume, ino, offset);
    run((&server.data, &found), request, rate, &server.stopping, &mut tell);
}

/// The one live check; over when dropped, however it ends.
struct Checking<'a>(&'a Server);

impl Drop for Checking<'_> {
    fn drop(&mut self) {
        self.0.checking.store(false, Ordering::Release);
    }
}

/// Hears of bytes of a file that cannot be read.
type OnDamage<'a> = &'a dyn Fn(VolumeId, Ino, u64);

fn run(
    (data, found): (&Data, OnDamage<'_>),
    request: &CheckRequest,
    rate_bytes: u64,
    stopping: &AtomicBool,
    tell: &mut dyn FnMut(CheckLine) -> bool,
) {
    let mut reporter = Reporter::new(tell, stopping);
    let done = chosen(data, request).and_then(|volumes| {
        let (rate, mut told) = (&mut RateLimit::new(rate_bytes), BTreeSet::new());
        volumes.into_iter().zip(0..).try_for_each(|((id, name), number)| {
            let reporter = &mut reporter;
            let mut check = Check { data, found, id, name, findings: 0, reporter, told: &mut told };
            if number == 0 {
                check.shared()?;
            }
            check.volume(request.quick, rate)
        })
    });
    let (reason, words) = match done {
        Ok(()) => {
            reporter.say(CheckLine::Finished);
            return;
        }
        Err(Failed::NotFound(words)) => (FailReason::NotFound, words),
        Err(Failed::Store(error)) => (FailReason::Damaged, error.to_string()),
        Err(Failed::Stopped) => {
            (FailReason::Io, "the server stopped before the end of the check".to_owned())
        }
    };
    reporter.say(CheckLine::Failed { reason, words });
}

/// Why a check does not come to its end.
enum Failed {
    NotFound(String),
    Store(StoreError),
    /// Nobody listens any more, or the server stops.
    Stopped,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Failed {
        Failed::Store(error.into())
    }
}

fn chosen(data: &Data, request: &CheckRequest) -> Result<Vec<(VolumeId, String)>, Failed> {
    let Some(name) = &request.volume else {
        let all = data.store.read_blocking(|kv| volumes(kv))?.map_err(StoreError::from)?;
        // One whose row cannot be read is checked all the same.
        let named = |(id, row): Readable<_>| (id, row.map_or(format!("#{}", id.0), |row| row.name));
        return Ok(all.into_iter().map(named).collect());
    };
    let found = data.store.read_blocking(|kv| find_volume(kv, name))?.map_err(StoreError::from)?;
    match found {
        Some((id, row)) => Ok(vec![(id, row.name)]),
        None => Err(Failed::NotFound(no_volume_words(name))),
    }
}

/// The check of one volume.
struct Check<'a, 'b> {
    data: &'a Data,
    found: OnDamage<'a>,
    id: VolumeId,
    name: String,
    findings: u64,
    reporter: &'a mut Reporter<'b, CheckLine>,
    /// Keys of damaged rows that were told of, since some are read for each volume.
    told: &'a mut BTreeSet<Vec<u8>>,
}

impl Check<'_, '_> {
    /// What all volumes share.
    fn shared(&mut self) -> Result<(), Failed> {
        let data = self.data;
        let (done, mut damaged) = data.store.read_noting(|kv| shared(kv, self))?;
        damaged.retain(|key| keys::is_shared(key));
        self.damaged(damaged);
        Ok(done?)
    }

    fn damaged(&mut self, keys: Vec<Vec<u8>>) {
        for key in keys {
            if !self.told.insert(key.clone()) {
                continue;
            }
            let damage = Damage::Row { key, what: "as it was written" };
            self.finding(Finding { ino: None, path: None, entry: None, damage });
        }
    }

    fn volume(mut self, quick: bool, rate: &mut RateLimit) -> Result<(), Failed> {
        let (data, id) = (self.data, self.id);
        let (done, damaged) = data.store.read_noting(|kv| check(kv, id, &mut self))?;
        self.damaged(damaged);
        let counts = match done {
            Ok(counts) => counts,
            Err(Halt::Store(error)) => return Err(error.into()),
            Err(Halt::Stopped) => return Err(Failed::Stopped),
        };
        let read = match quick {
            true => bytes::Read::default(),
            false => {
                let read = bytes::check(&mut self, &counts, rate)?;
                times::note(data, id, |row, now| row.checked = Some(now));
                read
            }
        };
        let (volume, findings) = (self.name, self.findings);
        self.reporter.say(CheckLine::Checked {
            volume,
            ok: findings == 0,
            findings,
            inodes: counts.inodes,
            names: counts.names,
            chunks: read.chunks,
            bytes_read: read.bytes,
        });
        Ok(())
    }
}

impl Visitor for Check<'_, '_> {
    fn finding(&mut self, finding: Finding) {
        self.findings += 1;
        self.reporter.say(CheckLine::Finding {
            volume: self.name.clone(),
            path: finding.path,
            ino: finding.ino.map(|ino| ino.0),
            what: finding.damage.to_string(),
            remedy: finding.damage.remedy().to_owned(),
        });
    }

    fn progress(&mut self, counts: &Counts) -> bool {
        let (volume, inodes) = (&self.name, counts.inodes);
        self.reporter.progress(|| CheckLine::Progress {
            volume: volume.clone(),
            inodes,
            bytes: 0,
            total_bytes: 0,
        })
    }
}
