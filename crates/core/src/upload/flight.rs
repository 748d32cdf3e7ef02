//! A group of chunks on its way: offered, and then put as far as the server lacks them.

use std::collections::VecDeque;

use super::differ::Hints;
use super::{Action, Chunk, FlightId, Put, bytes_of};
use crate::nouns::Ino;

/// Most bytes that one PUT carries.
const PUT_MAX: u64 = 4 << 20;

/// The group.
#[derive(Debug)]
pub(super) struct Flight<B, C> {
    id: FlightId,
    files: Vec<Ino>,
    hints: Option<Hints<C>>,
    /// The server is not known to have these.
    left: VecDeque<Chunk<B>>,
    /// These are being put.
    put: Vec<Chunk<B>>,
    /// Some of them led to nothing as differences, and are put whole.
    is_whole: bool,
}

impl<B: Clone, C: Clone> Flight<B, C> {
    pub(super) fn new(
        id: FlightId,
        chunks: Vec<Chunk<B>>,
        files: Vec<Ino>,
        hints: Option<Hints<C>>,
    ) -> Flight<B, C> {
        Flight { id, files, hints, left: chunks.into(), put: Vec::new(), is_whole: false }
    }

    /// What is done first.
    pub(super) fn offer(&self) -> Action<B, C> {
        Action::Offer(self.id, self.left.iter().cloned().collect())
    }

    /// The server lacks these of the chunks. Returns how many bytes it has.
    pub(super) fn wanted(&mut self, indexes: &[u32]) -> u64 {
        let all = bytes_of(&self.left);
        let wanted = indexes.iter().filter_map(|&index| self.left.get(index as usize).cloned());
        self.left = wanted.collect();
        all.saturating_sub(bytes_of(&self.left))
    }

    /// The next chunks that are put; `None` if the server has all.
    pub(super) fn next_put(&mut self) -> Option<Action<B, C>> {
        let mut bytes = 0;
        let fits = |chunk: &&Chunk<B>| {
            bytes += u64::from(chunk.len);
            bytes <= PUT_MAX
        };
        let most = self.left.iter().take_while(fits).count().max(1).min(self.left.len());
        self.put = self.left.drain(..most).collect();
        self.is_whole = self.hints.is_none();
        (!self.put.is_empty()).then(|| self.putting(self.put.clone()))
    }

    /// The server took them but for those that led to nothing. Returns these, or else how many
    /// bytes it has now.
    pub(super) fn stored(&mut self, lacking: &[u32]) -> Result<u64, Action<B, C>> {
        if !lacking.is_empty() && !self.is_whole {
            self.is_whole = true;
            let whole = lacking.iter().filter_map(|&index| self.put.get(index as usize).cloned());
            return Err(self.putting(whole.collect()));
        }
        Ok(bytes_of(&std::mem::take(&mut self.put)))
    }

    fn putting(&self, chunks: Vec<Chunk<B>>) -> Action<B, C> {
        let hints = self.hints.clone().filter(|_| !self.is_whole);
        Action::Put(self.id, Put { chunks, files: self.files.clone(), hints })
    }
}
