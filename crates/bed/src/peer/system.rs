//! The file systems that are compared: Segue in several configurations, and others.

use std::time::Duration;

use super::segue::Segue;
use super::{Kind, Peer, Stage, named};
use crate::{Error, Result};

/// How Segue is mounted and served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// Its name on the command line and in results: how soon a write must be with the server, then
    /// the order of sending.
    pub name: &'static str,
    write_back: &'static str,
    /// Of the client and of the server: each orders only the bytes that it sends.
    priorities: &'static str,
}

/// Those of [MFS table 2], in its order. The paper's synchronous write is `close`: the call that
/// stores a file returns when the server has it. `uniform` is without priorities, on both sides.
pub const CONFIGURATIONS: &[Configuration] = &[
    Configuration { name: "close-uniform", write_back: "close", priorities: "uniform" },
    Configuration { name: "close-priorities", write_back: "close", priorities: "on" },
    Configuration { name: "log-uniform", write_back: "log:1s", priorities: "uniform" },
    Configuration { name: "log-priorities", write_back: "log:1s", priorities: "on" },
    Configuration { name: "async-uniform", write_back: "async", priorities: "uniform" },
    Configuration { name: "async-priorities", write_back: "async", priorities: "on" },
];

/// Every write waits for the server. The paper has no such configuration; earlier results do.
const SYNC: &[Configuration] = &[
    Configuration { name: "sync-uniform", write_back: "sync", priorities: "uniform" },
    Configuration { name: "sync-priorities", write_back: "sync", priorities: "on" },
];

impl Configuration {
    /// What `-o` is given if promises count for so long.
    fn mounting(self, promises: Option<Duration>) -> String {
        let Configuration { write_back, priorities, .. } = self;
        let options = format!("cache-size=256M,write-back={write_back},priorities={priorities}");
        match promises {
            None => options,
            Some(term) => format!("{options},promises={}ms", term.as_millis()),
        }
    }

    /// Further arguments of `segue serve`.
    fn serving(self) -> [&'static str; 2] {
        ["--priorities", self.priorities]
    }
}

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
        let configured = CONFIGURATIONS.iter().chain(SYNC).find(|one| one.name == name);
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
        self.start_expiring(stage, None)
    }

    /// The same. What Segue's server promises counts for so long after it was promised, if that is
    /// given; then Segue asks again.
    pub fn start_expiring(
        self,
        stage: &Stage,
        promises: Option<Duration>,
    ) -> Result<Box<dyn Peer>> {
        match self {
            System::Segue(one) => {
                let options = ["-o".into(), one.mounting(promises)];
                Ok(Box::new(Segue::new(stage, &options, &one.serving())?))
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `uniform` was told to the client alone, and the server answered by class.
    #[test]
    fn client_and_server_send_in_the_same_order() {
        for one in CONFIGURATIONS.iter().chain(SYNC) {
            let [flag, order] = one.serving();
            let is_uniform = one.name.ends_with("-uniform");
            assert_eq!((flag, order), ("--priorities", if is_uniform { "uniform" } else { "on" }));
            let mounting = one.mounting(None);
            assert!(mounting.ends_with(&format!(",priorities={order}")), "{mounting}");
        }
    }

    #[test]
    fn what_the_paper_calls_synchronous_waits_at_close() {
        let mounting: Vec<String> =
            CONFIGURATIONS.iter().map(|one| one.mounting(Some(Duration::from_secs(1)))).collect();
        assert_eq!(
            mounting[0],
            "cache-size=256M,write-back=close,priorities=uniform,promises=1000ms"
        );
        assert!(!mounting.iter().any(|options| options.contains("write-back=sync")));
    }
}
