//! The kernel's end of the device, in a test's hands: a socket that keeps messages apart.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use segue_fuse::{Agreement, FileSystem, FuseSession, Notifier, Wishes};

use crate::examples::{Example, init};

/// An answer that takes longer than this does not come.
const GUARD: Duration = Duration::from_secs(30);

pub(crate) struct Kernel {
    socket: Option<OwnedFd>,
    session: Option<JoinHandle<()>>,
    pub(crate) notifier: Notifier,
    pub(crate) agreement: Agreement,
    /// The answer to INIT.
    pub(crate) handshake: Vec<u8>,
}

impl Kernel {
    /// Shakes hands with a session of `files`.
    pub(crate) fn new<F: FileSystem>(files: Arc<F>, wishes: Wishes) -> Kernel {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        set_socket_timeout(&ours, Timeout::Recv, Some(GUARD)).unwrap();
        send(&ours, &init().whole());
        let (began, beginning) = channel();
        let session = std::thread::spawn(move || {
            let session = FuseSession::begin(theirs, files, &wishes).unwrap();
            began.send((session.notifier(), session.agreement())).unwrap();
            session.run(1).unwrap();
        });
        let handshake = receive(&ours);
        let (notifier, agreement) = beginning.recv().unwrap();
        Kernel { socket: Some(ours), session: Some(session), notifier, agreement, handshake }
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().unwrap()
    }

    pub(crate) fn ask(&self, example: &Example) {
        self.send(&example.whole());
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        send(self.socket(), bytes);
    }

    pub(crate) fn receive(&self) -> Vec<u8> {
        receive(self.socket())
    }

    /// The session ends well when the kernel is gone.
    pub(crate) fn end(mut self) {
        drop(self.socket.take());
        self.session.take().unwrap().join().unwrap();
    }
}

fn send(socket: &OwnedFd, bytes: &[u8]) {
    let sent = rustix::io::writev(socket, &[IoSlice::new(bytes)]).unwrap();
    assert_eq!(sent, bytes.len());
}

fn receive(socket: &OwnedFd) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let read = rustix::io::read(socket, &mut buffer).unwrap();
    buffer.truncate(read);
    buffer
}
