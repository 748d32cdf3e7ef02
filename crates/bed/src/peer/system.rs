//! The file systems that are compared: Segue in several configurations, and others.

use super::{Kind, Peer, Stage, named, segue_with};
use crate::{Error, Result};

/// How Segue is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// Its name on the command line and in results: who waits for writes, then what goes first.
    pub name: &'static str,
    options: &'static [&'static str],
}

/// Those of [MFS table 2], in its order; `uniform` is without priorities.
pub const CONFIGURATIONS: &[Configuration] = &[
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
pub enum System {
    /// Segue, in one of its configurations.
    Segue(Configuration),
    /// Another file system.
    Other(Kind),
}

impl System {
    /// Segue's configuration called `name`, or another file system.
    pub fn named(name: &str) -> Option<System> {
        let configured = CONFIGURATIONS.iter().find(|one| one.name == name);
        let other = || named(name).map(System::Other);
        configured.map(|one| System::Segue(*one)).or_else(other)
    }

    /// The same, or an error that names what nobody knows.
    pub fn known(name: &str) -> Result<System> {
        let unknown = || Error::Wrong(format!("no configuration is called {name}"));
        System::named(name).ok_or_else(unknown)
    }

    /// Those of these names, or the `usual` ones if there are none.
    pub fn chosen(names: &[String], usual: &[&str]) -> Result<Vec<System>> {
        match names {
            [] => usual.iter().map(|name| System::known(name)).collect(),
            names => names.iter().map(|name| System::known(name)).collect(),
        }
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            System::Segue(configuration) => configuration.name,
            System::Other(kind) => kind.name,
        }
    }

    /// Starts its server, where it has one.
    pub fn start(self, stage: &Stage) -> Result<Box<dyn Peer>> {
        match self {
            System::Segue(configuration) => segue_with(stage, configuration.options),
            System::Other(kind) => kind.start(stage),
        }
    }

    /// Whether what it has cached lives on when it is mounted anew.
    pub fn keeps_its_cache(self) -> bool {
        matches!(self, System::Segue(_))
    }
}

impl PartialEq for System {
    fn eq(&self, other: &System) -> bool {
        self.name() == other.name()
    }
}
