//! The shell of an upload ([`segue_core::upload`]): reads the bytes of changes in containers, cuts
//! them, and gives the server what it lacks.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use segue_core::host::log::{DataChange, Logged};
use segue_core::host::send::group_bytes;
use segue_core::nouns::{Class, Ino, Stamped};
use segue_core::refusal::Refusal;
use segue_core::upload::{self, Action, Event, FlightId, Made, Put, Sizes, Upload, Way};
use segue_core::wire::{Leaf, Outline};
use segue_rpc::LinkState;
use segue_rpc::codec::difference;
use tokio::task::JoinSet;

use crate::disk::basis::BasisCopy;
use crate::disk::source::Source;
use crate::net::WireChunk;
use crate::write_back::WriteBack;

type ContainerEvent = Event<Bytes, BasisCopy>;
type ContainerPut = Put<Bytes, BasisCopy>;
/// At which class a call goes, and which changes it carries.
type Carries = (Class, Arc<[u64]>);

/// The records of a batch, as they are sent.
pub(crate) struct Prepared {
    pub(crate) records: Vec<Stamped>,
    /// To bring along. The server has every other chunk that the records refer to.
    pub(crate) chunks: Vec<WireChunk>,
}

impl WriteBack {
    /// Makes the records of a batch and sends their chunks. With `named` they only say the names of
    /// the chunks.
    pub(crate) async fn prepare(
        self: &Arc<Self>,
        class: Class,
        batch: &[Logged],
        named: bool,
    ) -> Result<Prepared, Refusal> {
        let mut stores: BTreeMap<_, _> = batch
            .iter()
            .filter_map(|logged| Some((logged.seq, self.store_sent_ahead(logged.seq)?)))
            .collect();
        let mut left = upload::changes_of(batch);
        left.retain(|(seq, _)| !stores.contains_key(seq));
        let way = if named { Way::Named } else { Way::Along };
        let made = self.make(class, left, way).await?;
        stores.extend(made.stores);
        let stamped = |logged: &Logged| logged.stamped(stores.remove(&logged.seq));
        let records = batch.iter().map(stamped).collect::<Option<_>>().ok_or(Refusal::Io)?;
        Ok(Prepared { records, chunks: made.chunks })
    }

    /// Makes the stores of changes.
    pub(super) async fn make(
        self: &Arc<Self>,
        class: Class,
        changes: Vec<(u64, DataChange)>,
        way: Way,
    ) -> Result<Made<Bytes>, Refusal> {
        let data: BTreeMap<u64, DataChange> = changes.iter().cloned().collect();
        let carried: Arc<[u64]> = data.keys().copied().collect();
        let data = |seq: u64| data.get(&seq).ok_or(Refusal::Io);
        let mut group_bytes = self.group_bytes();
        let mut upload = Upload::new(changes, way, Sizes::default(), group_bytes);
        let (mut opened, mut source) = (0, None);
        let mut waits = JoinSet::new();
        loop {
            while let Some(action) = upload.poll_action() {
                let this = Arc::clone(self);
                let event = match action {
                    Action::Progress(bytes) => {
                        self.note_sent(bytes);
                        continue;
                    }
                    Action::FindBases(seq) => Event::Bases(self.bases(seq, data(seq)?)),
                    Action::Open(seq) => {
                        (opened, source) = (seq, None);
                        if self.host.lock().is_wanted_whole(seq) {
                            waits.spawn(this.open_whole(data(seq)?.clone()));
                            continue;
                        }
                        Event::Opened(Ok(false))
                    }
                    Action::FindData(range) => {
                        let source = self.source(&mut source, opened, data(opened)?)?;
                        Event::Data(self.read_of(source.next_data(range)))
                    }
                    Action::Read(range) => {
                        let source = self.source(&mut source, opened, data(opened)?)?;
                        Event::Read(self.read_of(source.read(range.start, len_of(&range)?)))
                    }
                    Action::Cut(cutter, range) => {
                        let source = self.source(&mut source, opened, data(opened)?)?;
                        let window = upload::window(&cutter, &range);
                        let bytes = self.read_of(source.read(window.start, len_of(&window)?))?;
                        let is_last = window.end == range.end;
                        Event::Cut(Ok(upload::cut(&cutter, bytes.into(), is_last)))
                    }
                    Action::Outline(ask) => {
                        waits.spawn(this.outline((class, Arc::clone(&carried)), ask));
                        continue;
                    }
                    Action::Stage(leaf, ino) => {
                        waits.spawn(this.stage((class, Arc::clone(&carried)), leaf, ino));
                        continue;
                    }
                    Action::Offer(id, chunks) => {
                        waits.spawn(this.offer((class, Arc::clone(&carried)), id, chunks));
                        continue;
                    }
                    Action::Put(id, put) => {
                        waits.spawn(this.put((class, Arc::clone(&carried)), id, put));
                        continue;
                    }
                };
                upload.handle(event, group_bytes);
            }
            if let Some(made) = upload.take_made() {
                return made;
            }
            // It always waits for something until it has ended.
            let event = waits.join_next().await.ok_or(Refusal::Io)?;
            group_bytes = self.group_bytes();
            upload.handle(event.map_err(|_| Refusal::Io)?, group_bytes);
        }
    }

    /// The bytes of the change that was opened.
    fn source<'a, 'b>(
        &'a self,
        source: &'b mut Option<Source<'a>>,
        seq: u64,
        data: &DataChange,
    ) -> Result<&'b Source<'a>, Refusal> {
        if source.is_none() {
            *source = Some(self.disk.source(seq, data)?);
        }
        source.as_ref().ok_or(Refusal::Io)
    }

    fn read_of<T>(&self, read: io::Result<T>) -> Result<T, Refusal> {
        read.map_err(|error| self.disk.disk_refusal("containers", &error))
    }

    /// Gets what is missing of a file that another host changed meanwhile, as long as the server
    /// has the data that the change was made on. What was never here of these is zeros in the
    /// copy, which still holds all that was written here.
    async fn open_whole(self: Arc<Self>, data: DataChange) -> ContainerEvent {
        Event::Opened(self.complete(&data).await.map(|()| true))
    }

    async fn complete(self: &Arc<Self>, data: &DataChange) -> Result<(), Refusal> {
        let ino = data.ino;
        if !self.host.lock().is_ahead(ino) && !self.recall(data).await? {
            return Ok(());
        }
        match self.shell.fetch(ino, 0..data.size).await {
            Err(Refusal::Unreachable) => Err(Refusal::Unreachable),
            Err(refusal) => {
                tracing::warn!("inode {ino}: its conflict copy lacks unchanged data: {refusal}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// After a crash only the log knows the file. What it says was written here is not to be
    /// fetched, and nothing is where the server has other data than these were written on: the
    /// copy would be of two hosts. False then.
    async fn recall(&self, data: &DataChange) -> Result<bool, Refusal> {
        if let Err(Refusal::Unreachable) = self.shell.ask_attr(data.ino).await {
            return Err(Refusal::Unreachable);
        }
        Ok(self.host.lock().recalls(data))
    }

    async fn outline(self: Arc<Self>, (class, changes): Carries, ask: Outline) -> ContainerEvent {
        let (remote, Outline { ino, version, offset }) = (&self.remote, ask);
        let ask = |rpc| async move { remote.outline(&rpc, ino, version, offset).await };
        Event::Outlined(self.until_due(class, &changes, ask).await)
    }

    async fn stage(
        self: Arc<Self>,
        (class, changes): Carries,
        leaf: Leaf,
        ino: Ino,
    ) -> ContainerEvent {
        let remote = &self.remote;
        let stage = |rpc| async move { remote.stage(&rpc, vec![leaf], vec![ino]).await };
        Event::Staged(self.until_due(class, &changes, stage).await)
    }

    async fn offer(
        self: Arc<Self>,
        (class, changes): Carries,
        id: FlightId,
        chunks: Vec<WireChunk>,
    ) -> ContainerEvent {
        let remote = &self.remote;
        let nonce = match remote.link().state() {
            LinkState::Online { welcome, .. } => welcome.nonce,
            _ => return Event::Wanted(id, Err(Refusal::Unreachable)),
        };
        let offer = |rpc| async move { remote.offer(&rpc, &nonce, &chunks).await };
        Event::Wanted(id, self.until_due(class, &changes, offer).await)
    }

    async fn put(
        self: Arc<Self>,
        (class, changes): Carries,
        id: FlightId,
        put: ContainerPut,
    ) -> ContainerEvent {
        let (remote, Put { chunks, files, hints }) = (&self.remote, put);
        let deltas = hints.map(|hints| {
            let of_copy = |raw: &Bytes, range: Range<u64>| {
                // What cannot be read here is not missed.
                let dictionary = hints.copy.read(range.start, len_of(&range).ok()?).ok()?;
                difference(raw, &dictionary)
            };
            hints.differences(&chunks, of_copy)
        });
        let differ = deltas.as_ref().map(Vec::len);
        let all = chunks.len();
        let deltas = deltas.unwrap_or_default();
        let put = |rpc| async move { remote.put(&rpc, &chunks, deltas, files).await };
        let lacking = self.until_due(class, &changes, put).await;
        if let (Some(differ), Ok(lacking)) = (differ, &lacking) {
            let lack = lacking.len();
            tracing::debug!("{differ} of {all} chunks went as differences, {lack} led nowhere");
        }
        Event::Stored(id, lacking)
    }

    /// Of how many bytes a group is on this link. Beside others' traffic the round trip has their
    /// queue in it: groups for the empty path's would leave the link to them.
    fn group_bytes(&self) -> usize {
        let stats = self.remote.link().stats();
        group_bytes(stats.map(|stats| (stats.rate, stats.rtt)))
    }
}

fn len_of(range: &Range<u64>) -> Result<usize, Refusal> {
    usize::try_from(range.end - range.start).map_err(|_| Refusal::TooLarge)
}
