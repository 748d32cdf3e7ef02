//! The mirrors mirror a directory faithfully; what is wrong there would flatter or blame what is
//! compared with them.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use segue_bed::segue::is_mounted;
use segue_bed::{Bed, Proc};

struct Floor {
    source: PathBuf,
    point: PathBuf,
    daemon: Proc,
    _bed: Bed,
}

/// The ways to mirror, each with its settings. The one over io_uring needs a setting of the
/// kernel's and is tested where `segue-bench run fuse-floor` makes it.
const MIRRORS: &[&[&str]] = &[
    &["fuse-floor"],
    &["mirror"],
    &["mirror", "--threads", "2", "--flush", "answer", "--no-killpriv"],
    &["mirror", "--passthrough", "--flush", "noflush"],
    &["mirror", "--ttl", "0"],
    &["mirror", "--no-open"],
];

fn floor(words: &[&str]) -> Option<Floor> {
    let bed = Bed::for_test()?;
    let host = bed.host("a").unwrap();
    let (source, point) = (host.mkdir("source").unwrap(), host.mkdir("mnt").unwrap());
    let mut command = host.command(env!("CARGO_BIN_EXE_segue-bench"));
    let daemon = host.spawn(command.args(words).arg(&source).arg(&point)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_mounted(&point) {
        assert!(Instant::now() < deadline, "not mounted: {words:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(Floor { source, point, daemon, _bed: bed })
}

fn on_each(test: impl Fn(&Floor)) {
    for words in MIRRORS {
        let Some(mut floor) = floor(words) else { return };
        eprintln!("{words:?}");
        test(&floor);
        assert!(floor.daemon.try_wait().unwrap().is_none(), "{words:?} ended");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_what_they_are_in_the_source() {
    on_each(|floor| {
        let (there, here) = (floor.source.join("file"), floor.point.join("file"));
        let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&here, &data).unwrap();
        assert_eq!(fs::read(&there).unwrap(), data);
        assert_eq!(fs::read(&here).unwrap(), data);

        let mut file = File::options().append(true).read(true).open(&here).unwrap();
        file.write_all(b"end").unwrap();
        file.rewind().unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), data.len() + 3);
        file.set_len(10).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(&there).unwrap(), data[..10]);

        fs::set_permissions(&here, fs::Permissions::from_mode(0o640)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(time).unwrap();
        let (a, b) = (fs::metadata(&there).unwrap(), fs::metadata(&here).unwrap());
        assert_eq!((a.mode(), a.ino(), a.len()), (b.mode(), b.ino(), b.len()));
        assert_eq!((a.modified().unwrap(), b.modified().unwrap()), (time, time));
    });
}

#[test]
fn names_are_what_they_are_in_the_source() {
    on_each(|floor| {
        let here = |name: &str| floor.point.join(name);
        assert_eq!(fs::metadata(here("new")).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(here("new"), "x").unwrap();
        fs::hard_link(here("new"), here("same")).unwrap();
        assert_eq!(fs::metadata(floor.source.join("same")).unwrap().nlink(), 2);
        symlink("new", here("link")).unwrap();
        assert_eq!(fs::read_link(here("link")).unwrap(), Path::new("new"));
        assert_eq!(fs::read(here("link")).unwrap(), b"x");

        fs::create_dir_all(here("dir/inner")).unwrap();
        fs::rename(here("new"), here("dir/inner/moved")).unwrap();
        fs::rename(here("dir"), here("renamed")).unwrap();
        assert_eq!(fs::read(here("renamed/inner/moved")).unwrap(), b"x");
        assert_eq!(names(&floor.point), names(&floor.source));
        assert_eq!(names(&floor.point), ["link", "renamed", "same"]);

        let error = fs::remove_dir(here("renamed")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir_all(here("renamed")).unwrap();
        fs::remove_file(here("same")).unwrap();
        assert_eq!(names(&floor.source), ["link"]);
    });
}

#[test]
fn a_large_directory_is_listed_whole_and_again_after_a_change() {
    on_each(|floor| {
        for number in 0..2_000 {
            fs::write(floor.source.join(format!("f{number}")), "").unwrap();
        }
        assert_eq!(names(&floor.point), names(&floor.source));
        assert_eq!(names(&floor.point).len(), 2_000);
        fs::remove_file(floor.point.join("f7")).unwrap();
        assert_eq!(names(&floor.point).len(), 1_999);
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_each(|floor| {
        let path = floor.point.join("gone");
        let file = File::options().create(true).read(true).write(true).truncate(true).open(&path);
        let file = file.unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all_at(b"still here", 0).unwrap();
        let mut buffer = [0; 10];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"still here");
        assert_eq!(names(&floor.source), Vec::<String>::new());
    });
}

#[test]
fn extended_attributes_pass_through() {
    on_each(|floor| {
        let path = floor.point.join("file");
        fs::write(&path, "").unwrap();
        rustix::fs::setxattr(&path, "user.colour", b"green", rustix::fs::XattrFlags::CREATE)
            .unwrap();
        let mut buffer = [0; 64];
        let len = rustix::fs::getxattr(floor.source.join("file"), "user.colour", &mut buffer[..])
            .unwrap();
        assert_eq!(&buffer[..len], b"green");
        let len = rustix::fs::listxattr(&path, &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..len], b"user.colour\0");
        rustix::fs::removexattr(&path, "user.colour").unwrap();
        assert!(rustix::fs::getxattr(&path, "user.colour", &mut buffer[..]).is_err());
    });
}
