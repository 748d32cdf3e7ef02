//! In which order a scheduler sends. Anything but [`Discipline::Priorities`] is for experiments: it
//! is what others do, measured under the same transport.

use std::str::FromStr;

use crate::nouns::Class;

/// The class of everything under [`Discipline::Uniform`].
const ONLY: Class = Class::Fetch;

/// What decides what goes first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Discipline {
    /// The class, whatever the bandwidth: modeless adaptation [MFS 2.2].
    #[default]
    Priorities,
    /// Nothing but the order of arrival.
    Uniform,
    /// The class, and the mode that the bandwidth allows: modal adaptation, which MFS is compared
    /// with.
    Modal(Modes),
}

impl FromStr for Discipline {
    type Err = UnknownDiscipline;

    /// As options name it.
    fn from_str(name: &str) -> Result<Discipline, UnknownDiscipline> {
        match name {
            "on" => Ok(Discipline::Priorities),
            "uniform" => Ok(Discipline::Uniform),
            "modal" => Ok(Discipline::Modal(Modes::default())),
            other => Err(UnknownDiscipline(other.to_owned())),
        }
    }
}

/// No discipline has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not on, uniform or modal")]
pub struct UnknownDiscipline(String);

impl Discipline {
    /// The class at which a message really travels.
    pub fn class(&self, class: Class) -> Class {
        match self {
            Discipline::Uniform => ONLY,
            Discipline::Priorities | Discipline::Modal(_) => class,
        }
    }

    /// The least urgent class that is sent where so many bytes a second are available; 0 where that
    /// is not known.
    pub fn least(&self, rate: u64) -> Class {
        match self {
            Discipline::Modal(modes) if rate > 0 => modes.least(rate),
            _ => Class::Prefetch,
        }
    }
}

/// The modes of modal adaptation: from which bandwidth on which classes are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Modes {
    /// By falling bandwidth.
    modes: Vec<(u64, Class)>,
    /// Below all of these.
    least: Class,
}

impl Modes {
    /// From each so many bytes a second on that class and all more urgent ones are sent; below all
    /// of them those up to `least`.
    pub fn new(modes: impl IntoIterator<Item = (u64, Class)>, least: Class) -> Modes {
        let mut modes: Vec<_> = modes.into_iter().collect();
        modes.sort_by(|one, other| other.cmp(one));
        Modes { modes, least }
    }

    fn least(&self, rate: u64) -> Class {
        let mode = self.modes.iter().find(|(from, _)| rate >= *from);
        mode.map_or(self.least, |(_, least)| *least)
    }
}

impl Default for Modes {
    /// Two, as Coda has them [its weakly connected mode, as in MFS 1]: below 64 KB/s what is
    /// written waits for better times.
    fn default() -> Modes {
        Modes::new([(64 << 10, Class::Prefetch)], Class::Fetch)
    }
}
