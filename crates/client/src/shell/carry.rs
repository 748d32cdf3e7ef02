//! Actions of the host, each carried out in the room that it is about.

use segue_core::host::action::{Action, Done, Load, Task, Undone};
use segue_core::host::call::KeptAs;
use segue_core::host::log::Lane;
use segue_core::refusal::Refusal;

use crate::disk::{Log, Parking};
use crate::shell::{Running, Shell};

impl Shell {
    /// Carries out an action. Returns how it ended, if the call waits for that.
    pub(super) fn carry_out_action<'a>(
        &'a self,
        running: &mut Running<'a>,
        action: Action,
        bytes: &[u8],
        log: &mut Log<'a>,
    ) -> Option<Result<Done, Undone>> {
        match action {
            Action::Reserve(_, first) => Some(self.disk.reserve_seqs(first)),
            Action::Load(_, Load::FreeSpace) => {
                Some(self.disk.free_space().map(Done::Free).map_err(Undone::from))
            }
            Action::Load(_, Load::Data(ino)) => {
                Some(self.disk.load(ino).map(|()| Done::Carried).map_err(Undone::from))
            }
            Action::Load(_, load) => {
                Some(Ok(Done::Noted(self.unlocked(log, || self.disk.noted(&load)))))
            }
            Action::LogMaps(_, only) => {
                let logged = self.unlocked(log, || self.note_maps(only));
                Some(logged.map(|()| Done::Carried).map_err(Undone::from))
            }
            Action::Back(_, backing) => Some(match self.kernel.back(backing) {
                Ok(behind) => {
                    if let Some(opening) = &mut running.opening {
                        opening.backed = Some(behind);
                    }
                    Ok(Done::Carried)
                }
                Err(refusal) => Err(refusal.into()),
            }),
            Action::EndBacking(ino) => {
                match &mut running.opening {
                    Some(opening) => opening.ended.push(ino),
                    None => self.unlocked(log, || self.note_action(action)),
                }
                None
            }
            Action::WatchMaps(_, ino, container) => {
                let watched = self.kernel.watch_maps(ino, container);
                Some(watched.map(|()| Done::Carried).map_err(Undone::from))
            }
            Action::Evict(_) => Some(self.unlocked(log, || self.disk.evict_for_writer())),
            Action::Preserve(_, part) => Some(self.unlocked(log, || self.disk.preserve(&part))),
            Action::Append(_, entry) => Some(self.disk.append(log, &entry)),
            Action::AppendAll(_, entries) => Some(self.disk.append_all(log, &entries)),
            Action::Keep(_, kept) => {
                // The waiter has stopped since it was held.
                running.held.retain(|held| held.kept.logged.seq != kept.logged.seq);
                Some(self.unlocked(log, || {
                    self.keep(&self.disk.parking(*kept)?)?;
                    Ok(Done::Carried)
                }))
            }
            Action::Hold(_, kept) => Some(match self.disk.parking(*kept) {
                Ok(parking) => {
                    running.held.push(parking);
                    Ok(Done::Carried)
                }
                Err(refusal) => Err(refusal.into()),
            }),
            Action::Write(_, edit) => Some(self.disk.write_edit(log, &edit, bytes)),
            Action::Undo(_, undo) => Some(self.disk.undo(log, &undo)),
            Action::ForgetNotes(_, lost) => {
                Some(self.unlocked(log, || self.disk.forget_notes(&lost)))
            }
            Action::KeepHeld(seq) => {
                self.unlocked(log, || self.keep_held(running, seq));
                None
            }
            action => {
                self.note_action(action);
                None
            }
        }
    }

    /// Carries out an action that no call waits for.
    pub(super) fn note_action(&self, action: Action) {
        match action {
            Action::KeepBasis(ino, container, version) => {
                self.disk.keep_basis(ino, container, version);
            }
            Action::KeepOverwritten(ino, container, version, range) => {
                self.disk.keep_overwritten((ino, container), version, &range);
            }
            Action::BasisChanged(ino, is_done) => self.disk.basis_changed(ino, is_done),
            Action::EndBacking(ino) => {
                self.end_backing(&mut self.kernel.through.behind.lock(), ino);
            }
            Action::ForgetData(ino) | Action::ForgetListing(ino) => {
                self.kernel.cache.forget_data(ino);
            }
            Action::ForgetAttributes(ino) => self.kernel.cache.forget_attributes(ino),
            Action::ForgetName(at) => self.kernel.cache.forget_name(at.parent, at.name),
            Action::ForgetPlace(at) if self.kernel.cache.keeps_places() => {
                self.kernel.cache.forget_name(at.parent, at.name);
            }
            Action::Leave(ino) => self.kernel.forget_names_of(ino),
            Action::Wake(Task::Drain) => self.wake_lanes(),
            Action::Wake(task) => self.wakes.wake(task),
            // Without the task there is no shell.
            Action::Start(call) => drop(self.wakes.calls_to_start.send(call)),
            // The rest is taken before.
            _ => {}
        }
    }

    /// Wakes the lanes that may have something to send, and no others: a lane that looks holds the
    /// log and the core, and so holds up the next call.
    fn wake_lanes(&self) {
        let (lanes, hurries) = {
            let core = self.host.lock();
            (Lane::ALL.map(|lane| (lane, core.queue().may_have(lane))), core.has_company())
        };
        let lanes = lanes.into_iter().filter(|(_, may_have)| *may_have);
        lanes.for_each(|(lane, _)| self.wakes.lanes.of(lane).wakes.notify_one());
        if hurries {
            self.wakes.lanes.hurry.notify_one();
        }
    }

    /// Keeps the fate of a change for the user, durably.
    pub(super) fn keep(&self, parking: &Parking<'_>) -> Result<(), Refusal> {
        let kept = self.disk.keep(parking);
        if matches!(parking.kept.to, KeptAs::Copy { .. }) {
            self.wakes.merges.notify_one();
        }
        kept
    }

    /// Runs `work` while the log is not locked.
    pub(super) fn unlocked<'a, R>(&'a self, log: &mut Log<'a>, work: impl FnOnce() -> R) -> R {
        let was_locked = log.take().is_some();
        let done = work();
        *log = was_locked.then(|| self.disk.log.lock());
        done
    }
}
