//! A link between client and server that is slow, and that can be cut.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::loopback;

/// The queue in each direction, in packets; further packets are lost.
const QUEUE: usize = 32;
/// Packets that pass in each direction in a millisecond.
const RATE: usize = 2;

type Packets = mpsc::Sender<(Vec<u8>, SocketAddr)>;

/// The side towards the server; `None` while cut.
type Far = Arc<Mutex<Option<(Arc<UdpSocket>, JoinHandle<()>)>>>;

type Client = Arc<Mutex<Option<SocketAddr>>>;

pub(super) struct Relay {
    pub(super) address: SocketAddr,
    server: SocketAddr,
    down: Packets,
    far: Far,
    client: Client,
    deaf: Client,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
        self.tasks.iter().for_each(|task| task.abort());
    }
}

impl Relay {
    pub(super) async fn to(server: SocketAddr) -> Relay {
        let near = Arc::new(UdpSocket::bind(loopback(0)).await.unwrap());
        let address = near.local_addr().unwrap();
        let (up, up_queue) = mpsc::channel(QUEUE);
        let (down, down_queue) = mpsc::channel(QUEUE);
        let (far, client, deaf) = (Far::default(), Client::default(), Client::default());
        let tasks = vec![
            tokio::spawn(take_in(near.clone(), up)),
            tokio::spawn(pass_on(
                near,
                far.clone(),
                client.clone(),
                deaf.clone(),
                up_queue,
                down_queue,
            )),
        ];
        let relay = Relay { address, server, down, far, client, deaf, tasks };
        relay.mend().await;
        relay
    }

    /// Nothing reaches the server any more, and nothing comes from it.
    pub(super) fn cut(&self) {
        if let Some((_, task)) = self.far.lock().unwrap().take() {
            task.abort();
        }
    }

    /// From now on packets from and to the present client's port vanish; those of others pass.
    pub(super) fn turn_deaf(&self) {
        *self.deaf.lock().unwrap() = *self.client.lock().unwrap();
    }

    /// Packets pass again, from another port, as after a new address from DHCP.
    pub(super) async fn mend(&self) {
        let socket = Arc::new(UdpSocket::bind(loopback(0)).await.unwrap());
        socket.connect(self.server).await.unwrap();
        let task = tokio::spawn(take_in(socket.clone(), self.down.clone()));
        *self.far.lock().unwrap() = Some((socket, task));
    }
}

async fn take_in(socket: Arc<UdpSocket>, queue: Packets) {
    let mut packet = vec![0; 65536];
    loop {
        // An error says that a packet before found nobody.
        if let Ok((length, from)) = socket.recv_from(&mut packet).await {
            // A full queue loses the packet.
            let _ = queue.try_send((packet[..length].to_vec(), from));
        }
    }
}

async fn pass_on(
    near: Arc<UdpSocket>,
    far: Far,
    client: Client,
    deaf: Client,
    mut up: mpsc::Receiver<(Vec<u8>, SocketAddr)>,
    mut down: mpsc::Receiver<(Vec<u8>, SocketAddr)>,
) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    loop {
        ticks.tick().await;
        for _ in 0..RATE {
            if let Ok((packet, from)) = up.try_recv() {
                if *deaf.lock().unwrap() == Some(from) {
                    continue;
                }
                *client.lock().unwrap() = Some(from);
                let socket = far.lock().unwrap().as_ref().map(|(socket, _)| socket.clone());
                if let Some(socket) = socket {
                    let _ = socket.send(&packet).await;
                }
            }
            let (to, deaf) = (*client.lock().unwrap(), *deaf.lock().unwrap());
            if let Ok((packet, _)) = down.try_recv()
                && let Some(client) = to.filter(|client| Some(*client) != deaf)
            {
                let _ = near.send_to(&packet, client).await;
            }
        }
    }
}
