//! Another program's transfer by the kernel's TCP, beside what is measured.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::net::sockopt;

use crate::{Doing, Error, Host, Result};

const PIECE: usize = 16 << 10;

/// A transfer from one host to another that has no end. Dropping it ends it.
#[derive(Debug)]
pub struct TcpFlow {
    ends: [TcpStream; 2],
    threads: Vec<JoinHandle<()>>,
    received: Arc<AtomicU64>,
}

impl TcpFlow {
    /// Sends from `from` to `to` under the kernel's congestion control of that name.
    pub fn begin(from: &Host, to: &Host, control: &str) -> Result<TcpFlow> {
        let address = (to.addr(), 0);
        let listener = to.enter(move || TcpListener::bind(address))?.doing("listen for TCP")?;
        let address = listener.local_addr().doing("listen for TCP")?;
        let sender = from.enter(move || TcpStream::connect(address))?.doing("connect by TCP")?;
        let (receiver, _) = listener.accept().doing("accept TCP")?;
        sockopt::set_tcp_congestion(&sender, control)
            .map_err(|error| Error::Wrong(format!("TCP's control {control}: {error}")))?;
        let received = Arc::<AtomicU64>::default();
        let count = Arc::clone(&received);
        let of = |stream: &TcpStream| stream.try_clone().doing("share a TCP socket");
        let (mut sending, mut receiving) = (of(&sender)?, of(&receiver)?);
        // Both end with an error once the sockets are shut down.
        let send = thread::spawn(move || while sending.write_all(&[0; PIECE]).is_ok() {});
        let receive = thread::spawn(move || {
            let mut piece = [0; PIECE];
            while let Ok(bytes @ 1..) = receiving.read(&mut piece) {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
        Ok(TcpFlow { ends: [sender, receiver], threads: vec![send, receive], received })
    }

    /// Bytes that have arrived, without headers.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

impl Drop for TcpFlow {
    fn drop(&mut self) {
        for end in &self.ends {
            // The other side may have ended it.
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}
