//! What of a run that failed is left out without its failing otherwise: what is left says why.
//!
//! Runs are numbered inside: each operation that an application begins, and each fault. Left out
//! are halves, quarters, and so on, as long as the rest fails in the same way (delta debugging,
//! [Zeller and Hildebrandt 2002]).

use std::collections::BTreeSet;

use crate::plan::Options;
use crate::{Failure, run_only};

/// Runs that are tried at most.
const TRIES: u32 = 3000;
/// So much of what is found says which kind of failure it is.
const KIND: usize = 24;

/// What of a run happens: operations and faults by their numbers, and what messages suffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Only {
    /// Operations and faults.
    pub numbers: BTreeSet<u64>,
    /// Messages are lost, come twice, or late.
    pub noise: bool,
}

/// Numbers do not tell failures apart.
fn kind(what: &str) -> String {
    what.chars().filter(|sign| !sign.is_ascii_digit()).take(KIND).collect()
}

/// The least that is left of a run that failed, as far as it was found, and how that fails.
pub fn shorten(seed: u64, options: Options, failure: Failure) -> (Only, Failure) {
    let wanted = kind(&failure.what);
    let all = Only { numbers: (0..failure.numbers).collect(), noise: true };
    let mut search = Search { seed, options, wanted, left: all, failure, tries: TRIES };
    search.without_noise();
    let mut parts = 2;
    while parts <= search.left.numbers.len() && search.tries > 0 {
        parts = match search.without_a_part(parts) {
            true => (parts - 1).max(2),
            false if parts == search.left.numbers.len() => break,
            false => (parts * 2).min(search.left.numbers.len()),
        };
    }
    search.without_noise();
    (search.left, search.failure)
}

struct Search {
    seed: u64,
    options: Options,
    wanted: String,
    left: Only,
    failure: Failure,
    tries: u32,
}

impl Search {
    /// True, and nothing else is left, if `only` fails in the same way.
    fn fails(&mut self, mut only: Only) -> bool {
        self.tries = self.tries.saturating_sub(1);
        match run_only(self.seed, self.options, &only) {
            Err(failure) if kind(&failure.what) == self.wanted => {
                only.numbers.retain(|number| *number < failure.numbers);
                (self.left, self.failure) = (only, failure);
                true
            }
            _ => false,
        }
    }

    fn without_noise(&mut self) {
        if self.left.noise {
            self.fails(Only { noise: false, ..self.left.clone() });
        }
    }

    /// Leaves out one of so many parts, if one can be.
    fn without_a_part(&mut self, parts: usize) -> bool {
        let numbers: Vec<u64> = self.left.numbers.iter().copied().collect();
        let size = numbers.len().div_ceil(parts);
        for part in numbers.chunks(size) {
            if self.tries == 0 {
                return false;
            }
            let rest = numbers.iter().filter(|number| !part.contains(number)).copied();
            let only = Only { numbers: rest.collect(), ..self.left.clone() };
            if self.fails(only) {
                return true;
            }
        }
        false
    }
}
