//! Enrolled hosts, and servers, that do their worst over a real connection.
//!
//! Who is attacked is a process of its own: this test's program once more, as `victim`. Whatever
//! comes, it takes bounded memory, panics nowhere, and answers others meanwhile. Each attack is
//! tried by a host on a server and by a server on a host: both sides may call, so most attacks are
//! the same. `SEGUE_TEST_LONG=1` makes each of them ten times as long.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quinn::{Connection, Endpoint, RecvStream, SendStream, ServerConfig, VarInt};
use segue_core::wire::MESSAGE_MAX;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::hostile::{framed, packed, raw};
use super::mutation::mutated;
use super::*;
use crate::tls;

/// Where the victim finds its world, and whom it calls.
const DIRECTORY: &str = "SEGUE_TEST_VICTIM";
const CALLED: &str = "SEGUE_TEST_CALLED";
/// The victim prints this before its address.
const SERVING: &str = "victim serves at ";
/// How long one attack goes on.
const ATTACK: Duration = Duration::from_millis(1_000);
/// Bytes that one connection may take at most: 40 MiB of bodies on their way, which are up to twice
/// that where they are kept by packets, and the buffers of its answers. With windows of ten times
/// that it was 165 MiB within the second.
const MEMORY_MAX: u64 = 128 << 20;
/// The same where messages are announced and do not come: 32 MiB of long ones, 16 MiB of short
/// ones, and what the allocator keeps of it. A minute took 203 MiB after half of it, and no more
/// after that.
const ANNOUNCED_MAX: u64 = 256 << 20;
/// Calls that the victim makes at once where it is the host.
const CALLERS: usize = 64;
/// A body that is more than a stream's buffers hold.
const BODY: usize = 1 << 20;

/// The attack.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Attack {
    /// Calls with bodies, as many as may be, of whose answers nothing is read.
    ReadsNothing,
    /// Heads that come byte by byte, and stop before their end.
    SlowHeads,
    /// Messages and bodies that are longer or shorter than was said, or never come.
    Lies,
    /// Datagrams as fast as they go: stamps with absurd times, and other bytes.
    Datagrams,
    /// Streams that end in the middle of anything, by either side.
    Resets,
    /// Heads and messages that are almost right.
    Garbage,
    /// Answers that are none, to calls of the victim's own.
    FalseAnswers,
}

const ATTACKS: [Attack; 7] = [
    Attack::ReadsNothing,
    Attack::SlowHeads,
    Attack::Lies,
    Attack::Datagrams,
    Attack::Resets,
    Attack::Garbage,
    Attack::FalseAnswers,
];

/// For how long each.
fn time() -> Duration {
    let is_long = std::env::var_os("SEGUE_TEST_LONG").is_some();
    if is_long { 10 * ATTACK } else { ATTACK }
}

impl Attack {
    /// Goes on for its time, and until it was `enough`. Whatever fails, the other side has defended
    /// itself.
    async fn run(self, connection: &Connection, enough: impl Future<Output = ()>) {
        let attack = async {
            match self {
                Attack::ReadsNothing => read_nothing(connection).await,
                Attack::SlowHeads => slow_heads(connection).await,
                Attack::Lies => lies(connection).await,
                Attack::Datagrams => datagrams(connection).await,
                Attack::Resets => resets(connection).await,
                Attack::Garbage => garbage(connection).await,
                Attack::FalseAnswers => false_answers(connection).await,
            }
        };
        let end = async {
            sleep(time()).await;
            enough.await;
        };
        tokio::select! {
            () = attack => {}
            _ = timeout(PATIENCE, end) => {}
        }
    }
}

/// A request that is answered.
fn question() -> Vec<u8> {
    framed(0, &getattr(5).encode().unwrap())
}

/// The beginning of a message that says it is so long.
fn announced(length: usize, class: u8) -> Vec<u8> {
    [&u32::try_from(length).unwrap().to_le_bytes()[..], &[class]].concat()
}

type Stream = (SendStream, RecvStream);

async fn read_nothing(connection: &Connection) {
    let mut held: Vec<tokio::task::JoinHandle<Stream>> = Vec::new();
    while let Ok((mut send, receive)) = connection.open_bi().await {
        held.push(tokio::spawn(async move {
            let _ = send.write_all(&question()).await;
            let _ = send.write_all(&vec![7; BODY]).await;
            let _ = send.finish();
            (send, receive)
        }));
    }
}

async fn slow_heads(connection: &Connection) {
    let mut held = Vec::new();
    for _ in 0..200 {
        let Ok(stream) = connection.open_bi().await else { return };
        held.push(stream);
    }
    let whole = [announced(MESSAGE_MAX, 0), vec![0; 100]].concat();
    for byte in whole {
        for (send, _) in &mut held {
            let _ = send.write_all(&[byte]).await;
        }
        sleep(Duration::from_millis(2)).await;
    }
    sleep(time()).await;
}

async fn lies(connection: &Connection) {
    let mut held = Vec::new();
    let question = question();
    for round in 0.. {
        let Ok((mut send, receive)) = connection.open_bi().await else { return };
        let (bytes, is_whole) = match round % 8 {
            // The longest message there is, of which nothing comes, and almost all of it.
            0 => (announced(MESSAGE_MAX, 0), false),
            1 => ([announced(MESSAGE_MAX, 2), vec![1; BODY]].concat(), false),
            // The longest that needs no share of the memory for long ones.
            2 => (announced(64 << 10, 0), false),
            // Longer than said: the rest is a body that nobody expects.
            3 => ([question.clone(), vec![9; BODY]].concat(), true),
            // Shorter than said.
            4 => (question[..question.len() - 1].to_vec(), true),
            // The longest that is compressed, of which a little comes, and zeros that are no
            // message.
            5 => (packed(u32::try_from(MESSAGE_MAX).unwrap(), 1 << 20), false),
            6 => (packed(4 << 20, 4 << 20), true),
            _ => (announced(u32::MAX as usize, 0), false),
        };
        let _ = timeout(Duration::from_millis(20), send.write_all(&bytes)).await;
        if is_whole {
            let _ = send.finish();
        }
        held.push((send, receive));
        // So that streams are free, and all kinds come.
        if held.len() > 250 {
            held.drain(..100);
        }
    }
}

async fn datagrams(connection: &Connection) {
    let mut runner = TestRunner::deterministic();
    let word = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let stamps = (0..=3_u8, prop::collection::vec(word, 0..6));
    let longest = connection.max_datagram_size().unwrap_or(0);
    for round in 0.. {
        let (flags, words) = stamps.new_tree(&mut runner).unwrap().current();
        let mut bytes = vec![flags];
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        match round % 8 {
            0 => bytes.clear(),
            1 => bytes.resize(longest, 0xff),
            _ => {}
        }
        if connection.send_datagram_wait(bytes.into()).await.is_err() {
            return;
        }
        // While QUIC takes them faster than they are made nothing waits, and nobody else had a
        // turn.
        yield_now().await;
    }
}

async fn resets(connection: &Connection) {
    let mut runner = TestRunner::deterministic();
    let whole = [question(), vec![3; 20_000]].concat();
    let strategy = (0..=whole.len(), 0..6_u8, any::<u32>());
    let mut held = Vec::new();
    while let Ok((mut send, mut receive)) = connection.open_bi().await {
        let (length, end, code) = strategy.new_tree(&mut runner).unwrap().current();
        let _ = timeout(Duration::from_millis(20), send.write_all(&whole[..length])).await;
        let code = VarInt::from_u32(code);
        if end & 1 == 0 {
            let _ = send.reset(code);
        }
        if end & 2 == 0 {
            let _ = receive.stop(code);
        }
        yield_now().await;
        if end == 5 && held.len() < 100 {
            held.push((send, receive));
        }
    }
}

async fn garbage(connection: &Connection) {
    let mut runner = TestRunner::deterministic();
    let examples = vec![question(), framed(2, &[0; 400]), framed(5, &[12; 30]), packed(4000, 4000)];
    let strategy = mutated(examples);
    while let Ok((mut send, mut receive)) = connection.open_bi().await {
        let bytes = strategy.new_tree(&mut runner).unwrap().current();
        let _ = send.write_all(&bytes).await;
        let _ = send.finish();
        let _ = timeout(Duration::from_millis(5), receive.read_to_end(BODY)).await;
    }
}

/// Beside its own calls, so that the victim has to answer some as well.
async fn false_answers(connection: &Connection) {
    let answer = framed(0, &answer("5").encode().unwrap());
    let mut held = Vec::new();
    for round in 0.. {
        let Ok((mut send, mut receive)) = connection.accept_bi().await else { return };
        let bytes = match round % 7 {
            0 => announced(MESSAGE_MAX, 0),
            1 => [answer.clone(), vec![1; 4 * BODY]].concat(),
            2 => answer[..answer.len() - 1].to_vec(),
            3 => framed(0, b"\xff\xff garbage"),
            4 => announced(u32::MAX as usize, 255),
            5 => framed(0, &question()),
            _ => Vec::new(),
        };
        tokio::spawn(async move {
            let _ = send.write_all(&bytes).await;
            match round % 3 {
                0 => drop(send.finish()),
                1 => drop(send.reset(VarInt::from_u32(round))),
                // It is waited for.
                _ => sleep(time()).await,
            }
        });
        if round % 5 == 0 {
            let _ = receive.stop(VarInt::from_u32(1));
        } else {
            held.push(receive);
            held.drain(..held.len().saturating_sub(100));
        }
    }
}

/// The attacked process.
struct Victim {
    child: Child,
    address: SocketAddr,
    /// Its memory before anything came.
    before: u64,
}

impl Victim {
    /// Starts it; it calls `called` for as long as it lives, if there is one.
    fn start(world: &World, called: Option<SocketAddr>) -> Victim {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "tests::attacks::victim", "--ignored", "--nocapture"]);
        command.env(DIRECTORY, &world.directory).stdout(Stdio::piped());
        if let Some(called) = called {
            command.env(CALLED, called.to_string());
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|line| Some(line.split_once(SERVING)?.1.parse().unwrap()));
        let address = address.expect("the victim serves");
        let before = memory(child.id(), "VmRSS:");
        Victim { child, address, before }
    }

    /// It lives, and has not taken more memory than it may.
    fn check(&mut self, attack: Attack) {
        assert_eq!(self.child.try_wait().unwrap(), None, "{attack:?}: the victim has ended");
        let taken = memory(self.child.id(), "VmHWM:").saturating_sub(self.before);
        eprintln!("{attack:?}: {} MiB", taken >> 20);
        let most = if attack == Attack::Lies { ANNOUNCED_MAX } else { MEMORY_MAX };
        assert!(taken <= most, "{attack:?}: {} MiB", taken >> 20);
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes, as the kernel counts them.
fn memory(process: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// Not a test by itself: the process that is attacked.
#[test]
#[ignore = "attacks run it"]
fn victim() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    // A panic of any task ends the process, and the test looks for that.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
    let world = World::at(Path::new(&directory));
    let called = std::env::var(CALLED).ok().map(|address| address.parse().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let listener = world.listen();
        println!("{SERVING}{}", listener.local_address());
        if let Some(called) = called {
            let peer = world.dial(called).await;
            tokio::spawn(echo(peer.clone()));
            (0..CALLERS).for_each(|_| drop(tokio::spawn(call_for_ever(peer.clone()))));
        }
        while let Some(peer) = listener.accept().await {
            tokio::spawn(echo(peer));
        }
    });
}

/// Calls with a body, and reads and ignores the answer.
async fn call_for_ever(peer: Peer) {
    loop {
        let body = Body::from(vec![1; 100_000]);
        let call = async {
            let response = peer.call(&getattr(5), body).await?;
            let _ = response.body.collect(BODY).await;
            Ok(())
        };
        match timeout(Duration::from_millis(500), call).await {
            Ok(Err(CallError::Lost(_))) => return,
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Somebody else's calls, one after the other until `is_over`: how many were answered.
async fn others(world: &World, address: SocketAddr, is_over: &AtomicBool, count: &AtomicU64) {
    let peer = world.dial(address).await;
    while !is_over.load(Relaxed) {
        let response = timeout(PATIENCE, peer.call(&getattr(6), Body::Empty)).await;
        let response = response.expect("others wait for ever").expect("others are not answered");
        assert_eq!(response.reply, answer("6"));
        count.fetch_add(1, Relaxed);
    }
}

/// Attacks over `connection`; others are answered before, meanwhile and after.
async fn attacked(world: &World, victim: &mut Victim, attack: Attack, connection: &Connection) {
    let (is_over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let attacking = async {
        while count.load(Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let (before, began) = (count.load(Relaxed), Instant::now());
        let enough = async {
            while count.load(Relaxed) <= before {
                sleep(Duration::from_millis(1)).await;
            }
        };
        attack.run(connection, enough).await;
        let during = count.load(Relaxed);
        while count.load(Relaxed) == during {
            sleep(Duration::from_millis(1)).await;
        }
        is_over.store(true, Relaxed);
        // One that was turned away at once attacked nobody.
        during > before || began.elapsed() < time()
    };
    let (is_answered, ()) =
        tokio::join!(attacking, others(world, victim.address, &is_over, &count));
    assert!(is_answered, "{attack:?}: others are not answered meanwhile");
    victim.check(attack);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_bears_hosts_that_do_their_worst() {
    let world = World::new();
    // A victim that is the server calls nobody: there is nothing to answer.
    for attack in ATTACKS.into_iter().filter(|attack| *attack != Attack::FalseAnswers) {
        let mut victim = Victim::start(&world, None);
        let hostile = raw(&world, victim.address).await;
        attacked(&world, &mut victim, attack, &hostile).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_bears_servers_that_do_their_worst() {
    let world = World::new();
    for attack in ATTACKS {
        let config = ServerConfig::with_crypto(Arc::new(tls::server(&world.authority).unwrap()));
        let endpoint = Endpoint::server(config, loopback(0)).unwrap();
        let mut victim = Victim::start(&world, Some(endpoint.local_addr().unwrap()));
        let hostile = endpoint.accept().await.unwrap().await.unwrap();
        attacked(&world, &mut victim, attack, &hostile).await;
    }
}
