//! The file systems that are compared: Segue in several configurations, and others.

use crate::bed::Result;
use crate::peer::{self, Kind, Peer, Stage};

/// How Segue is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Configuration {
    /// Its name on the command line and in results: who waits for writes, then what goes first.
    pub(super) name: &'static str,
    options: &'static [&'static str],
}

/// Those of [MFS table 2], in its order; `uniform` is without priorities.
pub(super) const CONFIGURATIONS: &[Configuration] = &[
    Configuration {
        name: "sync-uniform",
        options: &["-o", "cache-size=256M,write-back=sync,priorities=uniform"],
    },
    Configuration {
        name: "sync-priorities",
        options: &["-o", "cache-size=256M,write-back=sync,priorities=on"],
    },
    Configuration {
        name: "log-uniform",
        options: &["-o", "cache-size=256M,write-back=log:1s,priorities=uniform"],
    },
    Configuration {
        name: "log-priorities",
        options: &["-o", "cache-size=256M,write-back=log:1s,priorities=on"],
    },
    Configuration {
        name: "async-uniform",
        options: &["-o", "cache-size=256M,write-back=async,priorities=uniform"],
    },
    Configuration {
        name: "async-priorities",
        options: &["-o", "cache-size=256M,write-back=async,priorities=on"],
    },
];

/// A file system that is measured.
#[derive(Debug, Clone, Copy)]
pub(super) enum System {
    Segue(Configuration),
    Other(Kind),
}

impl System {
    /// Segue's configuration called `name`, or another file system.
    pub(super) fn named(name: &str) -> Option<System> {
        let configured = CONFIGURATIONS.iter().find(|one| one.name == name);
        let other = || peer::named(name).map(System::Other);
        configured.map(|one| System::Segue(*one)).or_else(other)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            System::Segue(configuration) => configuration.name,
            System::Other(kind) => kind.name,
        }
    }

    /// Starts its server, where it has one.
    pub(super) fn start(self, stage: &Stage) -> Result<Box<dyn Peer>> {
        match self {
            System::Segue(configuration) => peer::segue_with(stage, configuration.options),
            System::Other(kind) => kind.start(stage),
        }
    }

    /// Whether what it has cached lives on when it is mounted anew.
    pub(super) fn keeps_its_cache(self) -> bool {
        matches!(self, System::Segue(_))
    }
}

impl PartialEq for System {
    fn eq(&self, other: &System) -> bool {
        self.name() == other.name()
    }
}
