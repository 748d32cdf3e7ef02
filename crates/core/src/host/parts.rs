//! What a shell may read of a host. It changes nothing here: a shell says what happened, and the
//! host changes by itself.

use super::cache::{FileData, Nodes, Tree};
use super::call::{Handles, Room, SharingCounts};
use super::log::Queue;
use super::send::UploadAhead;
use super::{Host, Settings};
use crate::nouns::Ino;

impl Host {
    /// Names and attributes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Changes that the server lacks.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Bytes that quotas have left.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// Choices of the user.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Open files.
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// The kernel's numbers of files, and the files that it reads by itself.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// How often hosts waited for each other's changes.
    pub fn sharing(&self) -> SharingCounts {
        self.sharing
    }

    /// Stores whose chunks the server has before their turn.
    pub fn ahead(&self) -> &UploadAhead {
        &self.ahead
    }

    /// The state of the data of `ino`, unless nothing of them is known here.
    pub fn data_of(&self, ino: Ino) -> Option<&FileData> {
        self.files.get(&ino)
    }

    /// Files with data here or with open handles, in the order of their numbers.
    pub fn files(&self) -> impl Iterator<Item = (Ino, &FileData)> {
        self.files.iter().map(|(ino, file)| (*ino, file))
    }
}
