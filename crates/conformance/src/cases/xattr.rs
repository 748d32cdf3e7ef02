//! Extended attributes of the user, and who may reach the others.
//!
//! A file system need not have any, and says EOPNOTSUPP; `offers::user_attributes` tells.

use rustix::fs::{self, OFlags as O, XattrFlags};
use rustix::io::{Errno, Result};

use crate::call::{chmod, chown, open};
use crate::expect::{Failure, Outcome, fails, same, works};
use crate::place::{ALICE, Place};

cases! { "xattr"
    anyone: set_and_got, replaced, listed, removed, missing_is_enodata, create_and_replace_flags,
        asked_for_the_size, too_small_a_buffer_is_erange, any_bytes, empty_value,
        name_lengths, too_large_a_value, namespaces, by_descriptor, not_on_links_and_fifos,
        on_directories, follow_the_file, gone_with_the_file, many, a_large_value,
        bad_flags_are_einval;
    root: needs_permission, trusted_are_hidden, sticky_directories_are_their_owners,
        a_write_takes_capabilities_away;
}

fn set(name: &str, value: impl AsRef<[u8]>) -> Result<()> {
    fs::setxattr("f", name, value.as_ref(), XattrFlags::empty())
}

fn get_from(path: &str, name: &str) -> Result<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let length = fs::getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn get(name: &str) -> Result<Vec<u8>> {
    get_from("f", name)
}

/// The user's attributes; others are the system's.
fn list(path: &str) -> Result<Vec<String>> {
    let mut names = vec![0; 65_536];
    let length = fs::listxattr(path, &mut names[..])?;
    let each = names[..length].split(|&byte| byte == 0);
    let mut names: Vec<String> = each
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| name.starts_with("user.") || name.starts_with("trusted."))
        .collect();
    names.sort();
    Ok(names)
}

/// Makes the file, and says whether there are attributes at all.
fn probe_attributes(p: &Place) -> std::result::Result<bool, Failure> {
    p.file("f", "text")?;
    match set("user.probe", "") {
        Err(Errno::OPNOTSUPP) => Ok(false),
        other => {
            works!(other).and_then(|()| works!(fs::removexattr("f", "user.probe"))).map(|()| true)
        }
    }
}

/// The rest of a case, wherever there are attributes.
fn with_attributes(p: &Place, case: impl FnOnce() -> Outcome) -> Outcome {
    if probe_attributes(p)? { case() } else { Ok(()) }
}

fn set_and_got(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "value"))?;
        same!(works!(get("user.a"))?, b"value".to_vec())?;
        p.elsewhere(|| same!(works!(get("user.a"))?, b"value".to_vec()))
    })
}

fn replaced(p: &Place) -> Outcome {
    with_attributes(p, || {
        for value in ["short", "a much longer value", "s", ""] {
            works!(set("user.a", value))?;
            same!(works!(get("user.a"))?, value.as_bytes().to_vec())?;
        }
        same!(list("f")?, vec!["user.a".to_owned()])
    })
}

fn listed(p: &Place) -> Outcome {
    with_attributes(p, || {
        same!(list("f")?, Vec::<String>::new())?;
        for name in ["user.b", "user.a", "user.c.d"] {
            works!(set(name, "x"))?;
        }
        same!(list("f")?.join(" "), "user.a user.b user.c.d".to_owned())?;
        let size = works!(fs::listxattr_query("f"))?;
        same!(size >= "user.a_user.b_user.c.d_".len(), true)?;
        fails!(fs::listxattr("f", &mut [0_u8; 5][..]), RANGE)
    })
}

fn removed(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "x"))?;
        works!(set("user.b", "y"))?;
        works!(fs::removexattr("f", "user.a"))?;
        fails!(get("user.a"), NODATA)?;
        fails!(fs::removexattr("f", "user.a"), NODATA)?;
        same!(list("f")?, vec!["user.b".to_owned()])
    })
}

fn missing_is_enodata(p: &Place) -> Outcome {
    with_attributes(p, || {
        fails!(get("user.missing"), NODATA)?;
        fails!(fs::getxattr_query("f", "user.missing"), NODATA)?;
        fails!(fs::removexattr("f", "user.missing"), NODATA)
    })
}

fn create_and_replace_flags(p: &Place) -> Outcome {
    with_attributes(p, || {
        let with = |flags| fs::setxattr("f", "user.a", b"value", flags);
        fails!(with(XattrFlags::REPLACE), NODATA)?;
        works!(with(XattrFlags::CREATE))?;
        fails!(with(XattrFlags::CREATE), EXIST)?;
        works!(with(XattrFlags::REPLACE))
    })
}

fn asked_for_the_size(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "value"))?;
        same!(works!(fs::getxattr_query("f", "user.a"))?, 5)?;
        works!(set("user.a", ""))?;
        same!(works!(fs::getxattr_query("f", "user.a"))?, 0)
    })
}

fn too_small_a_buffer_is_erange(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "value"))?;
        fails!(fs::getxattr("f", "user.a", &mut [0_u8; 4][..]), RANGE)?;
        same!(works!(fs::getxattr("f", "user.a", &mut [0_u8; 5][..]))?, 5)
    })
}

fn any_bytes(p: &Place) -> Outcome {
    with_attributes(p, || {
        let value: Vec<u8> = (0..=255).collect();
        works!(set("user.a", &value))?;
        same!(works!(get("user.a"))?, value)?;
        works!(set("user.\u{e9}\n\t ", "x"))?;
        same!(works!(get("user.\u{e9}\n\t "))?, b"x".to_vec())
    })
}

fn empty_value(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", ""))?;
        same!(works!(get("user.a"))?, Vec::new())?;
        same!(list("f")?, vec!["user.a".to_owned()])
    })
}

fn name_lengths(p: &Place) -> Outcome {
    with_attributes(p, || {
        let longest = format!("user.{}", "n".repeat(250));
        works!(set(&longest, "x"))?;
        same!(works!(get(&longest))?, b"x".to_vec())?;
        let too_long = format!("{longest}n");
        fails!(set(&too_long, "x"), RANGE)?;
        fails!(get(&too_long), RANGE)?;
        fails!(fs::removexattr("f", &too_long), RANGE)?;
        fails!(set("", "x"), RANGE)?;
        fails!(set("user.", "x"), INVAL)
    })
}

/// Above 64 KiB the kernel says it; below that, a file system may have no space for it.
fn too_large_a_value(p: &Place) -> Outcome {
    with_attributes(p, || {
        fails!(set("user.a", vec![b'x'; 65_537]), TOOBIG)?;
        match set("user.a", vec![b'x'; 65_536]) {
            Ok(()) => same!(works!(get("user.a"))?.len(), 65_536),
            refused => fails!(refused, NOSPC | TOOBIG | RANGE),
        }
    })
}

fn namespaces(p: &Place) -> Outcome {
    with_attributes(p, || {
        fails!(set("nonsense.a", "x"), OPNOTSUPP)?;
        fails!(set("nodot", "x"), OPNOTSUPP)?;
        fails!(get("nonsense.a"), OPNOTSUPP)?;
        // Names differ in case.
        works!(set("user.a", "small"))?;
        works!(set("user.A", "large"))?;
        same!(works!(get("user.a"))?, b"small".to_vec())
    })
}

fn by_descriptor(p: &Place) -> Outcome {
    with_attributes(p, || {
        let file = works!(open("f", O::RDONLY))?;
        works!(fs::fsetxattr(&file, "user.a", b"value", XattrFlags::empty()))?;
        let mut value = [0; 10];
        same!(works!(fs::fgetxattr(&file, "user.a", &mut value[..]))?, 5)?;
        works!(fs::unlink("f"))?;
        works!(fs::fsetxattr(&file, "user.b", b"", XattrFlags::empty()))?;
        works!(fs::fremovexattr(&file, "user.a"))?;
        fails!(fs::fgetxattr_query(&file, "user.a"), NODATA)
    })
}

/// A link's and a device's permissions protect nothing, so the user has no attributes there.
fn not_on_links_and_fifos(p: &Place) -> Outcome {
    with_attributes(p, || {
        p.fifo("fifo")?;
        p.symlink("f", "link")?;
        p.symlink("nowhere", "dangling")?;
        fails!(fs::setxattr("fifo", "user.a", b"x", XattrFlags::empty()), PERM)?;
        fails!(fs::lsetxattr("dangling", "user.a", b"x", XattrFlags::empty()), PERM)?;
        fails!(fs::lgetxattr_query("link", "user.a"), NODATA | PERM)?;
        works!(fs::setxattr("link", "user.a", b"x", XattrFlags::empty()))?;
        same!(works!(get("user.a"))?, b"x".to_vec())
    })
}

fn on_directories(p: &Place) -> Outcome {
    with_attributes(p, || {
        p.dir("d")?;
        works!(fs::setxattr("d", "user.a", b"value", XattrFlags::empty()))?;
        p.file("d/f", "")?;
        same!(works!(get_from("d", "user.a"))?, b"value".to_vec())?;
        same!(list("d/f")?, Vec::<String>::new())?;
        works!(fs::rename("d", "e"))?;
        same!(works!(get_from("e", "user.a"))?, b"value".to_vec())
    })
}

fn follow_the_file(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "value"))?;
        works!(fs::link("f", "g"))?;
        works!(fs::rename("f", "h"))?;
        same!(works!(get_from("g", "user.a"))?, b"value".to_vec())?;
        same!(works!(get_from("h", "user.a"))?, b"value".to_vec())?;
        works!(chmod("h", 0o600))?;
        works!(crate::sys::truncate(c"h", 0))?;
        same!(works!(get_from("g", "user.a"))?, b"value".to_vec())
    })
}

fn gone_with_the_file(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "value"))?;
        works!(fs::unlink("f"))?;
        p.file("f", "")?;
        same!(list("f")?, Vec::<String>::new())?;
        works!(set("user.a", "value"))?;
        p.file("new", "")?;
        works!(fs::rename("new", "f"))?;
        fails!(get("user.a"), NODATA)
    })
}

fn many(p: &Place) -> Outcome {
    with_attributes(p, || {
        for number in 0..50 {
            works!(set(&format!("user.{number:02}"), format!("{number}")))?;
        }
        same!(list("f")?.len(), 50)?;
        for number in (0..50).step_by(2) {
            works!(fs::removexattr("f", format!("user.{number:02}")))?;
        }
        same!(list("f")?.len(), 25)?;
        same!(works!(get("user.33"))?, b"33".to_vec())
    })
}

fn a_large_value(p: &Place) -> Outcome {
    with_attributes(p, || {
        let value: Vec<u8> = (0..2_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        works!(set("user.a", &value))?;
        same!(works!(get("user.a"))?, value)
    })
}

fn bad_flags_are_einval(p: &Place) -> Outcome {
    with_attributes(p, || {
        let flags = XattrFlags::from_bits_retain(0x80);
        fails!(fs::setxattr("f", "user.a", b"x", flags), INVAL)
    })
}

fn needs_permission(p: &Place) -> Outcome {
    with_attributes(p, || {
        works!(set("user.a", "value"))?;
        p.as_user(ALICE, &[], || {
            same!(works!(get("user.a"))?, b"value".to_vec())?;
            fails!(set("user.a", "x"), ACCESS)?;
            fails!(fs::removexattr("f", "user.a"), ACCESS)
        })?;
        chmod("f", 0o600)?;
        p.as_user(ALICE, &[], || {
            fails!(get("user.a"), ACCESS)?;
            // The list of names is no secret.
            same!(list("f")?, vec!["user.a".to_owned()])
        })?;
        chmod("f", 0o606)?;
        p.as_user(ALICE, &[], || works!(set("user.a", "x")))
    })
}

/// Attributes for the superuser's programs, where the file system has them.
fn trusted_are_hidden(p: &Place) -> Outcome {
    with_attributes(p, || {
        match set("trusted.a", "value") {
            Err(Errno::OPNOTSUPP | Errno::PERM) => return Ok(()),
            other => works!(other)?,
        }
        same!(works!(get("trusted.a"))?, b"value".to_vec())?;
        chmod("f", 0o666)?;
        p.as_user(ALICE, &[], || {
            fails!(get("trusted.a"), NODATA | PERM)?;
            fails!(set("trusted.a", "x"), PERM)?;
            same!(list("f")?, Vec::<String>::new())
        })
    })
}

fn sticky_directories_are_their_owners(p: &Place) -> Outcome {
    with_attributes(p, || {
        p.dir("d")?;
        chmod("d", 0o1777)?;
        let on_d = || fs::setxattr("d", "user.a", b"x", XattrFlags::empty());
        p.as_user(ALICE, &[], || fails!(on_d(), PERM))?;
        chown("d", ALICE, ALICE)?;
        p.as_user(ALICE, &[], || works!(on_d()))
    })
}

/// What a program may do was said of another content.
fn a_write_takes_capabilities_away(p: &Place) -> Outcome {
    p.file("f", "text")?;
    // Version 2 and effective; then what is permitted and inheritable, in two halves.
    let words = [0x0200_0001_u32, 1 << 10, 0, 0, 0];
    let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let grant = || set("security.capability", &value);
    if grant() == Err(Errno::OPNOTSUPP) {
        return Ok(());
    }
    works!(rustix::io::pwrite(works!(open("f", O::WRONLY))?, b"T", 0))?;
    fails!(get("security.capability"), NODATA)?;
    works!(grant())?;
    works!(crate::sys::truncate(c"f", 2))?;
    fails!(get("security.capability"), NODATA)?;
    works!(grant())?;
    works!(chown("f", ALICE, ALICE))?;
    fails!(get("security.capability"), NODATA)
}
