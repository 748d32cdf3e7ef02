//! A note of each call, for experiments [MFS 4.5]: the question, its class, its end, and the times
//! at which its request and its reply were queued and sent.
//!
//! Both sides of a connection may keep one; `connection` and `call` are the same at both:
//!
//! ```text
//!   asking:     queued ─▶ sent_first ─▶ sent_last ┄┄┄┄┄┄▶ reply_first ─▶ reply_last
//!   answering:        received ─▶ queued ─▶ sent_first ─▶ sent_last
//! ```
//!
//! A byte is sent when QUIC gets it; QUIC gets no more than it can send at once. Times are seconds
//! since 1970 by the clock of the side that wrote them, and never go back. A thread of its own
//! writes one line of JSON for each call when the call is over. If the disk is slower than the
//! calls, lines are left out, and their number is reported.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quinn::{Connection, SendStream, VarInt};
use segue_core::nouns::Class;

/// Lines that wait for the disk.
const LINES_MAX: usize = 4096;
/// From this both sides derive the same name of a connection out of its secrets.
const NAME: &[u8] = b"segue record 1";

/// The place where calls are noted. Clones share it.
#[derive(Clone, Debug)]
pub struct Recorder {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
    /// One moment on both clocks.
    origin: (Instant, f64),
}

impl Recorder {
    /// Appends to the file at `path`, made if it is not there.
    pub fn open(path: &Path) -> io::Result<Recorder> {
        let file = File::options().create(true).append(true).open(path)?;
        let (lines, written) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = lost.clone();
        std::thread::Builder::new().name("record".into()).spawn(move || {
            if let Err(error) = write(&written, BufWriter::new(file), &counted) {
                tracing::warn!("stopped recording calls: {error}");
            }
        })?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Recorder { lines, lost, origin: (Instant::now(), since.as_secs_f64()) })
    }

    fn seconds(&self, at: Instant) -> f64 {
        let (origin, seconds) = self.origin;
        seconds + at.saturating_duration_since(origin).as_secs_f64()
    }

    fn put(&self, line: String) {
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Writes lines as they come, and flushes them to the file when no more wait.
fn write(lines: &Receiver<String>, mut file: BufWriter<File>, lost: &AtomicU64) -> io::Result<()> {
    while let Ok(line) = lines.recv() {
        let mut line = Ok(line);
        while let Ok(text) = &line {
            file.write_all(text.as_bytes())?;
            line = lines.try_recv();
        }
        let left_out = lost.swap(0, Relaxed);
        if left_out > 0 {
            writeln!(file, "{{\"left_out\":{left_out}}}")?;
        }
        file.flush()?;
        if line == Err(TryRecvError::Disconnected) {
            break;
        }
    }
    Ok(())
}

/// The name of a connection, the same at both sides.
pub(crate) fn name_of(connection: &Connection) -> u64 {
    let mut name = [0; 8];
    // It fails on a connection without secrets, which carries no call.
    let _ = connection.export_keying_material(&mut name, NAME, &[]);
    u64::from_be_bytes(name)
}

/// When the bytes of one message were handed to QUIC.
#[derive(Debug, Default)]
pub(crate) struct Times {
    first: OnceLock<Instant>,
    last: OnceLock<Instant>,
}

impl Times {
    /// Some bytes were handed over, all of them if `is_last`.
    pub(crate) fn handed(&self, is_last: bool) {
        let now = Instant::now();
        // Later bytes change nothing.
        let _ = self.first.set(now);
        if is_last {
            let _ = self.last.set(now);
        }
    }
}

/// The side of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Asking,
    Answering,
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// With a complete reply.
    Ok,
    /// Without a reply, or with a part of it.
    Error,
    /// The caller gave it up.
    Cancelled,
}

/// One call as it goes on; its line is written when this is dropped.
#[derive(Debug)]
pub(crate) struct Note {
    recorder: Recorder,
    connection: u64,
    call: u64,
    side: Side,
    request: &'static str,
    class: Class,
    end: End,
    received: Option<Instant>,
    queued: Option<Instant>,
    sent: Arc<Times>,
    reply_first: Option<Instant>,
    reply_last: Option<Instant>,
}

impl Note {
    /// A call on `stream` of the connection of that name.
    pub(crate) fn new(
        recorder: Recorder,
        connection: u64,
        stream: &SendStream,
        side: Side,
        (request, class): (&'static str, Class),
    ) -> Note {
        let now = Some(Instant::now());
        let (received, queued) = match side {
            Side::Asking => (None, now),
            Side::Answering => (now, None),
        };
        Note {
            recorder,
            connection,
            call: VarInt::from(stream.id()).into_inner(),
            side,
            request,
            class,
            end: End::Cancelled,
            received,
            queued,
            sent: Arc::default(),
            reply_first: None,
            reply_last: None,
        }
    }

    /// The times to be noted when its message is handed over here.
    pub(crate) fn times(&self) -> Arc<Times> {
        self.sent.clone()
    }

    /// The reply is queued here.
    pub(crate) fn reply_queued(&mut self) {
        self.queued = Some(Instant::now());
    }

    /// The reply's head has arrived here.
    pub(crate) fn reply_begun(&mut self) {
        self.reply_first = Some(Instant::now());
    }

    /// The call is over.
    pub(crate) fn ended(&mut self, end: End) {
        self.end = end;
        if end == End::Ok && self.side == Side::Asking {
            self.reply_last = Some(Instant::now());
        }
    }

    fn line(&self) -> String {
        let side = match self.side {
            Side::Asking => "asking",
            Side::Answering => "answering",
        };
        let end = match self.end {
            End::Ok => "ok",
            End::Error => "error",
            End::Cancelled => "cancelled",
        };
        let mut line = format!(
            "{{\"connection\":\"{:016x}\",\"call\":{},\"side\":\"{side}\",\"request\":\"{}\",\
             \"class\":\"{}\",\"end\":\"{end}\"",
            self.connection,
            self.call,
            self.request,
            self.class.name(),
        );
        let times = [
            ("received", self.received),
            ("queued", self.queued),
            ("sent_first", self.sent.first.get().copied()),
            ("sent_last", self.sent.last.get().copied()),
            ("reply_first", self.reply_first),
            ("reply_last", self.reply_last),
        ];
        for (name, at) in times {
            if let Some(at) = at {
                // Writing to a string does not fail.
                let _ = write!(line, ",\"{name}\":{:.6}", self.recorder.seconds(at));
            }
        }
        line.push_str("}\n");
        line
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.recorder.put(self.line());
    }
}
