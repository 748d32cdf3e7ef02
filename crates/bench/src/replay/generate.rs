//! Makes traces that have the parameters of [MFS table 3] to the byte.
//!
//! The paper's own were cut from traces of Windows NT [20], which are not published with it. What
//! the table does not say is drawn as such traces are known to be:
//!
//! * sizes of files and of writes: lognormal, so that most are small and a few have most of the
//!   bytes; what has more than 4 MB is dropped, as in the paper, and another one is drawn;
//! * of all files as many are written as bytes are: a third of these is made by the trace, a third
//!   is written over from its front and a third at its end;
//! * what is there is read once, before it is written: small files whole, of large ones a first
//!   part, the same of each;
//! * some applications do far more than others, in bursts with pauses between them: lognormal,
//!   too. The first one, which does most, lasts from the start to the end.

use std::cmp::Reverse;
use std::time::Duration;

use super::trace::{Access, Act, File, Parameters, Trace};
use segue_bed::Rng;

/// What is larger is no part of a trace.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;
/// Of sizes and of pauses: with it the mean is seven times the median.
const SIGMA: f64 = 2.0;
/// Of what applications do: the one that does most has about ten times the median.
const SIGMA_OF_SHARES: f64 = 1.0;

/// A trace of these parameters; the same of the same seed.
pub(super) fn generate(wanted: Parameters, seed: u64) -> Trace {
    let mut rng = Rng::new(seed);
    let plans = plans(wanted, &mut rng);
    let applications = wanted.applications as usize;
    let mut trace = Trace { files: Vec::new(), applications: Vec::new() };
    let mut plans = shuffled(plans, &mut rng).into_iter();
    for (application, files) in crews(plans.len(), applications, &mut rng).into_iter().enumerate() {
        let mut acts = Vec::new();
        for plan in plans.by_ref().take(files) {
            let file = trace.files.len();
            trace.files.push(File { application, bytes: plan.bytes });
            acts.extend(plan.acts(&mut rng).map(|(turn, act)| (turn, file, act)));
        }
        acts.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let times = times(acts.len(), wanted.seconds, application == 0, &mut rng);
        let access = |(at, (_, file, act))| Access { at, file, act };
        trace.applications.push(times.into_iter().zip(acts).map(access).collect());
    }
    trace
}

/// What is to become of a file.
#[derive(Debug, Clone, Copy)]
struct Plan {
    bytes: Option<u64>,
    read: u64,
    write: Option<(u64, u64)>,
}

impl Plan {
    /// Each with when its turn is, among those of its application.
    fn acts(self, rng: &mut Rng) -> impl Iterator<Item = (f64, Act)> {
        let first = rng.unit();
        let later = first + (1.0 - first) * rng.unit();
        let read = self.bytes.map(|_| (first, Act::Read { bytes: self.read }));
        let write = self.write.map(|(from, bytes)| (later, Act::Write { from, bytes }));
        read.into_iter().chain(write)
    }
}

/// Of each file: first those that are written, of which the first are new.
fn plans(wanted: Parameters, rng: &mut Rng) -> Vec<Plan> {
    let files = wanted.files as usize;
    let moved = wanted.read_bytes + wanted.written_bytes;
    let written = wanted.written_bytes as f64 / moved.max(1) as f64;
    let written = count(share(wanted.files.into(), written).max(1));
    let new = written / 3;

    let limits = vec![FILE_BYTES_MAX; files - new];
    let sizes = apportion(wanted.file_bytes, &weighed(limits, || size(rng)));
    let reads = apportion(wanted.read_bytes, &weighed(sizes.clone(), || 1.0));
    let there = sizes.into_iter().zip(reads);
    let mut plans = vec![Plan { bytes: None, read: 0, write: None }; new];
    plans.extend(there.map(|(bytes, read)| Plan { bytes: Some(bytes), read, write: None }));

    let end = |(at, plan): (usize, &Plan)| plan.bytes.filter(|_| at % 2 == 0).unwrap_or(0);
    let froms: Vec<u64> = plans.iter().take(written).enumerate().map(end).collect();
    let limits = froms.iter().map(|from| FILE_BYTES_MAX - from).collect();
    let bytes = apportion(wanted.written_bytes, &weighed(limits, || size(rng)));
    for (plan, write) in plans.iter_mut().zip(froms.into_iter().zip(bytes)) {
        plan.write = Some(write);
    }
    plans
}

fn weighed(limits: Vec<u64>, mut weight: impl FnMut() -> f64) -> Vec<(f64, u64)> {
    limits.into_iter().map(|limit| (weight(), limit)).collect()
}

/// How many files each application has, the largest number first, none without any.
fn crews(files: usize, applications: usize, rng: &mut Rng) -> Vec<usize> {
    let draws = vec![u64::MAX; applications];
    let draws = weighed(draws, || lognormal(1.0, SIGMA_OF_SHARES, rng));
    let mut crews = apportion((files - applications) as u64, &draws);
    crews.sort_unstable_by_key(|files| Reverse(*files));
    crews.into_iter().map(|files| count(files + 1)).collect()
}

/// When an application does each of its accesses.
fn times(count: usize, seconds: u32, is_first: bool, rng: &mut Rng) -> Vec<Duration> {
    let all = u64::from(seconds) * 1_000_000;
    let (from, to) = match is_first {
        true => (0, all),
        false => (rng.below(all / 2), all - rng.below(all / 2)),
    };
    let pauses = vec![u64::MAX; count.saturating_sub(1)];
    let pauses = apportion(to - from, &weighed(pauses, || lognormal(1.0, SIGMA, rng)));
    let mut at = from;
    let later = pauses.into_iter().map(|pause| {
        at += pause;
        at
    });
    std::iter::once(from).chain(later).take(count).map(Duration::from_micros).collect()
}

/// Of a file or a write, in bytes: only how they compare matters.
fn size(rng: &mut Rng) -> f64 {
    const MEDIAN_BYTES: f64 = 4096.0;
    loop {
        let bytes = lognormal(MEDIAN_BYTES, SIGMA, rng);
        if bytes <= FILE_BYTES_MAX as f64 {
            return bytes;
        }
    }
}

fn lognormal(median: f64, sigma: f64, rng: &mut Rng) -> f64 {
    // The sum of twelve such has mean 6 and deviation 1, and is near enough to normal.
    let normal = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
    median * (sigma * normal).exp()
}

fn shuffled<T>(items: Vec<T>, rng: &mut Rng) -> Vec<T> {
    let mut keyed: Vec<(u64, T)> = items.into_iter().map(|item| (rng.next_u64(), item)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item).collect()
}

/// Parts of `total` by weight, none above its limit: what one does not take the others do.
fn apportion(total: u64, wants: &[(f64, u64)]) -> Vec<u64> {
    // Who comes to his limit first comes first: then it is known what is left for the others.
    let mut order: Vec<(usize, (f64, u64))> = wants.iter().copied().enumerate().collect();
    let room = |(weight, limit): (f64, u64)| limit as f64 / weight;
    order.sort_by(|(_, one), (_, other)| room(*one).total_cmp(&room(*other)));
    let mut heavier = Vec::with_capacity(order.len());
    let mut weights = 0.0;
    for (_, (weight, _)) in order.iter().rev() {
        weights += weight;
        heavier.push(weights);
    }
    let (mut parts, mut left) = (vec![0; wants.len()], total);
    for ((at, (weight, limit)), weights) in order.into_iter().zip(heavier.into_iter().rev()) {
        let part = share(left, weight / weights).min(limit);
        left -= part;
        if let Some(slot) = parts.get_mut(at) {
            *slot = part;
        }
    }
    parts
}

/// Of files, of which there are thousands.
fn count(files: u64) -> usize {
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// A part of `whole`, from 0 to 1.
fn share(whole: u64, part: f64) -> u64 {
    // At most the whole, which is far below 2^53.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let share = (whole as f64 * part).round() as u64;
    share.min(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::load::Load;

    #[test]
    fn traces_have_the_parameters_of_the_table() {
        for load in Load::ALL {
            for scale in [1.0, 0.1, 0.01] {
                let wanted = load.parameters(scale);
                assert_eq!(load.trace(scale).parameters(), wanted, "{load:?} at {scale}");
            }
        }
    }

    #[test]
    fn no_file_has_more_than_4_mb_and_none_is_read_past_its_end() {
        for load in Load::ALL {
            let trace = load.trace(1.0);
            assert!(trace.sizes().iter().all(|bytes| *bytes <= FILE_BYTES_MAX), "{load:?}");
            for access in trace.accesses() {
                let before = trace.files[access.file].bytes;
                match access.act {
                    Act::Read { bytes } => assert!(before.is_some_and(|before| bytes <= before)),
                    Act::Write { from, .. } => assert!(from <= before.unwrap_or(0)),
                }
            }
        }
    }

    #[test]
    fn an_application_does_one_after_the_other_and_reads_before_it_writes() {
        for load in Load::ALL {
            let trace = load.trace(1.0);
            for (application, accesses) in trace.applications.iter().enumerate() {
                assert!(accesses.iter().is_sorted_by_key(|access| access.at));
                let mut written = std::collections::BTreeSet::new();
                for access in accesses {
                    assert_eq!(trace.files[access.file].application, application);
                    match access.act {
                        Act::Read { .. } => assert!(!written.contains(&access.file)),
                        Act::Write { .. } => assert!(written.insert(access.file)),
                    }
                }
            }
        }
    }

    #[test]
    fn some_files_are_new_some_grow_and_some_do_not() {
        let trace = Load::Writes.trace(1.0);
        let count = |kind: &dyn Fn(Option<u64>, u64, u64) -> bool| {
            let of = |access: &&Access| match access.act {
                Act::Write { from, bytes } => kind(trace.files[access.file].bytes, from, bytes),
                Act::Read { .. } => false,
            };
            trace.accesses().filter(of).count()
        };
        let new = count(&|before, _, _| before.is_none());
        let grown = count(&|before, from, _| before.is_some_and(|bytes| from == bytes));
        let over = count(&|before, from, _| before.is_some() && from == 0);
        assert!(new > 40 && grown > 40 && over > 40, "{new} {grown} {over}");
    }

    #[test]
    fn what_one_does_not_take_the_others_do() {
        assert_eq!(apportion(100, &[(1.0, 100), (3.0, 100)]), [25, 75]);
        assert_eq!(apportion(100, &[(1.0, 100), (3.0, 10), (1.0, 100)]), [45, 10, 45]);
        assert_eq!(apportion(7, &[(1.0, 2), (1.0, 3), (1.0, 2)]), [2, 3, 2]);
        assert_eq!(apportion(5, &[]), [0; 0]);
    }
}
