//! What is carried.

use serde::{Deserialize, Serialize};

/// What is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Calls of 100 bytes with their answers, each after the one before.
    One,
    /// The same, with some on their way at any time.
    Many,
    /// A body to the server.
    Up,
    /// A body from it.
    Down,
}

/// Calls on their way under [`Load::Many`].
const MANY: u32 = 64;

impl Load {
    /// Each of them, in the order of reports.
    pub const ALL: [Load; 4] = [Load::One, Load::Many, Load::Up, Load::Down];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Load::One => "one",
            Load::Many => "many",
            Load::Up => "up",
            Load::Down => "down",
        }
    }

    /// For a table.
    pub(super) fn words(self) -> String {
        match self {
            Load::One | Load::Many => format!("calls, {} in flight", self.in_flight()),
            Load::Up | Load::Down => self.name().to_owned(),
        }
    }

    /// Whether bytes count, not calls.
    pub(super) fn is_bulk(self) -> bool {
        self.in_flight() == 0
    }

    /// Calls on their way at any time.
    pub(super) fn in_flight(self) -> u32 {
        match self {
            Load::One => 1,
            Load::Many => MANY,
            Load::Up | Load::Down => 0,
        }
    }
}

/// As on the command line.
impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
