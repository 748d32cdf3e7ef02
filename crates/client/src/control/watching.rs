//! Telling who watches a directory what changes below it on the server, by whichever host.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use segue_core::nouns::{Attr, Ino, Kind};
use segue_core::refusal::Refusal;
use segue_core::wire::{Became, Watched, WatchedAll};
use tokio::sync::mpsc::Sender;

use super::status::find;
use crate::disk::beside::conflict_of;
use crate::mount::Shared;
use crate::replies::{AnyPath, WatchEvent, WatchLine};

/// So often it is found out whether the server is heard. After a second of silence it is not.
const PROBE: Duration = Duration::from_millis(500);

/// Where a watcher stands.
struct Watcher {
    mount: Shared,
    top: WatchLine,
    tell: Sender<WatchLine>,
}

/// The watcher has gone.
struct Gone;

/// Tells of changes below `path`, a directory, until nobody listens.
pub(crate) async fn watch(mount: Shared, path: AnyPath, tell: Sender<WatchLine>) {
    let inside = OsStr::from_bytes(path.as_bytes());
    let top = match inside.is_empty() {
        true => mount.volume.mountpoint.clone(),
        false => mount.volume.mountpoint.join(inside),
    };
    let top = top.display().to_string();
    let top = WatchLine { path: top, ..WatchLine::default() };
    let watcher = Watcher { mount, top, tell };
    let found = find(&watcher.mount, path.as_bytes()).await;
    let directory = found.and_then(|attr| match attr.kind {
        Kind::Directory => Ok(attr.ino),
        _ => Err(Refusal::NotDirectory),
    });
    let ended = match directory {
        Ok(directory) => watcher.run(directory).await,
        Err(refusal) => watcher.end(refusal).await,
    };
    // There is nobody to be told.
    ended.unwrap_or(());
}
impl Watcher {
    async fn say(&self, event: WatchEvent) -> Result<(), Gone> {
        self.send(WatchLine { event, ..self.top.clone() }).await
    }

    async fn send(&self, line: WatchLine) -> Result<(), Gone> {
        self.tell.send(line).await.map_err(|_| Gone)
    }

    async fn end(&self, refusal: Refusal) -> Result<(), Gone> {
        let reason = refusal.to_string();
        self.send(WatchLine { event: WatchEvent::Ended, reason, ..self.top.clone() }).await
    }

    async fn run(&self, directory: Ino) -> Result<(), Gone> {
        let (mut since, mut offline) = (None, false);
        loop {
            let asking = self.mount.remote.watch(directory, since);
            tokio::pin!(asking);
            let answer = loop {
                tokio::select! {
                    answer = &mut asking => break answer,
                    () = self.turn(offline), if since.is_some() => {
                        offline = !offline;
                        let event = if offline { WatchEvent::Offline } else { WatchEvent::Online };
                        self.say(event).await?;
                    }
                    () = self.tell.closed() => return Err(Gone),
                }
            };
            let all = match answer {
                Ok(all) => all,
                Err(Refusal::Unreachable) => {
                    if !offline {
                        self.say(WatchEvent::Offline).await?;
                    }
                    offline = true;
                    tokio::select! {
                        () = self.mount.write_back.pause() => continue,
                        () = self.tell.closed() => return Err(Gone),
                    }
                }
                Err(refusal) => return self.end(refusal).await,
            };
            if std::mem::take(&mut offline) && since.is_some() {
                self.say(WatchEvent::Online).await?;
            }
            if since.is_none() {
                self.say(WatchEvent::Watching).await?;
            }
            since = Some(all.commit);
            self.tell_all(all).await?;
        }
    }

    /// Returns when the server is not heard any more, or if it was `offline`, when it is again. The
    /// question for changes has no answer for long, so something else is asked meanwhile.
    async fn turn(&self, offline: bool) {
        let remote = &self.mount.remote;
        while remote.is_silent() == offline {
            let next = tokio::time::sleep(PROBE);
            if !offline {
                tokio::time::timeout(PROBE, remote.renew()).await.ok();
            }
            next.await;
        }
    }

    async fn tell_all(&self, all: WatchedAll) -> Result<(), Gone> {
        if all.others {
            self.say(WatchEvent::Unknown).await?;
        }
        for change in all.changes {
            self.send(self.line(&change)).await?;
        }
        Ok(())
    }

    fn line(&self, change: &Watched) -> WatchLine {
        let mut path = self.top.path.clone();
        for name in &change.path {
            path.push('/');
            path.push_str(&name.to_string());
        }
        let of = |event, attr: &Attr| WatchLine {
            event,
            path: path.clone(),
            kind: Some(word(attr.kind).to_string()),
            inode: Some(attr.ino.0),
            size: Some(attr.size),
            ..WatchLine::default()
        };
        match &change.became {
            Became::Named(attr) => WatchLine {
                conflict_of: conflict_of(&path, change.path.last()),
                ..of(WatchEvent::Named, attr)
            },
            Became::Changed(attr) => of(WatchEvent::Changed, attr),
            Became::Gone => WatchLine { event: WatchEvent::Gone, path, ..WatchLine::default() },
        }
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice | Kind::BlockDevice => "device",
    }
}
