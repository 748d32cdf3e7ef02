//! Which way the bulk goes.

use serde::Serialize;

/// Which way the bulk goes, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// To the server.
    Up,
    /// From it.
    Down,
    /// Both at once.
    Both,
}

impl Direction {
    /// Each of them.
    pub const ALL: [Direction; 3] = [Direction::Up, Direction::Down, Direction::Both];

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
            Direction::Both => "both",
        }
    }

    /// Whether bulk goes to the server.
    pub(super) fn is_up(self) -> bool {
        self != Direction::Down
    }

    /// Whether bulk comes from the server.
    pub(super) fn is_down(self) -> bool {
        self != Direction::Up
    }
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
