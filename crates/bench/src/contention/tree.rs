//! What `Compile` compiles: 259 files and directories, 1,223 KB [MFS 3.4].
//!
//! ```text
//!   Makefile          each object by its headers, then one archive
//!   include/hNNN.h    130: a function that is inlined, and a comment
//!   mD/fNNN.c         119 in 7 directories: six headers, a function, a table and a comment
//! ```
//!
//! Tables and comments are noise in letters that a compiler takes, so that neither sources nor
//! objects become much smaller when they are compressed. No header of the system is included:
//! all that is read lies in the tree.

use std::fs;
use std::path::Path;

use crate::workload::content::noise;
use crate::workload::scaled;
use segue_bed::{Doing, Result, Rng};

const BYTES: u32 = 1223 * 1024;
const HEADERS: u32 = 130;
const SOURCES: u32 = 119;
const MODULES: u32 = 7;
/// Of each source.
const INCLUDES: u32 = 6;

/// Writes it into the empty directory `root`.
pub(super) fn plant(root: &Path, rng: &mut Rng, scale: f64) -> Result<()> {
    let (headers, sources) = (scaled(HEADERS, scale), scaled(SOURCES, scale));
    let directories = (0..MODULES).map(|module| format!("m{module}")).chain(["include".into()]);
    for directory in directories {
        fs::create_dir_all(root.join(directory)).doing("make a directory of the tree")?;
    }
    let makefile = makefile(headers, sources);
    let mut left = (scaled(BYTES, scale) as usize).saturating_sub(makefile.len());
    fs::write(root.join("Makefile"), makefile).doing("write the Makefile")?;
    let files = (0..headers).map(header).chain((0..sources).map(|n| source(n, headers)));
    for (at, (name, code)) in files.enumerate() {
        let share = left / ((headers + sources) as usize - at);
        left -= share;
        let text = filled(&code, name.ends_with(".c"), share, rng);
        fs::write(root.join(&name), text).doing(format!("write {name}"))?;
    }
    Ok(())
}

fn header(number: u32) -> (String, String) {
    let name = format!("include/h{number:03}.h");
    let code = format!(
        "#ifndef H{number}\n#define H{number}\n\
         static inline int h{number}(int x) {{ return (x ^ {number}) * 31 + (x >> 3); }}\n\
         #endif\n"
    );
    (name, code)
}

fn source(number: u32, headers: u32) -> (String, String) {
    let mut code = String::new();
    for header in included(number, headers) {
        code += &format!("#include \"h{header:03}.h\"\n");
    }
    code += &format!("int f{number}(int x)\n{{\n    for (int i = 0; i < x; i++) {{\n");
    for header in included(number, headers) {
        code += &format!("        if (x & 1 << i) x += h{header}(x - i);\n");
    }
    code += "    }\n    return x;\n}\n";
    (source_name(number), code)
}

fn source_name(number: u32) -> String {
    format!("m{}/f{number:03}.c", number % MODULES)
}

/// The headers of a source: all are included somewhere.
fn included(source: u32, headers: u32) -> impl Iterator<Item = u32> {
    (0..INCLUDES.min(headers)).map(move |at| (source * INCLUDES / 2 + at) % headers)
}

fn makefile(headers: u32, sources: u32) -> String {
    let objects: Vec<String> =
        (0..sources).map(|number| source_name(number).replace(".c", ".o")).collect();
    let mut text = "CFLAGS = -O1 -pipe -Iinclude\n\n".to_owned();
    text += &format!("lib.a: {}\n\trm -f $@\n\tar rc $@ $^\n\n", objects.join(" "));
    for (number, object) in (0..sources).zip(objects) {
        let names = included(number, headers).map(|header| format!("include/h{header:03}.h"));
        text += &format!("{object}: {}\n", names.collect::<Vec<_>>().join(" "));
    }
    text
}

/// `code` with so much noise behind it that it has `bytes`; of a source half of that is a table.
fn filled(code: &str, has_table: bool, bytes: usize, rng: &mut Rng) -> Vec<u8> {
    let mut text = code.as_bytes().to_vec();
    if has_table {
        let table = bytes.saturating_sub(text.len()) / 2;
        text.extend_from_slice(b"static const char table[] __attribute__((used)) = \"");
        text.extend(letters(rng, table));
        text.extend_from_slice(b"\";\n");
    }
    let comment = bytes.saturating_sub(text.len() + "/**/\n".len());
    text.extend_from_slice(b"/*");
    text.extend(letters(rng, comment));
    text.extend_from_slice(b"*/\n");
    text
}

/// Noise without what ends a line, a comment or a string, or begins an escape.
fn letters(rng: &mut Rng, bytes: usize) -> impl Iterator<Item = u8> {
    let alphabet: Vec<u8> =
        (0x80..=0xff).chain(b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').collect();
    let letter = move |byte: u8| alphabet.get(usize::from(byte) % alphabet.len()).copied();
    noise(rng, bytes).into_iter().filter_map(letter)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use segue_bed::run;

    fn sizes(root: &Path) -> Vec<u64> {
        let mut command = Command::new("find");
        let found = run(command.arg(root).args(["-printf", "%y %s\\n"])).unwrap();
        let size = |line: &str| line.strip_prefix("f ").map_or(0, |size| size.parse().unwrap());
        found.lines().map(size).collect()
    }

    #[test]
    fn the_tree_is_as_large_as_the_paper_says_and_compiles() {
        let dir = tempfile::tempdir().unwrap();
        plant(dir.path(), &mut Rng::new(1), 1.0).unwrap();
        let sizes = sizes(dir.path());
        assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (259, u64::from(BYTES)));
        run(Command::new("make").args(["-s", "-j2", "-C"]).arg(dir.path())).unwrap();
        // Half of what the sources have is in the objects, and none of it is left out.
        let archive = fs::metadata(dir.path().join("lib.a")).unwrap().len();
        assert!(archive > 300_000, "{archive}");
    }

    #[test]
    fn a_small_one_compiles_too() {
        let dir = tempfile::tempdir().unwrap();
        plant(dir.path(), &mut Rng::new(1), 0.01).unwrap();
        run(Command::new("make").args(["-s", "-C"]).arg(dir.path())).unwrap();
    }
}
