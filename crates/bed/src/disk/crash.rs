//! What is found of files after a power loss.

use std::collections::BTreeMap;
use std::ops::Range;

use super::content::Content;
use super::recording::{Fate, Op};
use crate::Rng;

/// What a disk writes at once or not at all.
const SECTOR: u64 = 512;

/// Decides about one image.
///
/// Each has a mood, so that there are images on which nearly everything is lost and others on
/// which a single sector is.
pub(super) struct Chance {
    rng: Rng,
    fate: Fate,
    /// How likely a change of names is kept.
    names: f64,
}

impl Chance {
    pub(super) fn new(fate: Fate) -> Chance {
        let mut rng = Rng::new(if let Fate::Chance(seed) = fate { seed } else { 0 });
        let names = one_of(&mut rng, [0.0, 0.5, 0.9, 1.0]);
        Chance { rng, fate, names }
    }

    /// Whether a change of names that was not synced is there.
    pub(super) fn keeps(&mut self) -> bool {
        match self.fate {
            Fate::Lost => false,
            Fate::Kept => true,
            Fate::Chance(_) => self.rng.unit() < self.names,
        }
    }

    /// The moments of `since` at which the parts of one file reached the disk.
    fn moments(&mut self, since: Range<usize>) -> Moments<'_> {
        let usual = match self.fate {
            Fate::Lost => since.start,
            Fate::Kept => since.end,
            Fate::Chance(_) => moment(&mut self.rng, &since),
        };
        let is_chance = matches!(self.fate, Fate::Chance(_));
        let stray = if is_chance { one_of(&mut self.rng, [0.0, 0.05, 0.5, 1.0]) } else { 0.0 };
        Moments { rng: &mut self.rng, since, usual, stray, sectors: BTreeMap::new() }
    }
}

fn one_of(rng: &mut Rng, values: [f64; 4]) -> f64 {
    values[usize::try_from(rng.below(4)).unwrap_or(0)]
}

/// A moment of `since`; its ends, where everything or nothing is there, are as likely as all
/// others together.
fn moment(rng: &mut Rng, since: &Range<usize>) -> usize {
    match rng.below(4) {
        0 => since.start,
        1 => since.end,
        _ => {
            let count = (since.end - since.start) as u64 + 1;
            since.start + usize::try_from(rng.below(count)).unwrap_or(0)
        }
    }
}

/// When each sector of a file was last written to the disk, in positions of the recording.
struct Moments<'a> {
    rng: &'a mut Rng,
    since: Range<usize>,
    usual: usize,
    stray: f64,
    sectors: BTreeMap<u64, usize>,
}

impl Moments<'_> {
    fn any(&mut self) -> usize {
        let strays = self.rng.unit() < self.stray;
        if strays { moment(self.rng, &self.since) } else { self.usual }
    }

    fn of(&mut self, sector: u64) -> usize {
        match self.sectors.get(&sector) {
            Some(moment) => *moment,
            None => {
                let moment = self.any();
                self.sectors.insert(sector, moment);
                moment
            }
        }
    }
}

/// What is found of each file that anything was done to.
pub(super) fn contents(ops: &[Op], chance: &mut Chance) -> BTreeMap<u64, Content> {
    let mut files: BTreeMap<u64, Vec<(usize, &Op)>> = BTreeMap::new();
    for (at, op) in ops.iter().enumerate() {
        if let Some(file) = op.file() {
            files.entry(file).or_default().push((at, op));
        }
    }
    let found = |(file, ops_of): (u64, Vec<_>)| (file, content(&ops_of, ops.len(), chance));
    files.into_iter().map(found).collect()
}

/// What is found of a file of which these are all operations, after a power loss at `cut`.
fn content(ops: &[(usize, &Op)], cut: usize, chance: &mut Chance) -> Content {
    let synced = ops.iter().rposition(|(_, op)| op.is_sync());
    let (before, since) = ops.split_at(synced.map_or(0, |last| last + 1));
    let mut content = Content::default();
    before.iter().for_each(|(_, op)| op.change(&mut content));
    let Some((first, _)) = since.first() else { return content };
    let mut moments = chance.moments(*first..cut);
    let (journal, mut size) = (moments.any(), content.size());
    // Places that were freed by what the journal does not have.
    let mut freed: Vec<Range<u64>> = Vec::new();
    let mut ahead = content.size();
    for (at, op) in since {
        let in_journal = *at < journal;
        match op {
            Op::Write { offset, bytes, .. } => {
                let end = offset + bytes.len() as u64;
                for piece in sectors(*offset..end) {
                    let is_freed = freed.iter().any(|hole| hole.contains(&piece.start));
                    if *at < moments.of(piece.start / SECTOR) && !is_freed {
                        let within = |place: u64| usize::try_from(place - offset).unwrap_or(0);
                        content.write(piece.start, &bytes[within(piece.start)..within(piece.end)]);
                    }
                }
                ahead = ahead.max(end);
            }
            Op::Resize { size, .. } => {
                if in_journal {
                    content.resize(*size);
                } else if *size < ahead {
                    freed.push(*size..u64::MAX);
                }
                ahead = *size;
            }
            Op::Punch { hole, .. } if in_journal => content.punch(hole.clone()),
            Op::Punch { hole, .. } => freed.push(hole.clone()),
            _ => {}
        }
        if in_journal {
            size = ahead;
        }
    }
    content.resize(size);
    content
}

/// `range` in parts, none of which lies in two sectors.
fn sectors(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let all = range.start / SECTOR..range.end.div_ceil(SECTOR);
    all.map(move |sector| range.start.max(sector * SECTOR)..range.end.min((sector + 1) * SECTOR))
}
