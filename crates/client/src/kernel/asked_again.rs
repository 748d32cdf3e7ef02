//! Pages of a file that another host made shorter while they were on their way.
//!
//! A kernel that was told of the change meanwhile does not take the end of the answer for the end
//! of the file, and fills the page up with zeros as far as it believes that the file goes. So the
//! page is refused once, and the kernel asks for it again. Until that has its answer nothing of the
//! file is forgotten.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use segue_core::nouns::Ino;

use crate::rank::Ranked;

/// The kernel asks again at once, if anybody waits for the page.
const SOON: Duration = Duration::from_millis(10);
/// The answer takes no longer, unless the new data are to be fetched.
const LONGEST: Duration = Duration::from_secs(1);
/// Files of which it is known how long they were. If there are more, all are forgotten.
const FILES_MAX: usize = 4096;

/// What the kernel may believe of files that it reads.
#[derive(Debug)]
pub(super) struct AskedAgain(Ranked<Beliefs>);

#[derive(Debug, Default)]
struct Beliefs {
    /// The longest that a file was when a page of it was asked for.
    sizes: BTreeMap<Ino, u64>,
    /// Until when nothing of a file is forgotten.
    until: BTreeMap<Ino, Instant>,
}

impl Default for AskedAgain {
    fn default() -> AskedAgain {
        AskedAgain(Ranked::leaf(Beliefs::default()))
    }
}

impl AskedAgain {
    /// At `now` the kernel asks for a page of `ino`, which is `size` long. Returns how long it may
    /// believe that the file is, and whether it asks again.
    pub(super) fn begins(&self, ino: Ino, size: u64, now: Instant) -> (u64, bool) {
        let mut beliefs = self.0.lock();
        if beliefs.sizes.len() >= FILES_MAX {
            beliefs.sizes.clear();
        }
        let believed = beliefs.sizes.entry(ino).or_default();
        *believed = size.max(*believed);
        let believed = *believed;
        let until = beliefs.until.get_mut(&ino);
        (believed, until.map(|end| *end = now + LONGEST).is_some())
    }

    /// The page is refused: the kernel is going to ask for it again, and learns that the file is
    /// `size` long.
    pub(super) fn refused(&self, ino: Ino, size: u64, now: Instant) {
        let mut beliefs = self.0.lock();
        beliefs.sizes.insert(ino, size);
        beliefs.until.retain(|_, end| *end > now);
        beliefs.until.insert(ino, now + SOON);
    }

    /// What was asked for again has its answer.
    pub(super) fn ends(&self, ino: Ino) {
        self.0.lock().until.remove(&ino);
    }

    /// True if nothing of `ino` is to be forgotten yet.
    pub(super) fn is_awaited(&self, ino: Ino, now: Instant) -> bool {
        self.0.lock().until.get(&ino).is_some_and(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: Ino = Ino(7);

    #[test]
    fn the_kernel_may_believe_what_was_the_longest() {
        let (again, now) = (AskedAgain::default(), Instant::now());
        let sizes = [100, 300, 200].map(|size| again.begins(INO, size, now).0);
        assert_eq!(sizes, [100, 300, 300]);
        again.refused(INO, 200, now);
        assert_eq!(again.begins(INO, 200, now), (200, true));
        assert_eq!(again.begins(Ino(8), 10, now), (10, false));
    }

    #[test]
    fn a_file_is_left_alone_until_the_page_has_its_answer() {
        let (again, now) = (AskedAgain::default(), Instant::now());
        assert!(!again.is_awaited(INO, now));
        again.refused(INO, 1, now);
        assert!(again.is_awaited(INO, now) && !again.is_awaited(INO, now + SOON), "nobody asked");
        assert!(again.begins(INO, 1, now).1);
        assert!(again.is_awaited(INO, now + SOON) && !again.is_awaited(INO, now + LONGEST));
        again.ends(INO);
        assert!(!again.is_awaited(INO, now));
    }
}
