//! What every call that takes a path says of the path: one table of calls, walked for each rule.

use std::ffi::CString;

use rustix::fs::{self, Access, AtFlags, CWD, OFlags as O, StatxFlags, XattrFlags};
use rustix::io::Errno;

use crate::call::{chmod, chown, create, lchown, lutimens, mkdir, mkfifo, open, readlink, utimens};
use crate::expect::{Failure, Outcome, fails, holds, refused, same, works};
use crate::place::{ALICE, Place};
use crate::sys;

cases! { "paths"
    anyone: a_missing_component_is_enoent, a_missing_name_is_enoent, an_empty_path_is_enoent,
        a_file_is_no_directory, a_name_of_255_bytes, a_name_of_256_bytes_is_enametoolong,
        a_path_of_4095_bytes, a_path_of_4096_bytes_is_enametoolong, loops_are_eloop,
        forty_links_and_no_more, no_path_at_all_is_efault, every_byte_but_two_makes_a_name,
        names_need_not_be_utf8, case_matters, normal_forms_are_different_names,
        slashes_at_the_end, dots_and_double_slashes, relative_to_a_descriptor,
        relative_to_a_file_is_enotdir;
    root: search_permission_is_needed, no_write_permission_is_eacces;
}

type Call = (&'static str, fn(&[u8]) -> Result<(), Errno>);

/// Calls on what is there; the file `other` is there too.
const ON_OLD: &[Call] = &[
    ("open", |path| open(path, O::RDONLY).map(drop)),
    ("open for path", |path| open(path, O::PATH).map(drop)),
    ("stat", |path| fs::stat(path).map(drop)),
    ("lstat", |path| fs::lstat(path).map(drop)),
    ("statx", |path| fs::statx(CWD, path, AtFlags::empty(), StatxFlags::ALL).map(drop)),
    ("access", |path| fs::access(path, Access::EXISTS)),
    ("chmod", |path| chmod(path, 0o644)),
    ("chown", |path| chown(path, None, None)),
    ("lchown", |path| lchown(path, None, None)),
    ("utimensat", |path| utimens(path, (1, 0), (1, 0))),
    ("lutimens", |path| lutimens(path, (1, 0), (1, 0))),
    ("truncate", |path| sys::truncate(&terminated(path), 0)),
    ("unlink", |path| fs::unlink(path)),
    ("rmdir", |path| fs::rmdir(path)),
    ("readlink", |path| readlink(path).map(drop)),
    ("link from", |path| fs::link(path, "new")),
    ("rename from", |path| fs::rename(path, "new")),
    ("chdir", |path| rustix::process::chdir(path)),
    ("statfs", |path| fs::statfs(path).map(drop)),
    ("statvfs", |path| fs::statvfs(path).map(drop)),
    ("getxattr", |path| fs::getxattr_query(path, "user.a").map(drop)),
    ("listxattr", |path| fs::listxattr_query(path).map(drop)),
    ("setxattr", |path| fs::setxattr(path, "user.a", b"", XattrFlags::empty())),
    ("removexattr", |path| fs::removexattr(path, "user.a")),
];

/// Calls that make a name.
const ON_NEW: &[Call] = &[
    ("creat", |path| open(path, O::CREATE | O::WRONLY).map(drop)),
    ("create exclusively", |path| create(path, 0o644).map(drop)),
    ("mkdir", |path| mkdir(path, 0o755)),
    ("mkfifo", |path| mkfifo(path, 0o644)),
    ("symlink", |path| fs::symlink("other", path)),
    ("link to", |path| fs::link("other", path)),
    ("rename to", |path| fs::rename("other", path)),
];

fn terminated(path: &[u8]) -> CString {
    CString::new(path).unwrap_or_default()
}

/// All calls of `tables` on `path` fail with one of `wanted`.
#[track_caller]
fn all_refuse(tables: &[&[Call]], path: &[u8], wanted: &[Errno]) -> Outcome {
    for (name, call) in tables.iter().copied().flatten() {
        let path_shown = String::from_utf8_lossy(&path[..path.len().min(20)]);
        refused(call(path), &format!("{name} of {path_shown}"), wanted)?;
    }
    Ok(())
}

fn a_missing_component_is_enoent(p: &Place) -> Outcome {
    p.file("other", "")?;
    all_refuse(&[ON_OLD, ON_NEW], b"missing/name", &[Errno::NOENT])
}

fn a_missing_name_is_enoent(p: &Place) -> Outcome {
    p.dir("d")?;
    all_refuse(&[ON_OLD], b"missing", &[Errno::NOENT])?;
    all_refuse(&[ON_OLD], b"d/missing", &[Errno::NOENT])
}

fn an_empty_path_is_enoent(p: &Place) -> Outcome {
    p.file("other", "")?;
    all_refuse(&[ON_OLD, ON_NEW], b"", &[Errno::NOENT])
}

fn a_file_is_no_directory(p: &Place) -> Outcome {
    p.file("other", "")?;
    p.file("file", "")?;
    p.fifo("fifo")?;
    for path in [&b"file/name"[..], b"fifo/name", b"file/..", b"file/."] {
        all_refuse(&[ON_OLD], path, &[Errno::NOTDIR])?;
    }
    all_refuse(&[ON_NEW], b"file/name", &[Errno::NOTDIR])
}

fn a_name_of_255_bytes(p: &Place) -> Outcome {
    let long = "n".repeat(255);
    works!(create(long.as_str(), 0o644))?;
    same!(p.names(".")?, vec![long.clone()])?;
    let other = "\u{e9}".repeat(127);
    works!(fs::rename(long.as_str(), other.as_str()))?;
    works!(mkdir(long.as_str(), 0o755))?;
    works!(fs::link(other.as_str(), format!("{long}/{}", "m".repeat(255))))?;
    Ok(works!(fs::symlink("target", "s".repeat(255)))?)
}

fn a_name_of_256_bytes_is_enametoolong(p: &Place) -> Outcome {
    p.file("other", "")?;
    let long = [b'n'; 256];
    all_refuse(&[ON_OLD, ON_NEW], &long, &[Errno::NAMETOOLONG])?;
    all_refuse(&[ON_OLD, ON_NEW], &[&long[..], b"/name"].concat(), &[Errno::NAMETOOLONG])
}

/// `./././..name`: as many bytes as asked for.
fn padded(name: &str, bytes: usize) -> Vec<u8> {
    let mut path = b"./".repeat((bytes - name.len()) / 2);
    path.extend(std::iter::repeat_n(b'/', (bytes - name.len()) % 2));
    path.extend_from_slice(name.as_bytes());
    path
}

fn a_path_of_4095_bytes(p: &Place) -> Outcome {
    p.file("name", "here")?;
    let path = padded("name", 4095);
    same!(path.len(), 4095)?;
    works!(open(path, O::RDONLY))?;
    works!(fs::symlink(padded("name", 4095), "link"))?;
    same!(readlink("link")?.len(), 4095)?;
    same!(p.stat("link")?.st_size, 4095)?;
    p.holds("link", "here")
}

fn a_path_of_4096_bytes_is_enametoolong(p: &Place) -> Outcome {
    p.file("other", "")?;
    all_refuse(&[ON_OLD, ON_NEW], &padded("name", 4096), &[Errno::NAMETOOLONG])?;
    fails!(fs::symlink(padded("name", 4096), "link"), NAMETOOLONG)
}

fn loops_are_eloop(p: &Place) -> Outcome {
    p.file("other", "")?;
    p.symlink("two", "one")?;
    p.symlink("one", "two")?;
    p.symlink("self", "self")?;
    for path in [&b"one/name"[..], b"self/name"] {
        all_refuse(&[ON_OLD, ON_NEW], path, &[Errno::LOOP])?;
    }
    fails!(open("self", O::RDONLY), LOOP)?;
    fails!(fs::stat("one"), LOOP)?;
    fails!(open("one", O::CREATE | O::WRONLY), LOOP)?;
    fails!(chmod("self", 0o600), LOOP)
}

fn forty_links_and_no_more(p: &Place) -> Outcome {
    p.file("link0", "end")?;
    for depth in 1..=41 {
        p.symlink(&format!("link{}", depth - 1), &format!("link{depth}"))?;
    }
    p.holds("link40", "end")?;
    fails!(open("link41", O::RDONLY), LOOP)
}

fn no_path_at_all_is_efault(_: &Place) -> Outcome {
    let calls = [
        ("open", libc::SYS_open),
        ("stat", libc::SYS_stat),
        ("mkdir", libc::SYS_mkdir),
        ("rmdir", libc::SYS_rmdir),
        ("unlink", libc::SYS_unlink),
        ("truncate", libc::SYS_truncate),
        ("chmod", libc::SYS_chmod),
        ("chown", libc::SYS_chown),
        ("chdir", libc::SYS_chdir),
        ("mknod", libc::SYS_mknod),
    ];
    for (name, number) in calls {
        refused(sys::call_with_no_path(number), name, &[Errno::FAULT])?;
    }
    Ok(())
}

/// Every byte makes a name, except `/` and NUL; two of each, so that `.` is none of them.
fn every_byte_but_two_makes_a_name(_: &Place) -> Outcome {
    let names: Vec<Vec<u8>> =
        (1..=255).filter(|&byte| byte != b'/').map(|byte| vec![b'x', byte]).collect();
    for name in &names {
        works!(create(&name[..], 0o644))?;
        works!(fs::stat(&name[..]))?;
    }
    same!(listed(".")?, names.clone())?;
    for name in &names {
        works!(fs::unlink(&name[..]))?;
    }
    same!(listed(".")?, Vec::<Vec<u8>>::new())
}

fn listed(dir: &str) -> Result<Vec<Vec<u8>>, Failure> {
    use std::os::unix::ffi::OsStringExt;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        names.push(entry?.file_name().into_vec());
    }
    names.sort();
    Ok(names)
}

fn names_need_not_be_utf8(_: &Place) -> Outcome {
    let names: [&[u8]; 5] = [b"\n", b"\xc3", b"\xc3\x28", b"\xed\xa0\x80", b"\xff\xfe"];
    for name in names {
        works!(mkdir(name, 0o755))?;
        works!(fs::symlink(name, [name, b"link"].concat()))?;
        same!(readlink([name, b"link"].concat())?, name.to_vec())?;
        works!(fs::rename(name, [name, b"moved"].concat()))?;
        fails!(fs::stat(name), NOENT)?;
    }
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    for name in names {
        wanted.push([name, b"link"].concat());
        wanted.push([name, b"moved"].concat());
    }
    wanted.sort();
    same!(listed(".")?, wanted)
}

fn case_matters(p: &Place) -> Outcome {
    p.file("name", "small")?;
    fails!(fs::stat("NAME"), NOENT)?;
    p.file("NAME", "large")?;
    p.holds("name", "small")?;
    works!(fs::rename("NAME", "Name"))?;
    same!(p.names(".")?, vec!["Name".to_owned(), "name".to_owned()])
}

fn normal_forms_are_different_names(p: &Place) -> Outcome {
    p.file("caf\u{e9}", "composed")?;
    p.file("cafe\u{301}", "decomposed")?;
    p.holds("caf\u{e9}", "composed")?;
    p.holds("cafe\u{301}", "decomposed")
}

fn slashes_at_the_end(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("f", "")?;
    p.symlink("d", "to_d")?;
    p.symlink("f", "to_f")?;
    works!(open("d/", O::RDONLY))?;
    works!(open("to_d/", O::RDONLY | O::NOFOLLOW))?;
    works!(mkdir("e/", 0o755))?;
    works!(fs::rename("e/", "g/"))?;
    works!(fs::rmdir("g//"))?;
    for path in ["f/", "to_f/"] {
        fails!(open(path, O::RDONLY), NOTDIR)?;
        fails!(fs::lstat(path), NOTDIR)?;
        fails!(fs::unlink(path), NOTDIR)?;
        fails!(chmod(path, 0o600), NOTDIR)?;
        fails!(fs::rename(path, "new"), NOTDIR)?;
        fails!(fs::link(path, "new"), NOTDIR)?;
    }
    fails!(open("new/", O::CREATE | O::WRONLY), ISDIR)?;
    fails!(fs::rename("f", "new/"), NOTDIR)?;
    fails!(fs::symlink("d", "new/"), NOENT)?;
    fails!(fs::link("f", "new/"), NOENT)?;
    fails!(fs::readlink("to_d/", Vec::new()), INVAL)?;
    fails!(fs::rmdir("to_d/"), NOTDIR)?;
    same!(fs::lstat("to_d/")?.st_ino, fs::stat("d")?.st_ino)
}

fn dots_and_double_slashes(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("d/e")?;
    p.file("f", "here")?;
    p.holds(".//d/./e/..//../f", "here")?;
    same!(fs::stat("d/e/..")?.st_ino, fs::stat("d")?.st_ino)?;
    same!(fs::stat("d/.")?.st_ino, fs::stat("d")?.st_ino)?;
    fails!(mkdir(".", 0o755), EXIST)?;
    fails!(mkdir("..", 0o755), EXIST)?;
    fails!(fs::symlink("f", "d/.."), EXIST)?;
    fails!(fs::unlink("d/."), ISDIR)?;
    fails!(fs::unlink("d/.."), ISDIR)
}

fn relative_to_a_descriptor(p: &Place) -> Outcome {
    p.dir("d")?;
    p.dir("e")?;
    p.file("d/f", "here")?;
    let d = works!(open("d", O::RDONLY | O::DIRECTORY))?;
    let path_only = works!(open("d", O::PATH))?;
    works!(fs::statat(&d, "f", AtFlags::empty()))?;
    works!(fs::statat(&path_only, "f", AtFlags::empty()))?;
    works!(fs::rename("d", "e/moved"))?;
    works!(fs::statat(&d, "f", AtFlags::empty()))?;
    works!(fs::mkdirat(&d, "made", fs::Mode::from_raw_mode(0o755)))?;
    works!(fs::renameat(&d, "f", CWD, "g"))?;
    works!(fs::unlinkat(&path_only, "made", AtFlags::REMOVEDIR))?;
    same!(p.names("e/moved")?, Vec::<String>::new())?;
    same!(works!(fs::statat(&d, "", AtFlags::EMPTY_PATH))?.st_ino, p.stat("e/moved")?.st_ino)?;
    fails!(fs::statat(sys::bad_descriptor(), "f", AtFlags::empty()), BADF)?;
    works!(fs::statat(sys::bad_descriptor(), p.path(), AtFlags::empty())).map(drop)
}

fn relative_to_a_file_is_enotdir(p: &Place) -> Outcome {
    p.file("f", "")?;
    let file = works!(open("f", O::RDONLY))?;
    let mode = fs::Mode::from_raw_mode(0o755);
    fails!(fs::statat(&file, "x", AtFlags::empty()), NOTDIR)?;
    fails!(fs::openat(&file, "x", O::RDONLY, mode), NOTDIR)?;
    fails!(fs::mkdirat(&file, "x", mode), NOTDIR)?;
    fails!(fs::unlinkat(&file, "x", AtFlags::empty()), NOTDIR)?;
    fails!(fs::renameat(&file, "x", CWD, "y"), NOTDIR)?;
    fails!(fs::symlinkat("t", &file, "x"), NOTDIR)?;
    fails!(rustix::process::fchdir(&file), NOTDIR)
}

fn search_permission_is_needed(p: &Place) -> Outcome {
    p.open_dir("d")?;
    p.file("d/name", "")?;
    chown("d/name", ALICE, ALICE)?;
    chmod(".", 0o777)?;
    for mode in [0o666, 0o000] {
        chmod("d", mode)?;
        p.as_user(ALICE, &[], || {
            works!(create("other", 0o644))?;
            all_refuse(&[ON_OLD], b"d/name", &[Errno::ACCESS])?;
            all_refuse(&[ON_NEW], b"d/new", &[Errno::ACCESS])?;
            all_refuse(&[ON_OLD], b"d/missing", &[Errno::ACCESS])?;
            Ok(fs::unlink("other")?)
        })?;
    }
    // The superuser needs none.
    holds!(fs::stat("d/name").is_ok())
}

fn no_write_permission_is_eacces(p: &Place) -> Outcome {
    p.dir("d")?;
    p.file("d/name", "")?;
    p.dir("d/dir")?;
    p.file("d/mine", "")?;
    chown("d/mine", ALICE, ALICE)?;
    chmod(".", 0o777)?;
    p.as_user(ALICE, &[], || {
        works!(create("other", 0o644))?;
        all_refuse(&[ON_NEW], b"d/new", &[Errno::ACCESS])?;
        fails!(fs::unlink("d/mine"), ACCESS)?;
        fails!(fs::unlink("d/name"), ACCESS)?;
        fails!(fs::rmdir("d/dir"), ACCESS)?;
        fails!(fs::rename("d/mine", "new"), ACCESS)?;
        fails!(fs::rename("d/mine", "d/new"), ACCESS)?;
        fails!(fs::rename("other", "d/mine"), ACCESS)?;
        // What is there already is said first.
        fails!(mkdir("d/name", 0o755), EXIST)?;
        works!(open("d/name", O::RDONLY))?;
        fails!(open("d/name", O::WRONLY), ACCESS)?;
        fails!(sys::truncate(c"d/name", 0), ACCESS)
    })
}
