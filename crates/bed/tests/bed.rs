//! What the test bed promises: hosts apart, links as bad as asked for, and nothing left behind.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use segue_bed::{Bed, Host, LinkSpec};

/// An address of `host`, of any port that is free. Whatever a test that runs beside this one
/// starts has a copy of our sockets for a moment, so one of a fixed port may still be there
/// when it is wanted again.
fn at(host: &Host) -> SocketAddr {
    (host.addr(), 0).into()
}

/// Sends `bytes` from one host to another; returns the seconds until the last has arrived.
fn transfer(from: &Host, to: &Host, bytes: usize) -> f64 {
    let listener = to.enter(|| TcpListener::bind(at(to))).unwrap().unwrap();
    let there = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
        });
        let start = Instant::now();
        let mut stream = from.enter(|| TcpStream::connect(there)).unwrap().unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        drop(stream);
        assert_eq!(receiver.join().unwrap(), bytes as u64);
        start.elapsed().as_secs_f64()
    })
}

/// Sends `count` numbered datagrams to an echo on `to`; returns each echo with its round trip.
fn pings(from: &Host, to: &Host, count: u32) -> Vec<(u32, Duration)> {
    let echo = to.enter(|| UdpSocket::bind(at(to))).unwrap().unwrap();
    let socket = from.enter(|| UdpSocket::bind(at(from))).unwrap().unwrap();
    let there = echo.local_addr().unwrap();
    for socket in [&echo, &socket] {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while let Ok((len, peer)) = echo.recv_from(&mut buffer) {
                echo.send_to(&buffer[..len], peer).unwrap();
            }
        });
        let sent: Vec<_> = (0..count)
            .map(|number| {
                let start = Instant::now();
                socket.send_to(&number.to_be_bytes(), there).unwrap();
                std::thread::sleep(Duration::from_millis(1));
                start
            })
            .collect();
        let mut buffer = [0; 4];
        let mut echoes = Vec::new();
        while socket.recv_from(&mut buffer).is_ok() {
            let number = u32::from_be_bytes(buffer);
            echoes.push((number, sent[number as usize].elapsed()));
        }
        echoes
    })
}

fn assert_rate(link: LinkSpec, rate: u64, bytes: usize) {
    let Some(bed) = Bed::for_test() else { return };
    let server = bed.host("server").unwrap();
    let client = bed.host_with("client", link).unwrap();
    for (from, to) in [(&client, &server), (&server, &client)] {
        let before = (from.tx_bytes().unwrap(), to.rx_bytes().unwrap());
        let seconds = transfer(from, to, bytes);
        let ideal = bytes as f64 / rate as f64;
        assert!(seconds > ideal / 3.0 && seconds < ideal * 3.0, "{seconds} s, ideal {ideal} s");
        let sent = from.tx_bytes().unwrap() - before.0;
        let received = to.rx_bytes().unwrap() - before.1;
        for counted in [sent, received] {
            let share = counted as f64 / bytes as f64;
            assert!((1.0..1.5).contains(&share), "counted {counted} bytes of {bytes}");
        }
    }
}

#[test]
fn a_shaped_link_gives_its_rate_both_ways_and_counts_bytes() {
    assert_rate(LinkSpec::kb_per_s(512), 512 << 10, 512 << 10);
}

/// On a link of its own each direction would be done in half the time.
#[test]
fn the_directions_of_a_shared_link_have_one_rate() {
    let Some(bed) = Bed::for_test() else { return };
    let [near, far] = ["near", "far"].map(|name| bed.host(name).unwrap());
    near.set_link(LinkSpec { is_shared: true, ..LinkSpec::kb_per_s(512) }).unwrap();
    let bytes = 256 << 10;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let up = scope.spawn(|| transfer(&near, &far, bytes));
        transfer(&far, &near, bytes);
        up.join().unwrap();
    });
    // A queue lets a burst pass at once, and no more.
    assert!(began.elapsed() > Duration::from_millis(950), "{:?}", began.elapsed());
    // And back again.
    near.set_link(LinkSpec::default()).unwrap();
    transfer(&near, &far, bytes);
    let (sent, received) = (near.tx_bytes().unwrap(), near.rx_bytes().unwrap());
    let counted = [sent, received].map(|count| count as f64 / bytes as f64);
    assert!((2.0..2.3).contains(&counted[0]) && (1.0..1.3).contains(&counted[1]), "{counted:?}");
}

#[test]
fn a_relayed_link_gives_its_rate_both_ways_and_counts_bytes() {
    let link = LinkSpec::kb_per_s(512).with_rtt(Duration::from_millis(10));
    assert_rate(link, 512 << 10, 512 << 10);
}

#[test]
fn a_trace_gives_its_mean_rate() {
    let step = Duration::from_millis(100);
    let trace = vec![(step, 1 << 20), (step, 256 << 10)];
    assert_rate(LinkSpec { trace, ..LinkSpec::default() }, 640 << 10, 640 << 10);
}

#[test]
fn a_delay_is_added_to_every_round_trip() {
    let Some(bed) = Bed::for_test() else { return };
    let rtt = Duration::from_millis(60);
    let server = bed.host("server").unwrap();
    let client = bed.host("client").unwrap();
    let quick = pings(&client, &server, 20);
    assert_eq!(quick.len(), 20);

    client.set_link(LinkSpec::default().with_rtt(rtt)).unwrap();
    let slow = pings(&client, &server, 20);
    assert_eq!(slow.len(), 20);
    assert!(slow.iter().all(|(_, time)| *time >= rtt), "{slow:?}");
}

#[test]
fn loss_loses_about_its_share() {
    let Some(bed) = Bed::for_test() else { return };
    let server = bed.host("server").unwrap();
    let client = bed.host_with("client", LinkSpec { loss: 0.2, ..LinkSpec::default() }).unwrap();
    // Lost on the way there or back: 36 of 100.
    let echoes = pings(&client, &server, 500).len();
    assert!((200..440).contains(&echoes), "{echoes} of 500 came back");
}

#[test]
fn reordering_lets_later_packets_overtake() {
    let Some(bed) = Bed::for_test() else { return };
    let server = bed.host("server").unwrap();
    let client = bed.host_with("client", LinkSpec { reorder: 0.1, ..LinkSpec::default() }).unwrap();
    let echoes = pings(&client, &server, 200);
    assert_eq!(echoes.len(), 200);
    assert!(echoes.windows(2).any(|pair| pair[0].0 > pair[1].0));
}

#[test]
fn a_link_that_is_down_carries_nothing_and_comes_back() {
    let Some(bed) = Bed::for_test() else { return };
    let server = bed.host("server").unwrap();
    let client = bed.host("client").unwrap();
    for link in [LinkSpec::default(), LinkSpec::kb_per_s(1024).with_rtt(Duration::from_millis(4))] {
        client.set_link(link).unwrap();
        client.link_down().unwrap();
        assert_eq!(pings(&client, &server, 5), []);
        assert_eq!(pings(&server, &client, 5), []);
        client.link_up().unwrap();
        assert_eq!(pings(&client, &server, 5).len(), 5);
    }
}

#[test]
fn a_connection_survives_every_change_of_its_link() {
    let Some(bed) = Bed::for_test() else { return };
    let server = bed.host("server").unwrap();
    let client = bed.host("client").unwrap();
    let listener = server.enter(|| TcpListener::bind(at(&server))).unwrap().unwrap();
    let there = listener.local_addr().unwrap();
    let mut near = client.enter(|| TcpStream::connect(there)).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let delayed = LinkSpec::default().with_rtt(Duration::from_millis(10));
    for link in [LinkSpec::kb_per_s(256), delayed, LinkSpec::kb_per_s(1024), LinkSpec::default()] {
        client.set_link(link).unwrap();
        near.write_all(b"ping").unwrap();
        let mut buffer = [0; 4];
        far.read_exact(&mut buffer).unwrap();
        far.write_all(b"pong").unwrap();
        near.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"pong");
    }
}

#[test]
fn a_program_runs_in_its_host_and_its_home() {
    let Some(bed) = Bed::for_test() else { return };
    let host = bed.host("a").unwrap();
    let said = host.run("sh", &["-c", "echo $HOME $XDG_STATE_HOME; ip -4 -o addr show dev eth0"]);
    let said = said.unwrap();
    assert!(said.starts_with(&format!("{}\n", host.home().display())), "{said}");
    assert!(said.contains(&host.addr().to_string()), "{said}");

    let mut sleeper = host.spawn(host.command("sleep").arg("1000")).unwrap();
    let pid = sleeper.pid();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    sleeper.kill9().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

/// Runs one test of this program as nobody, from where nobody may read it.
fn two_beds_as_nobody(skip: &str) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command.args(["--exact", "two_beds_do_not_meet", "--nocapture"]).env("SEGUE_SKIP_E2E", skip);
    let output = command.current_dir("/").output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn without_root_a_test_fails_loudly_unless_it_may_be_skipped() {
    if Bed::for_test().is_none() {
        return;
    }
    let (passed, said) = two_beds_as_nobody("0");
    assert!(!passed && said.contains("SKIPPED: no test bed here: needs root"), "{said}");
    let (passed, said) = two_beds_as_nobody("1");
    assert!(passed && said.contains("SKIPPED: no test bed here: needs root"), "{said}");
}

#[test]
fn two_beds_do_not_meet() {
    let (Some(one), Some(two)) = (Bed::for_test(), Bed::for_test()) else { return };
    let (a, b) = (one.host("a").unwrap(), two.host("a").unwrap());
    assert_eq!(a.addr(), b.addr());
    assert_ne!(a.home(), b.home());
    drop(one);
    b.run("true", &[]).unwrap();
}

/// The power of the tests' machine was cut, and a later process of the same number found beds.
#[test]
fn the_name_of_a_bed_that_a_stopped_machine_left_is_not_taken() {
    let Some(first) = Bed::for_test() else { return };
    let name_of = |bed: &Bed| bed.dir().file_name().unwrap().to_str().unwrap().to_owned();
    let first_name = name_of(&first);
    let (all, number) = first_name.rsplit_once('-').unwrap();
    let after = |n: u32| format!("{all}-{}", number.parse::<u32>().unwrap() + n);
    let dir = first.dir().with_file_name(after(1));
    fs::create_dir(&dir).unwrap();
    let switch = format!("{}-switch", after(2));
    let ip = |what: &str| {
        assert!(Command::new("ip").args(["netns", what, &switch]).status().unwrap().success());
    };
    ip("add");
    let bed = Bed::new().map(|bed| name_of(&bed));
    ip("delete");
    // Fails if it is gone with the bed.
    fs::remove_dir(&dir).unwrap();
    let name = bed.unwrap();
    assert!(name != after(1) && name != after(2), "{name}");
}

/// A bed had removed the control socket of another bed's mount, to which a program of it had a
/// connection.
#[test]
fn a_bed_leaves_the_sockets_of_others() {
    let (Some(one), Some(two)) = (Bed::for_test(), Bed::for_test()) else { return };
    let (a, b) = (one.host("a").unwrap(), two.host("a").unwrap());
    let socket = one.dir().with_extension("sock");
    let listener = a.enter(|| UnixListener::bind(&socket)).unwrap().unwrap();
    let _connection = b.enter(|| UnixStream::connect(&socket)).unwrap().unwrap();
    let _accepted = listener.accept().unwrap();
    drop((b, two));
    assert!(socket.exists());
    drop((a, one));
    assert!(!socket.exists());
}

/// What a bed has on the machine: see [`Traces::left`].
struct Traces {
    bed: PathBuf,
    pids: Vec<String>,
}

impl Traces {
    /// Fills a bed with what is hard to remove: a daemon of another session that ignores
    /// signals, mounts upon each other, and a relay.
    #[allow(clippy::zombie_processes)] // The bed must end them, not this test.
    fn make(bed: &Bed) -> Traces {
        let host = bed.host("a").unwrap();
        host.set_link(LinkSpec::default().with_rtt(Duration::from_millis(1))).unwrap();
        let script = "trap '' TERM HUP INT; echo $$; exec >&-; while :; do sleep 1; done";
        let mut daemon = host.command("setsid");
        let mut child = daemon.args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        for name in ["mnt", "mnt/inner", "with space"] {
            let point = host.mkdir(name).unwrap();
            host.run("mount", &["-t", "tmpfs", "none", point.to_str().unwrap()]).unwrap();
            fs::write(point.join("file"), "x").unwrap();
        }
        // A program that keeps the mount busy and listens outside of the bed's directory, as
        // Segue does in /run; nobody holds its handle.
        let socket = bed.dir().with_extension("sock");
        let mut busy = host.command(std::env::current_exe().unwrap());
        busy.args(["--exact", "listener", "--ignored"]).env("SOCKET", &socket);
        let busy = busy.current_dir(host.dir().join("mnt")).stdout(Stdio::null()).spawn().unwrap();
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let pids = vec![pid.trim().to_owned(), busy.id().to_string()];
        Traces { bed: bed.dir().to_path_buf(), pids }
    }

    /// What is still there of it.
    fn left(&self) -> Vec<String> {
        let name = self.bed.file_name().unwrap().to_str().unwrap();
        let namespaces = fs::read_dir("/run/netns").unwrap().map(|entry| entry.unwrap().path());
        let namespaces = namespaces.map(|path| path.display().to_string());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().map(str::to_owned).collect::<Vec<_>>();
        let files = [self.bed.clone(), self.bed.with_extension("sock")];
        let files = files.iter().filter(|file| file.exists()).map(|f| f.display().to_string());
        let processes = self.pids.iter().filter(|pid| runs(pid)).cloned();
        let named = namespaces.chain(mounts).filter(|what| {
            what.contains(&format!("{name}-")) || what.contains(&format!("{name}/"))
        });
        named.chain(files).chain(processes).collect()
    }
}

/// A zombie does not run: it waits for a parent, here the test itself.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[test]
fn a_dropped_bed_leaves_nothing() {
    let Some(bed) = Bed::for_test() else { return };
    let traces = Traces::make(&bed);
    assert!(traces.left().len() >= 8, "{:?}", traces.left());
    drop(bed);
    assert_eq!(traces.left(), Vec::<String>::new());
}

#[test]
fn an_ended_bed_has_its_files_and_nothing_that_runs() {
    let Some(mut bed) = Bed::for_test() else { return };
    let traces = Traces::make(&bed);
    let file = bed.dir().join("file");
    fs::write(&file, "x").unwrap();
    bed.end_all().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(file.exists() && !traces.pids.iter().any(|pid| runs(pid)));
    assert!(!mounts.contains(&format!("{}/", traces.bed.display())), "{mounts}");
    drop(bed);
    assert_eq!(traces.left(), Vec::<String>::new());
}

#[test]
fn a_panicking_test_leaves_nothing() {
    if Bed::for_test().is_none() {
        return;
    }
    let (sender, traces) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let bed = Bed::new().unwrap();
        sender.send(Traces::make(&bed)).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(traces.recv().unwrap().left(), Vec::<String>::new());
}

/// Not a test: what [`Traces::make`] starts.
#[test]
#[ignore = "a part of other tests"]
fn listener() {
    let _listener = UnixListener::bind(std::env::var("SOCKET").unwrap()).unwrap();
    std::thread::sleep(Duration::from_secs(1000));
}

/// Not a test: the process that the next test kills.
#[test]
#[ignore = "a part of other tests"]
fn victim() {
    let bed = Bed::new().unwrap();
    let traces = Traces::make(&bed);
    println!("bed {} {}", traces.bed.display(), traces.pids.join(" "));
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn a_killed_owner_leaves_nothing() {
    if Bed::for_test().is_none() {
        return;
    }
    for signal in ["-INT", "-KILL"] {
        // What a shell starts in the background ignores SIGINT, and so would all of this.
        let mut victim = Command::new("env");
        victim.arg("--default-signal=INT").arg(std::env::current_exe().unwrap());
        victim.args(["--exact", "victim", "--ignored", "--nocapture", "--test-threads=1"]);
        let mut victim = victim.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let line = lines.map(Result::unwrap).find(|line| line.contains("bed /")).unwrap();
        let mut words = line.split("bed ").nth(1).unwrap().split(' ').map(str::to_owned);
        let traces = Traces { bed: words.next().unwrap().into(), pids: words.collect() };
        assert!(traces.left().len() >= 8, "{:?}", traces.left());

        let pid = victim.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        victim.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !traces.left().is_empty() {
            assert!(Instant::now() < deadline, "{signal} leaves {:?}", traces.left());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
