//! A source tree: unpacked, built, and found again elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

use crate::tree;
use crate::world::{World, arg, sh};

const MAKEFILE: &str = "\
CFLAGS = -O0 -DZSTD_DISABLE_ASM -Ilib
objects := $(patsubst %.c,%.o,$(wildcard lib/common/*.c lib/compress/*.c lib/decompress/*.c))
demo: demo.o libzstd.a
\t$(CC) -o $@ demo.o libzstd.a
libzstd.a: $(objects)
\t$(AR) rcs $@ $(objects)
demo.o $(objects): $(wildcard lib/*.h lib/*/*.h)
";

const DEMO: &str = r#"
#include <stdio.h>
#include <string.h>
#include <zstd.h>
static char text[1 << 20], packed[2 << 20], again[1 << 20];
int main(void) {
    for (size_t i = 0; i < sizeof text; i++) text[i] = "segue "[i * i % 6];
    size_t size = ZSTD_compress(packed, sizeof packed, text, sizeof text, 3);
    size_t back = ZSTD_decompress(again, sizeof again, packed, size);
    int same = back == sizeof text && size < back && !memcmp(text, again, back);
    puts(same ? "same" : "different");
    return !same;
}
"#;

/// The sources of a C library that every checkout of this project has been built with.
pub(crate) fn c_sources() -> PathBuf {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let metadata = MetadataCommand::new().manifest_path(manifest).exec().unwrap();
    let package = metadata.packages.iter().find(|package| package.name == "zstd-sys").unwrap();
    package.manifest_path.parent().unwrap().join("zstd").into()
}

/// A copy of [`c_sources`] with what such trees also have: links, odd modes, exact times.
pub(crate) fn prepare(dir: &Path) -> PathBuf {
    let top = dir.join("zstd");
    sh(dir, &format!("cp -r '{}' zstd", c_sources().display()));
    fs::write(top.join("Makefile"), MAKEFILE).unwrap();
    fs::write(top.join("demo.c"), DEMO).unwrap();
    let script = "
        ln -s lib/zstd.h zstd.h
        ln -s ../nowhere dangling
        ln lib/zdict.h zdict-too.h
        mkdir empty
        chmod 700 empty
        printf '#!/bin/sh\\necho built by $1\\n' >configure
        chmod 755 configure
        chmod 440 LICENSE
        number=100000000
        find . -type f | sort | while read -r file; do
            touch -d \"2021-03-04 05:06:07.$number\" \"$file\"
            number=$((number + 1234567))
        done
        touch -d '1969-12-31 23:59:58.5 UTC' COPYING
        touch -d '2020-02-03 04:05:06.987654321' lib lib/common empty .";
    sh(&top, script);
    top
}

/// A source tree that is unpacked into a mount can be built there, and is found whole (with
/// contents, modes, links and times to the nanosecond) by another host with an empty cache,
/// after the mount ended and the server was started again.
/// Proves S1.8.
#[test]
fn a_source_tree_is_unpacked_built_and_found_elsewhere() {
    let Some(mut world) = World::new() else { return };
    let local = world.local("local");
    let original = tree::read(&prepare(&local));
    assert!(original.len() > 90, "{} files", original.len());
    let archive = local.join("zstd.tar");
    sh(&local, &format!("tar --format=posix -cf '{}' zstd", archive.display()));

    let mut mount = world.mount(&world.a);
    sh(mount.path(), &format!("tar -xpf '{}'", archive.display()));
    let top = mount.path().join("zstd");
    tree::assert_same("unpacked", &tree::read(&top), &original);

    sh(&top, "make -j2 >make.log 2>&1 || { cat make.log >&2; exit 1; }");
    assert_eq!(sh(&top, "./demo && ./configure make"), "same\nbuilt by make\n");
    sh(&top, "make -q");
    let built = tree::read(&top);
    assert!(built.len() > original.len() + 20, "{} files", built.len());
    mount.umount(&[]).unwrap();
    world.server.restart().unwrap();

    let mount = world.mount(&world.b);
    let top = mount.path().join("zstd");
    tree::assert_same("on another host", &tree::read(&top), &built);
    assert_eq!(sh(&top, "./demo"), "same\n");
    sh(&top, "make -q");
    sh(&world.local("again"), &format!("tar -df '{}' -C '{}'", arg(&archive), arg(mount.path())));
}
