//! What an experiment measures, repeat by repeat.
//!
//! A line of the results is flat: what was measured, which repeat at which scale, then the figures,
//! or the error in their place.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::record::Context;
use crate::results::{self, Results};
use crate::side_by_side::side_by_side;
use segue_bed::{Error, Result};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How often each.
    pub repeats: u32,
    /// Share of the standard time and length; of a link's trace, from its beginning.
    pub scale: f64,
    /// When to give up on one measurement.
    pub limit: Duration,
}

/// What was measured, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measurement<W, F> {
    #[serde(flatten)]
    what: W,
    pub(crate) repeat: u32,
    scale: f64,
    #[serde(flatten)]
    pub(crate) figures: Option<F>,
    /// Why there are none.
    error: Option<String>,
}

impl<W, F> Measurement<W, F> {
    pub(crate) fn new(what: W, repeat: u32, scale: f64, figures: Result<F>) -> Measurement<W, F> {
        let error = figures.as_ref().err().map(ToString::to_string);
        Measurement { what, repeat, scale, figures: figures.ok(), error }
    }
}

/// For whoever waits.
impl<W: fmt::Display, F: fmt::Display> fmt::Display for Measurement<W, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measurement { what, repeat, figures, error, .. } = self;
        match figures {
            Some(figures) => write!(f, "{what} #{repeat}: {figures}"),
            None => write!(f, "{what} #{repeat} failed: {}", error.as_deref().unwrap_or_default()),
        }
    }
}

/// What is measured side by side.
#[derive(Debug)]
pub(crate) struct Group<'a, W> {
    pub(crate) all: &'a [W],
    /// Beds at once.
    pub(crate) beds: usize,
}

/// A run: what it has measured, and the files of its results.
pub(crate) struct Run<W, F> {
    pub(crate) results: Results,
    scale: f64,
    pub(crate) measured: Vec<Measurement<W, F>>,
}

impl<W, F> Run<W, F>
where
    W: fmt::Display + Serialize,
    F: fmt::Display + Serialize,
{
    /// Opens new files in `out`, named by date and `title`.
    pub(crate) fn create(
        out: &Path,
        title: &str,
        context: Context,
        scale: f64,
    ) -> Result<Run<W, F>> {
        let results = Results::create(out, title, context)?;
        Ok(Run { results, scale, measured: Vec::new() })
    }

    /// Puts the lines of earlier runs, each in a file of its own, into new files. Runs on another
    /// machine or at another scale do not compare, and nothing is joined.
    pub(crate) fn join(
        files: &[PathBuf],
        out: &Path,
        title: &str,
        context: Context,
    ) -> Result<Run<W, F>>
    where
        W: DeserializeOwned,
        F: DeserializeOwned,
    {
        let mut parts = Vec::new();
        for file in files {
            parts.extend(results::read::<Measurement<W, F>>(file)?);
        }
        let Some((Context { machine, .. }, Measurement { scale, .. })) = parts.first() else {
            return Err(Error::Wrong("there is no line in these files".into()));
        };
        let (machine, scale) = (machine.clone(), *scale);
        let is_other = |(context, one): &&(Context, Measurement<W, F>)| {
            context.machine != machine || one.scale != scale
        };
        if let Some((other, one)) = parts.iter().find(is_other) {
            let (date, at) = (&other.date, one.scale);
            return Err(Error::Wrong(format!(
                "the run of {date}, at {at} of the standard size on {}, does not compare with one \
                 at {scale} on {machine}",
                other.machine
            )));
        }
        let mut commits: Vec<&str> = parts.iter().map(|(one, _)| one.commit.as_str()).collect();
        commits.sort_unstable();
        commits.dedup();
        let commit = commits.join(", ");
        let results = Results::create(out, title, Context { machine, commit, ..context })?;
        let mut run = Run { results, scale, measured: Vec::new() };
        for (context, measurement) in parts {
            run.results.add_of(context, &measurement)?;
            run.measured.push(measurement);
        }
        Ok(run)
    }

    /// Takes and tells what one repeat came to, which is on disk when this returns.
    pub(crate) fn add(&mut self, what: W, repeat: u32, figures: Result<F>) -> Result<()> {
        let measurement = Measurement::new(what, repeat, self.scale, figures);
        eprintln!("{measurement}");
        self.results.add(&measurement)?;
        self.measured.push(measurement);
        Ok(())
    }

    /// Measures all of each group, in as many beds at once as it has: groups one after the other,
    /// repeat by repeat.
    pub(crate) fn measure_all(
        &mut self,
        groups: &[Group<'_, W>],
        effort: Effort,
        measure: impl Fn(W, u32, Effort) -> Result<F> + Sync,
    ) -> Result<()>
    where
        W: Copy + Sync,
        F: Send,
    {
        for repeat in 1..=effort.repeats {
            for Group { all, beds } in groups {
                side_by_side(
                    all,
                    (*beds).max(1),
                    |&one| measure(one, repeat, effort),
                    |&one, figures| self.add(one, repeat, figures),
                )?;
            }
        }
        Ok(())
    }
}

/// The most runs of anything that succeeded, and the scale of all.
pub(crate) fn runs_and_scale<W: Copy + PartialEq, F>(
    measured: &[Measurement<W, F>],
) -> (usize, f64) {
    let runs = kinds(measured).into_iter().map(|what| figures_of(measured, what).count()).max();
    (runs.unwrap_or(0), measured.first().map_or(1.0, |one| one.scale))
}

/// What was measured, in the order of first appearance.
pub(crate) fn kinds<W: Copy + PartialEq, F>(measured: &[Measurement<W, F>]) -> Vec<W> {
    let mut kinds = Vec::new();
    for Measurement { what, .. } in measured {
        if !kinds.contains(what) {
            kinds.push(*what);
        }
    }
    kinds
}

/// The figures of `what`, of each repeat that succeeded.
pub(crate) fn figures_of<W: Copy + PartialEq, F>(
    measured: &[Measurement<W, F>],
    what: W,
) -> impl Iterator<Item = &F> + Clone {
    measured.iter().filter(move |one| one.what == what).filter_map(|one| one.figures.as_ref())
}

/// Of everything that succeeded, the figures of its first success.
pub(crate) fn firsts<W: Copy + PartialEq, F>(measured: &[Measurement<W, F>]) -> Vec<(W, &F)> {
    let first = |what| Some((what, figures_of(measured, what).next()?));
    kinds(measured).into_iter().filter_map(first).collect()
}

/// For Markdown, a line for each failure.
pub(crate) fn failures<W, F>(measured: &[Measurement<W, F>]) -> String
where
    W: fmt::Display,
    F: fmt::Display,
{
    let failed = measured.iter().filter(|one| one.error.is_some());
    failed.map(|one| format!("\n* {}\n", one.to_string().replace('\n', " "))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;
    use crate::results;
    use segue_bed::Error;

    #[derive(Debug, Clone, Copy, PartialEq, Serialize)]
    struct Named {
        system: &'static str,
    }

    impl fmt::Display for Named {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.system)
        }
    }

    #[derive(Debug, PartialEq, Serialize)]
    struct Rate {
        rate: u32,
    }

    impl fmt::Display for Rate {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} a second", self.rate)
        }
    }

    fn measured() -> [Measurement<Named, Rate>; 3] {
        let [slow, fast] = ["slow", "fast"].map(|system| Named { system });
        [
            Measurement::new(slow, 1, 0.5, Err(Error::Wrong("gone\naway".into()))),
            Measurement::new(fast, 1, 0.5, Ok(Rate { rate: 7 })),
            Measurement::new(slow, 2, 0.5, Ok(Rate { rate: 3 })),
        ]
    }

    /// How many were measured at the same time, at most, of `slow` and of `fast`. Each waits a
    /// moment for others that may begin beside it.
    fn most_at_once(beds: usize) -> [usize; 2] {
        let dir = tempfile::tempdir().unwrap();
        let mut run = Run::create(dir.path(), "run", Context::of_test(), 1.0).unwrap();
        let [slow, fast] = ["slow", "fast"].map(|system| Named { system });
        let groups = [Group { all: &[slow; 6][..], beds }, Group { all: &[fast; 3][..], beds: 1 }];
        let effort = Effort { repeats: 2, scale: 1.0, limit: Duration::from_secs(1) };
        let (now, most) = (Mutex::new(0), Mutex::new([0; 2]));
        let came = Condvar::new();
        let measure = |what: Named, _, _| {
            let mut count = now.lock().unwrap();
            *count += 1;
            came.notify_all();
            let wait = Duration::from_millis(20);
            count = came.wait_timeout_while(count, wait, |count| *count <= beds).unwrap().0;
            let most = &mut most.lock().unwrap()[usize::from(what == fast)];
            *most = (*most).max(*count);
            *count -= 1;
            Ok(Rate { rate: 1 })
        };
        run.measure_all(&groups, effort, measure).unwrap();
        assert_eq!(run.measured.len(), 2 * 9);
        most.into_inner().unwrap()
    }

    #[test]
    fn a_group_has_its_beds_and_no_other_group_beside_it() {
        let [beside, calm] = most_at_once(2);
        assert!(beside <= 2 && calm == 1, "{beside} and {calm} at once");
        assert_eq!(most_at_once(1), [1, 1]);
    }

    #[test]
    fn a_line_is_flat_and_has_figures_or_an_error() {
        let lines = measured().map(|one| results::line(&Context::of_test(), &one).unwrap());
        let ends = [
            r#""system":"slow","repeat":1,"scale":0.5,"error":"wrong answer: gone\naway"}"#,
            r#""system":"fast","repeat":1,"scale":0.5,"rate":7,"error":null}"#,
            r#""system":"slow","repeat":2,"scale":0.5,"rate":3,"error":null}"#,
        ];
        for (line, end) in lines.iter().zip(ends) {
            assert!(line.ends_with(end), "{line}");
        }
    }

    #[test]
    fn what_failed_once_has_its_other_figures_and_its_reason() {
        let measured = measured();
        let (slow, fast) = (Named { system: "slow" }, Named { system: "fast" });
        assert_eq!(runs_and_scale(&measured), (1, 0.5));
        assert_eq!(firsts(&measured), [(slow, &Rate { rate: 3 }), (fast, &Rate { rate: 7 })]);
        assert_eq!(failures(&measured), "\n* slow #1 failed: wrong answer: gone away\n");
        assert_eq!(measured[1].to_string(), "fast #1: 7 a second");
    }
}
