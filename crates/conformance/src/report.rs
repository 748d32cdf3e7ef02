//! What a run of the cases found.

use std::fmt;

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise holds.
    Passed,
    /// It does not, and why.
    Failed(String),
    /// It was not tried, and why.
    Skipped(String),
}

/// Every case of a run with its verdict, in the order in which they ran.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The case's name and how it ended.
    pub verdicts: Vec<(String, Verdict)>,
}

impl Report {
    /// The cases that failed, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.verdicts.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Failed(reason) => Some((name.as_str(), reason.as_str())),
            Verdict::Passed | Verdict::Skipped(_) => None,
        })
    }

    /// Whether no case failed.
    pub fn is_good(&self) -> bool {
        self.failures().next().is_none()
    }

    /// How many passed, failed, and were skipped.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |wanted: fn(&Verdict) -> bool| {
            self.verdicts.iter().filter(|(_, verdict)| wanted(verdict)).count()
        };
        let passed = count(|verdict| matches!(verdict, Verdict::Passed));
        let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
        (passed, self.failures().count(), skipped)
    }
}

/// The failures, one a line, and a last line of counts.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, reason) in self.failures() {
            writeln!(f, "FAILED {name}: {reason}")?;
        }
        let (passed, failed, skipped) = self.counts();
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}
