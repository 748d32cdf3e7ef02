//! What is measured: a test of some file system over one link.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Serialize};

use super::activity::Activity;
use segue_bed::peer::system::System;

/// What somebody waits for, and what goes on beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Test {
    /// Its name in the paper; of an activity alone, its own.
    pub(super) name: &'static str,
    pub(super) foreground: Option<Activity>,
    pub(super) background: Option<Activity>,
}

impl Test {
    /// The four of [MFS 3.4].
    pub(super) const ALL: [Test; 4] = [
        Test::both("GC", Activity::Grep, Activity::Compile),
        Test::both("GW", Activity::Grep, Activity::Write),
        Test::both("RC", Activity::Read, Activity::Compile),
        Test::both("RW", Activity::Read, Activity::Write),
    ];

    const fn both(name: &'static str, foreground: Activity, background: Activity) -> Test {
        Test { name, foreground: Some(foreground), background: Some(background) }
    }

    /// The one called `name`.
    pub(super) fn named(name: &str) -> Option<Test> {
        Test::ALL.into_iter().find(|test| test.name == name)
    }

    /// Its parts, each by itself.
    pub(super) fn alone(self) -> impl Iterator<Item = Test> {
        let foreground = Test { background: None, ..self };
        let background = Test { foreground: None, ..self };
        let named = |test: Test| {
            let name = test.activities().next()?.name();
            Some(Test { name, ..test })
        };
        [foreground, background].into_iter().filter_map(named)
    }

    /// The one called `name`, or the activity.
    fn or_part_named(name: &str) -> Option<Test> {
        let part = || Test::ALL.into_iter().flat_map(Test::alone).find(|part| part.name == name);
        Test::named(name).or_else(part)
    }

    pub(super) fn activities(self) -> impl Iterator<Item = Activity> {
        self.foreground.into_iter().chain(self.background)
    }

    /// Whether its foreground is done again and again.
    pub(super) fn is_repeated(self) -> bool {
        self.foreground.is_some_and(Activity::is_repeated)
    }

    /// How it can begin.
    pub(super) fn starts(self) -> &'static [Start] {
        if self.activities().any(Activity::is_of_cached) {
            &[Start::Held, Start::Expired]
        } else {
            &[Start::Held]
        }
    }
}

/// What the server has promised of the files that are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Start {
    /// To tell of changes: nobody has to ask.
    Held,
    /// Nothing that still counts: each is to be asked for, at each look.
    Expired,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) test: Test,
    pub(super) start: Start,
    pub(super) system: System,
    /// Of the client's link, in KB a second; none: unlimited.
    pub(super) rate: Option<u64>,
}

/// As the results name it.
#[derive(Serialize, Deserialize)]
struct Named<'a> {
    test: Cow<'a, str>,
    promises: Start,
    system: Cow<'a, str>,
    rate_kb_per_s: Option<u64>,
}

impl Serialize for Cell {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Cell { test, start, system, rate } = *self;
        let (test, system) = (test.name.into(), system.name().into());
        Named { test, promises: start, system, rate_kb_per_s: rate }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Cell, D::Error> {
        let Named { test, promises: start, system, rate_kb_per_s: rate } =
            Named::deserialize(from)?;
        let unknown = |what: &str| D::Error::custom(format!("nothing is called {what}"));
        Ok(Cell {
            test: Test::or_part_named(&test).ok_or_else(|| unknown(&test))?,
            start,
            system: System::named(&system).ok_or_else(|| unknown(&system))?,
            rate,
        })
    }
}

/// For whoever waits.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}, {}", self.test.name, self.mark(), self.system.name())?;
        self.rate.map_or(Ok(()), |rate| write!(f, ", {rate} KB/s"))
    }
}

impl Cell {
    /// What stands behind the test's name where nothing is promised.
    pub(super) fn mark(&self) -> &'static str {
        match self.start {
            Start::Held => "",
            Start::Expired => " (expired)",
        }
    }
}
