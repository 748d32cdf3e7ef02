//! Names: each stands in a directory and leads to an inode.

use super::path::name_path;
use super::scan::Scan;
use super::{Checker, Damage, Finding, FoundRow, Halt, Visitor, decode, find};
use crate::namespace::{ClientRow, MetaSnapshot, keys};
use crate::nouns::{Ino, Kind, Name};

/// A directory whose names are being looked at.
struct Directory {
    ino: Ino,
    /// `None` where the count means nothing.
    nlink: Option<u32>,
    subdirectories: u32,
    /// The quota that it counts against, where that is known.
    quota: Option<Option<Ino>>,
}

impl<S: MetaSnapshot, V: Visitor> Checker<'_, S, V> {
    pub(super) fn names(&mut self) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(keys::dentries(self.volume));
        let mut open: Option<Directory> = None;
        while let Some((key, value)) = scan.next(self.snapshot)? {
            self.step()?;
            let Some((parent, name)) = keys::inode_part(&key) else {
                self.report_row(&key, "a name");
                continue;
            };
            let mut directory = match open.take() {
                Some(directory) if directory.ino == parent => directory,
                before => {
                    self.close(before)?;
                    self.open(parent)?
                }
            };
            match decode(&value) {
                Some(ino) => self.name(&mut directory, name, ino)?,
                None => self.report_row(&key, "a name"),
            }
            open = Some(directory);
        }
        self.close(open)
    }

    fn open(&mut self, ino: Ino) -> Result<Directory, Halt<S::Error>> {
        let mut quota = None;
        let nlink = match self.inode(ino)? {
            FoundRow::Row(row) if row.attr.kind == Kind::Directory => {
                quota = Some(row.attr.quota);
                Some(row.attr.nlink)
            }
            FoundRow::Broken => None,
            FoundRow::Row(_) => {
                self.report_name(ino, Damage::NotDirectory)?;
                None
            }
            FoundRow::Nothing => {
                self.report_name(ino, Damage::NoDirectory)?;
                None
            }
        };
        Ok(Directory { ino, nlink, subdirectories: 0, quota })
    }

    fn close(&mut self, directory: Option<Directory>) -> Result<(), Halt<S::Error>> {
        let Some(Directory { ino, nlink: Some(nlink), subdirectories, .. }) = directory else {
            return Ok(());
        };
        let found = subdirectories.saturating_add(2);
        if nlink != found {
            self.report_name(ino, Damage::Subdirectories { nlink, found })?;
        }
        Ok(())
    }

    fn report_name(&mut self, ino: Ino, damage: Damage) -> Result<(), Halt<S::Error>> {
        if self.again { Ok(()) } else { self.report(ino, damage) }
    }

    fn name(
        &mut self,
        directory: &mut Directory,
        name: &[u8],
        ino: Ino,
    ) -> Result<(), Halt<S::Error>> {
        if !self.again {
            self.counts.names += 1;
            if Name::new(name).is_err() {
                self.report_entry((directory.ino, name), ino, Damage::BadName)?;
            }
        }
        let row = match self.inode(ino)? {
            FoundRow::Row(row) => row,
            FoundRow::Broken => return Ok(()),
            FoundRow::Nothing => {
                return self.report_entry((directory.ino, name), ino, Damage::NameOfNothing);
            }
        };
        if directory.quota.is_some_and(|quota| !Self::is_on_its_side(&row, quota)) {
            self.report_entry((directory.ino, name), ino, Damage::OtherQuota)?;
        }
        let is_recorded = row.parent == directory.ino && row.name == name;
        if row.attr.kind == Kind::Directory {
            directory.subdirectories = directory.subdirectories.saturating_add(1);
            if ino == Ino::ROOT || !is_recorded {
                self.report_entry((directory.ino, name), ino, Damage::SecondName)?;
            }
        } else if !is_recorded {
            self.links.add_name(ino);
        }
        Ok(())
    }

    fn report_entry(
        &mut self,
        (directory, name): (Ino, &[u8]),
        ino: Ino,
        damage: Damage,
    ) -> Result<(), Halt<S::Error>> {
        if !self.again {
            let path = name_path(self.snapshot, self.volume, directory, name)?;
            let (ino, path, entry) = (Some(ino), Some(path), Some((directory, name.to_vec())));
            self.visitor.finding(Finding { ino, path, entry, damage });
        }
        Ok(())
    }

    /// Inodes without a name that clients have open.
    pub(super) fn orphans(&mut self) -> Result<(), Halt<S::Error>> {
        let mut scan = Scan::new(keys::all_orphans(self.volume));
        while let Some((key, _)) = scan.next(self.snapshot)? {
            self.step()?;
            let Some((client, ino)) = keys::orphan_parts(&key) else {
                self.report_row(&key, "an orphan");
                continue;
            };
            self.links.add_orphan(ino);
            if self.again {
                continue;
            }
            if matches!(self.inode(ino)?, FoundRow::Nothing) {
                self.report(ino, Damage::OrphanOfNothing)?;
            }
            let row = find::<_, ClientRow>(self.snapshot, &keys::client(client))?;
            match row {
                FoundRow::Broken => {}
                FoundRow::Row(row) if row.volume == self.volume => {}
                FoundRow::Row(_) | FoundRow::Nothing => self.report(ino, Damage::OrphanOfNobody)?,
            }
        }
        Ok(())
    }
}
