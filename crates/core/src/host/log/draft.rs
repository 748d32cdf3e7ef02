//! Making log entries: what a change will be, before anything is changed.

use std::ops::Range;

use crate::host::Host;
use crate::host::cache::FileData;
use crate::host::log::{After, Change, DataChange, Entry, Logged, Payload, WritePlace};
use crate::nouns::{Base, Caller, Ino, Kind, Record, RenameMode, Timestamp};

impl Host {
    /// The entry for a change of names or attributes.
    ///
    /// A rename replaces only what this host knows, as a store does: others' changes of it stay.
    pub fn draft_change(&self, record: Record, caller: Caller, time: Timestamp) -> Entry {
        let replaced = match &record {
            Record::Rename { mode: RenameMode::Replace(replaced), .. } => *replaced,
            _ => None,
        };
        self.draft_knowing(replaced, record, caller, time)
    }

    /// The same of a change that is made while the server cannot be asked. What it removes stays,
    /// too, if others change it meanwhile: who removes a file does not mean what he has not seen.
    pub fn draft_apart(&self, record: Record, caller: Caller, time: Timestamp) -> Entry {
        self.draft_knowing(record.unnamed(), record, caller, time)
    }

    fn draft_knowing(
        &self,
        removed: Option<Ino>,
        record: Record,
        caller: Caller,
        time: Timestamp,
    ) -> Entry {
        let known = removed.and_then(|ino| self.known_data(ino));
        match self.draft(Change::Record(record), caller, time) {
            Entry::Change(logged) => Entry::Change(Logged { known, ..logged }),
            other => other,
        }
    }

    /// Which state the data of a file are in, as far as this host knows or has made it.
    fn known_data(&self, ino: Ino) -> Option<Base> {
        match self.files.get(&ino).filter(|file| file.is_ahead()) {
            // What is shown of it is not the server's.
            Some(file) => Some(file.base()),
            None => {
                let attr = self.tree.peek(ino).filter(|attr| attr.kind == Kind::File)?;
                Some(Base::Version(attr.data_version))
            }
        }
    }

    fn draft(&self, change: Change, caller: Caller, time: Timestamp) -> Entry {
        let after = self.after(&self.makers(&change, &caller));
        let seq = self.next_seq;
        Entry::Change(Logged { seq, time, caller, operation: None, after, known: None, change })
    }

    fn place(&mut self, ino: Ino, time: Timestamp) -> Option<WritePlace> {
        let old_size = self.tree.peek(ino)?.size;
        let file = self.file(ino)?;
        // It is in use until the entry is admitted.
        file.not_noted();
        Some(WritePlace { ino, container: file.container(), base: file.base(), old_size, time })
    }

    fn of_what(&self, ino: Ino, entry: Entry) -> Entry {
        if self.is_nameless(ino) { Entry::Nameless(Box::new(entry)) } else { entry }
    }

    /// The entry for bytes that go into the container of `ino`; `None` if it is not known.
    pub fn draft_write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: Payload,
        time: Timestamp,
    ) -> Option<Entry> {
        let entry = Entry::Written { place: self.place(ino, time)?, offset, data };
        Some(self.of_what(ino, entry))
    }

    /// The entry for a new size of `ino`; `None` if it is not known. A file that is emptied gets
    /// another container: what waits to be sent needs the old one. Unless it `stays`, because
    /// somebody reads it past us: then that has been preserved.
    pub(in crate::host) fn draft_resize(
        &mut self,
        ino: Ino,
        size: u64,
        stays: bool,
        time: Timestamp,
    ) -> Option<Entry> {
        let mut place = self.place(ino, time)?;
        if size == 0 && place.old_size > 0 && !stays {
            place.container = self.fresh_container();
        }
        Some(self.of_what(ino, Entry::Resized { place, size }))
    }

    /// The entry that closes what was written to `ino` since the last seal into one change;
    /// `None` if there is nothing.
    ///
    /// An open file that has no name anywhere is not stored: nobody else will ever read it.
    ///
    /// The change is of the moment that this host shows as the file's last: so the times stay
    /// as they are when it is settled.
    pub fn draft_seal(&self, ino: Ino, caller: Caller) -> Option<Entry> {
        let time = self.tree.peek(ino)?.ctime;
        let change = Change::Data(self.unsealed_data(ino)?);
        Some(self.draft(change, caller, time))
    }

    /// What was written to `ino` since the last seal and is to be stored.
    pub(in crate::host) fn unsealed_data(&self, ino: Ino) -> Option<DataChange> {
        let attr = self.tree.peek(ino)?;
        if self.is_nameless(ino) {
            return None;
        }
        let file = self.files.get(&ino)?;
        let unsealed = file.unsealed()?;
        Some(DataChange {
            ino,
            container: file.container(),
            base: unsealed.base,
            cut: unsealed.cut,
            size: attr.size,
            ranges: unsealed.ranges,
            mtime: attr.mtime,
        })
    }

    /// The entry that makes a change of what an earlier life left unsealed. If the host
    /// `lost_power`, that may have been sealed and sent, and changed again.
    pub(in crate::host) fn draft_leftover(
        &self,
        data: DataChange,
        caller: Caller,
        lost_power: bool,
    ) -> Entry {
        let known = lost_power.then_some(data.base);
        let logged = data.logged(self.next_seq, caller);
        Entry::Change(Logged { after: After::Everything, known, ..logged })
    }

    /// Entries that say the same as the log so far, in less. All bytes that they speak of are
    /// durable.
    pub fn log_entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for (logged, _) in self.queue.iter() {
            entries.push(Entry::Change(self.without_cancelled(logged)));
            let preserved = self.preserved.get(&logged.seq).into_iter().flat_map(|set| set.iter());
            let seq = logged.seq;
            entries.extend(preserved.map(|range| Entry::Preserved {
                seq,
                range,
                sums: Vec::new(),
            }));
        }
        for (ino, file) in &self.files {
            if !self.is_nameless(*ino) {
                self.log_unsealed(*ino, file, &mut entries);
            }
        }
        entries
    }

    /// What was cancelled is in no log that is written anew: who follows it follows all there is.
    fn without_cancelled(&self, logged: &Logged) -> Logged {
        let after = match &logged.after {
            After::These(seqs) if seqs.iter().any(|seq| self.queue.is_cancelled(*seq)) => {
                After::Everything
            }
            after => after.clone(),
        };
        Logged { after, ..logged.clone() }
    }

    fn log_unsealed(&self, ino: Ino, file: &FileData, entries: &mut Vec<Entry>) {
        let (Some(unsealed), Some(attr)) = (file.unsealed(), self.tree.peek(ino)) else { return };
        let place = |old_size| WritePlace {
            ino,
            container: file.container(),
            base: unsealed.base,
            old_size,
            time: attr.mtime,
        };
        if let Some(size) = unsealed.cut {
            entries.push(Entry::Resized { place: place(u64::MAX), size });
        }
        for Range { start: offset, end } in unsealed.ranges {
            let data = Payload::Durable { len: end - offset };
            entries.push(Entry::Written { place: place(attr.size), offset, data });
        }
        entries.push(Entry::Resized { place: place(attr.size), size: attr.size });
    }
}
