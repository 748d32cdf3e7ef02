//! Uploads before the turn of their changes, as segue-client's write_back/ahead.rs has them.

use segue_core::host::Host;
use segue_core::host::send::UPLOADS;
use segue_core::nouns::Time;

use super::SimRemote;
use super::upload::{Changes, UploadId, Uploading};
use crate::Violation;
use crate::disk::HostDisk;

impl SimRemote {
    /// The host knows which connection there is.
    fn follow_connection(&self, core: &mut Host) {
        let mut nonce = [0; 32];
        nonce[..8].copy_from_slice(&self.session.connection.to_le_bytes());
        core.follow_connection((!self.is_offline).then_some(nonce));
    }

    /// Begins uploads of what is worth it, and gives up those that nobody wants any more.
    pub(crate) fn upload_ahead(
        &mut self,
        (core, disk): (&mut Host, &mut HostDisk),
        now: Time,
    ) -> Result<(), Violation> {
        self.follow_connection(core);
        let is_over = |uploading: &Uploading| match &uploading.of {
            Changes::Ahead(picked) => !core.is_picked(picked),
            Changes::Batch(..) => false,
        };
        let over = self.uploads.iter().filter(|(_, uploading)| is_over(uploading));
        for id in over.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.uploads.remove(&id);
            self.forget_upload(id);
        }
        let is_ahead = |id: &&UploadId| matches!(id, UploadId::Ahead(_));
        while self.uploads.keys().filter(is_ahead).count() < UPLOADS
            && let Some(picked) = core.pick_ahead(now)
        {
            self.aheads += 1;
            self.counts.uploads_ahead += 1;
            let uploading = Uploading::new(core, Changes::Ahead(picked), self.least);
            self.go_on_uploading((core, disk), (UploadId::Ahead(self.aheads), uploading), now)?;
        }
        Ok(())
    }
}
