//! What a file is besides its contents: attributes, times, modes, owners, kinds; and space.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags, getxattr, listxattr,
    removexattr, setxattr, statvfs, utimensat,
};
use rustix::io::Errno;

use crate::world::{World, errno, eventually, sh};

/// Invited so, root of a host may do on the volume what root may do on a local disk.
const TRUSTED: &[&str] = &["--role", "host", "--no-root-squash"];

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1 << 16];
    let len = getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn list(path: &Path) -> Vec<String> {
    let mut names = vec![0; 1 << 16];
    let len = listxattr(path, &mut names[..]).unwrap();
    let names = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

/// Extended attributes of the user's own are set, listed, replaced and removed as on a local
/// disk, keep their bytes, and are the same on another host and after a new mount.
/// Proves S1.8.
#[test]
fn extended_attributes() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let file = mount.path().join("file");
    fs::write(&file, "text").unwrap();
    fs::create_dir(mount.path().join("dir")).unwrap();
    let large: Vec<u8> = (0..20_000u32).map(|n| n.to_le_bytes()[0]).collect();
    setxattr(&file, "user.plain", b"value", XattrFlags::empty()).unwrap();
    setxattr(&file, "user.empty", b"", XattrFlags::empty()).unwrap();
    setxattr(&file, "user.large", &large, XattrFlags::empty()).unwrap();
    setxattr(&file, "user.bytes", b"\0\xff\n", XattrFlags::CREATE).unwrap();
    setxattr(mount.path().join("dir"), "user.of-dir", b"1", XattrFlags::empty()).unwrap();
    let again = setxattr(&file, "user.plain", b"x", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    let absent = setxattr(&file, "user.absent", b"x", XattrFlags::REPLACE);
    assert_eq!(absent, Err(Errno::NODATA));
    setxattr(&file, "user.plain", b"replaced", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&file, "user.absent"), Err(Errno::NODATA));
    assert_eq!(getxattr(&file, "user.large", &mut [0u8; 10][..]), Err(Errno::RANGE));
    let check = |top: &Path| {
        let file = top.join("file");
        assert_eq!(list(&file), ["user.bytes", "user.empty", "user.large", "user.plain"]);
        assert_eq!(get(&file, "user.plain").unwrap(), b"replaced");
        assert_eq!(get(&file, "user.empty").unwrap(), b"");
        assert_eq!(get(&file, "user.bytes").unwrap(), b"\0\xff\n");
        assert!(get(&file, "user.large").unwrap() == large);
        assert_eq!(get(&top.join("dir"), "user.of-dir").unwrap(), b"1");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    };
    check(mount.path());
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    check(other.path());
    let mount = world.remount(&world.a, mount);
    check(mount.path());
    removexattr(&file, "user.large").unwrap();
    assert_eq!(removexattr(&file, "user.large"), Err(Errno::NODATA));
    eventually("the other host misses it", || {
        !list(&other.path().join("file")).contains(&"user.large".into())
    });
    // Real tools see the same.
    let said = sh(mount.path(), "setfattr -n user.tool -v used dir; getfattr -d dir");
    assert!(said.contains("user.of-dir=\"1\"") && said.contains("user.tool=\"used\""), "{said}");
}

/// `user.segue.*` answer where a file is, and are not listed.
#[test]
fn attributes_that_answer_where_a_file_is() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let file = mount.path().join("file");
    fs::write(&file, "text").unwrap();
    mount.sync().unwrap();
    assert_eq!(get(&file, "user.segue.where").unwrap(), b"server");
    assert_eq!(get(&file, "user.segue.dirty").unwrap(), b"0");
    let version = get(&file, "user.segue.version").unwrap();
    assert!(!version.is_empty());
    world.a.link_down().unwrap();
    fs::write(&file, "text again").unwrap();
    assert_eq!(get(&file, "user.segue.where").unwrap(), b"host");
    assert_eq!(get(&file, "user.segue.dirty").unwrap(), b"1");
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    assert_eq!(get(&file, "user.segue.where").unwrap(), b"server");
    assert_ne!(get(&file, "user.segue.version").unwrap(), version);
    assert_eq!(list(&file), Vec::<String>::new());
}

fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) {
    let spec = |(tv_sec, tv_nsec): (i64, i64)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn times(path: &Path) -> ((i64, i64), (i64, i64)) {
    let meta = fs::symlink_metadata(path).unwrap();
    ((meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec()))
}

/// Times are kept to the nanosecond, before 1970 and after 2038, of files, directories and
/// links; setting one of the two leaves the other; ctime moves with every change.
/// Proves S1.8.
#[test]
fn times_to_the_nanosecond() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let cases = [
        ("now", (1_700_000_000, 1), (1_700_000_001, 999_999_999)),
        ("before-1970", (-1, 1), (-86_400 * 365 * 30, 123_456_789)),
        ("epoch", (0, 0), (0, 0)),
        ("after-2038", (1 << 33, 5), (13_569_465_600, 500_000_000)),
    ];
    for (name, atime, mtime) in cases {
        fs::write(mount.path().join(name), name).unwrap();
        let before = fs::metadata(mount.path().join(name)).unwrap();
        set_times(&mount.path().join(name), atime, mtime);
        let after = fs::metadata(mount.path().join(name)).unwrap();
        let ctime = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
        assert!(ctime(&after) > ctime(&before), "{name}: ctime did not move");
    }
    fs::create_dir(mount.path().join("dir")).unwrap();
    std::os::unix::fs::symlink("nowhere", mount.path().join("link")).unwrap();
    set_times(&mount.path().join("dir"), (77, 7), (-88, 8));
    set_times(&mount.path().join("link"), (99, 9), (1_000, 10));
    let check = |top: &Path| {
        for (name, atime, mtime) in cases {
            assert_eq!(times(&top.join(name)), (atime, mtime), "{name}");
        }
        assert_eq!(times(&top.join("dir")).1, (-88, 8));
        assert_eq!(times(&top.join("link")).1, (1_000, 10));
    };
    check(mount.path());
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    check(other.path());
    let mount = world.remount(&world.a, mount);
    check(mount.path());

    let now = mount.path().join("now");
    set_times(&now, (0, UTIME_OMIT), (5, 6));
    assert_eq!(times(&now), ((1_700_000_000, 1), (5, 6)));
    set_times(&now, (0, UTIME_NOW), (0, UTIME_OMIT));
    let (atime, mtime) = times(&now);
    assert!(atime.0 > 1_700_000_000 && mtime == (5, 6), "{atime:?} {mtime:?}");
}

/// Modes with all twelve bits and owners chosen by root are kept, on every host.
/// Proves S1.8.
#[test]
fn modes_and_owners() {
    let Some(world) = World::invited(TRUSTED) else { return };
    let mount = world.mount_with(&world.a, "allow-other");
    let modes = [0o000, 0o777, 0o640, 0o4755, 0o2755, 0o1644, 0o6711];
    let names = |kind: &str| modes.map(|mode| (format!("{kind}-{mode:o}"), mode));
    for (name, mode) in names("file") {
        fs::write(mount.path().join(&name), "text").unwrap();
        fs::set_permissions(mount.path().join(&name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (name, mode) in names("dir") {
        fs::create_dir(mount.path().join(&name)).unwrap();
        fs::set_permissions(mount.path().join(&name), fs::Permissions::from_mode(mode)).unwrap();
    }
    sh(mount.path(), "echo x >owned; chown 1234:5678 owned; mkdir home; chown 65533 home");
    sh(mount.path(), "ln -s nowhere link; chown -h 77:88 link; chgrp 99 file-640");
    let check = |top: &Path| {
        for (name, mode) in names("file").into_iter().chain(names("dir")) {
            let meta = fs::metadata(top.join(&name)).unwrap();
            assert_eq!(meta.permissions().mode() & 0o7777, mode, "{name}");
        }
        let owner = |name: &str| {
            let meta = fs::symlink_metadata(top.join(name)).unwrap();
            (meta.uid(), meta.gid())
        };
        assert_eq!(owner("owned"), (1234, 5678));
        assert_eq!(owner("home"), (65533, 0));
        assert_eq!(owner("link"), (77, 88));
        assert_eq!(owner("file-640"), (0, 99));
    };
    check(mount.path());
    mount.sync().unwrap();
    check(world.mount_with(&world.b, "allow-other").path());
    let mount = world.remount(&world.a, mount);
    check(mount.path());
    // A directory that passes its group on.
    sh(mount.path(), "mkdir team; chgrp 4321 team; chmod 2775 team; echo >team/file; mkdir team/d");
    let team = mount.path().join("team");
    assert_eq!(fs::metadata(team.join("file")).unwrap().gid(), 4321);
    let below = fs::metadata(team.join("d")).unwrap();
    assert_eq!((below.gid(), below.mode() & 0o7777), (4321, 0o2755));
}

/// Pipes and sockets work on the host where they are used, and are what they are on another;
/// devices are kept where root of the host is trusted.
/// Proves S1.8.
#[test]
fn pipes_sockets_and_devices() {
    let Some(world) = World::invited(TRUSTED) else { return };
    let mount = world.mount_with(&world.a, "dev");
    sh(mount.path(), "mkfifo -m 640 pipe; mknod null c 1 3; mknod disk b 7 200");
    let said = sh(mount.path(), "(seq 1000 >pipe) & cksum <pipe; wait; seq 1000 | cksum");
    let sums: Vec<_> = said.lines().collect();
    assert_eq!(sums[0], sums[1]);
    let socket = mount.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    UnixStream::connect(&socket).unwrap();
    listener.accept().unwrap();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for top in [mount.path(), other.path()] {
        let kind = |name: &str| fs::symlink_metadata(top.join(name)).unwrap();
        assert!(kind("pipe").file_type().is_fifo() && kind("pipe").mode() & 0o7777 == 0o640);
        assert!(kind("socket").file_type().is_socket());
        assert!(kind("null").file_type().is_char_device());
        assert!(kind("disk").file_type().is_block_device());
        assert_eq!(kind("null").rdev(), 0x103);
        assert_eq!(kind("disk").rdev(), 0x7c8);
    }
    // A socket that nobody of this host serves refuses.
    assert_eq!(errno(UnixStream::connect(other.path().join("socket"))), Some(111));
    fs::write(mount.path().join("null"), "gone").unwrap();
    assert_eq!(File::open(mount.path().join("null")).unwrap().metadata().unwrap().len(), 0);
}

/// df shows the server's disk: its size and what is free there, which files use up.
/// Proves S21.9.
#[test]
fn df_shows_the_servers_disk() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let server = statvfs(world.server.data()).unwrap();
    let shown = statvfs(mount.path()).unwrap();
    let total = |v: &rustix::fs::StatVfs| (v.f_blocks * v.f_frsize) >> 20;
    let free = |v: &rustix::fs::StatVfs| (v.f_bavail * v.f_frsize) >> 20;
    let said = sh(mount.path(), "df -k . ; df -ki .");
    assert!(total(&shown).abs_diff(total(&server)) <= 1, "{said}");
    // Others use that disk too.
    assert!(free(&shown).abs_diff(free(&server)) < 4 << 10, "{said}");
    assert!(free(&shown) > 0 && free(&shown) <= total(&shown));
    assert_eq!(shown.f_namemax, 255);
    assert!(shown.f_files > 0 && shown.f_files >= shown.f_ffree);
}
