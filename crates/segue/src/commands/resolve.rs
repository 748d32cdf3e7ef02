//! `segue resolve`: which side of a conflict stays.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segue_client::control::types::{Conflict, ConflictKind, ResolveReply, ResolveRequest};
use serde_json::json;

use super::{Context, block_on, conflicts};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::{control, mounts, output};

/// Bytes written at a time.
const STEP: u64 = 1 << 20;

/// Say which side of a conflict stays
///
/// PATH is a conflict copy, or the file that it stands beside, or what a refused change was to
/// change. Ours is what this host did: the copy, or the refused change; theirs is what has the name.
/// The files change like by any command, so other hosts see it, and it works offline.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("side").required(true))]
pub(crate) struct Arguments {
    /// Files on a Segue mount
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The copy takes the name, whose file is removed; refused data are written again
    #[arg(long, group = "side")]
    ours: bool,
    /// The copy is removed; a refused change is dropped
    #[arg(long, group = "side")]
    theirs: bool,
    /// Both stay under their names; refused data become a file beside, as NAME.refused-NUMBER
    #[arg(long, group = "side")]
    both: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue conflicts
  segue resolve ~/home/notes.txt --theirs
  segue resolve ~/home/notes.txt.conflict-tin-20261123-101500 --ours
  segue resolve ~/home/report.odt --both";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Theirs,
    Both,
}

/// Resolves one after the other, as far as it goes.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let side = match (arguments.ours, arguments.theirs) {
        (true, _) => Side::Ours,
        (_, true) => Side::Theirs,
        _ => Side::Both,
    };
    let all = mounts::list()?;
    let mut resolved = Vec::new();
    for path in &arguments.paths {
        let (mount, inside) = control::holding(&all, path)?;
        let path = mount.mountpoint.join(inside);
        let known = block_on(conflicts::ask(&mount, context))?;
        for conflict in meant(&path, known, side)? {
            let did = match conflict.kind {
                ConflictKind::Copy => copy(&mount, context, &conflict, side)?,
                ConflictKind::Refused => refused(&mount, context, &conflict, side)?,
            };
            if !arguments.json {
                output::print(&format!("{}: {did}\n", conflict.path))?;
            }
            resolved.push(json!({ "path": conflict.path, "kind": conflict.kind, "did": did }));
        }
    }
    if arguments.json {
        output::print_json(&json!({ "resolved": resolved }))?;
    }
    Ok(Exit::Done)
}

/// The conflicts that `path` names.
fn meant(path: &Path, known: Vec<Conflict>, side: Side) -> Result<Vec<Conflict>, Failure> {
    let shown = path.display().to_string();
    let is_copy =
        |conflict: &Conflict| conflict.kind == ConflictKind::Copy && conflict.path == shown;
    if let Some(copy) = known.iter().find(|conflict| is_copy(conflict)) {
        return Ok(vec![copy.clone()]);
    }
    let is_about = |conflict: &Conflict| match conflict.kind {
        ConflictKind::Copy => conflict.of == shown,
        ConflictKind::Refused => conflict.path == shown,
    };
    let about: Vec<Conflict> = known.into_iter().filter(is_about).collect();
    let copies = about.iter().filter(|conflict| conflict.kind == ConflictKind::Copy);
    let names: Vec<&str> = copies.map(|conflict| conflict.path.as_str()).collect();
    if names.len() > 1 && side == Side::Ours {
        let words = format!("{shown}: which of its copies? {}", names.join(", "));
        return Err(Failure::new(Exit::Conflict, words));
    }
    if !about.is_empty() {
        return Ok(about);
    }
    // Another host's, that its user has left to this one's.
    let of = made_from(path).filter(|_| path.symlink_metadata().is_ok());
    let of = of.ok_or_else(|| {
        let words =
            format!("{shown}: nothing is known of a conflict ('segue conflicts' lists them)");
        Failure::new(Exit::NotFound, words)
    })?;
    Ok(vec![Conflict { path: shown, of: of.display().to_string(), ..Conflict::default() }])
}

/// What the conflict copy `copy` stands beside, by its name.
fn made_from(copy: &Path) -> Option<PathBuf> {
    let (name, rest) = copy.file_name()?.to_str()?.rsplit_once(".conflict-")?;
    let is_time = |part: &str| part.len() >= 6 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_so =
        !name.is_empty() && rest.split('-').skip(1).filter(|part| is_time(part)).count() >= 2;
    is_so.then(|| copy.with_file_name(name))
}

/// Deals with a copy; what was done.
fn copy(
    mount: &Mount,
    context: &Context,
    conflict: &Conflict,
    side: Side,
) -> Result<&'static str, Failure> {
    let (copy, of) = (Path::new(&conflict.path), Path::new(&conflict.of));
    if side == Side::Both {
        let inside = copy.strip_prefix(&mount.mountpoint).unwrap_or(copy);
        let copy = inside.display().to_string();
        tell(mount, context, &ResolveRequest { copy, ..ResolveRequest::default() })?;
        return Ok("both stay");
    }
    let is_directory = |path: &Path| path.symlink_metadata().is_ok_and(|about| about.is_dir());
    if let Some(path) = [copy, of].into_iter().find(|path| is_directory(path)) {
        return Err(Failure::failed(format!(
            "{}: is a directory: move what you want to keep out of it or the other one, remove it, or \
             use --both",
            path.display()
        )));
    }
    match side {
        Side::Theirs => {
            fs::remove_file(copy).map_err(|error| Failure::io(copy.display(), &error))?;
            Ok("removed, what has the name stays")
        }
        _ => {
            fs::rename(copy, of).map_err(|error| Failure::io(copy.display(), &error))?;
            Ok("has the name now")
        }
    }
}

/// Deals with a refused change; what was done.
fn refused(
    mount: &Mount,
    context: &Context,
    conflict: &Conflict,
    side: Side,
) -> Result<&'static str, Failure> {
    let path = Path::new(&conflict.path);
    let (into, did) = match side {
        Side::Theirs => (None, "the refused change is dropped"),
        Side::Ours => (Some(path.to_owned()), "the refused data are written again"),
        Side::Both => {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".refused-{}", conflict.id));
            (Some(path.with_file_name(name)), "the refused data are a file beside")
        }
    };
    if let Some(into) = into {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('#') || name == conflict.id {
            return Err(Failure::failed(format!(
                "{}: what it is called is not known here any more: take what you need from {}, and then \
                 use --theirs",
                conflict.path, conflict.data
            )));
        }
        if conflict.data.is_empty() {
            return Err(Failure::failed(format!(
                "{}: what was refused is no data, but a {}: do it again, and then use --theirs",
                conflict.path, conflict.change
            )));
        }
        write(conflict, &into, side == Side::Both)
            .map_err(|error| Failure::io(into.display(), &error))?;
    }
    tell(mount, context, &ResolveRequest { refused: conflict.id.clone(), ..Default::default() })?;
    Ok(did)
}

/// Writes what was refused where it was to be.
fn write(conflict: &Conflict, into: &Path, is_new: bool) -> io::Result<()> {
    let from = File::open(&conflict.data)?;
    let file = File::options().write(true).create_new(is_new).open(into)?;
    let mut bytes = Vec::new();
    for range in &conflict.ranges {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(STEP);
            bytes.resize(usize::try_from(len).unwrap_or_default(), 0);
            from.read_exact_at(&mut bytes, at)?;
            file.write_all_at(&bytes, at)?;
            at += len;
        }
    }
    file.set_len(conflict.size)?;
    file.sync_all()
}

/// Has the mount forget a conflict.
fn tell(mount: &Mount, context: &Context, request: &ResolveRequest) -> Result<(), Failure> {
    let unanswered = |error| control::unanswered(mount, &error);
    let reply: ResolveReply = block_on(async {
        let connection = control::connect(&context.places, mount).await.map_err(unanswered)?;
        connection.post("/v1/resolve", request).await.map_err(unanswered)
    })?;
    match reply.error.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed(reply.error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_copy_what_it_stands_beside_or_what_was_refused() {
        let copy = |path: &str| Conflict {
            path: format!("/m/{path}"),
            of: "/m/a".into(),
            ..Conflict::default()
        };
        let refused = Conflict {
            kind: ConflictKind::Refused,
            path: "/m/#7".into(),
            id: "9".into(),
            ..Conflict::default()
        };
        let known = || vec![copy("a.conflict-x-1"), copy("a.conflict-x-2"), refused.clone()];
        let found =
            |path: &str, side| meant(Path::new(path), known(), side).map(|found| found.len());
        assert_eq!(found("/m/a.conflict-x-2", Side::Ours).ok(), Some(1));
        assert_eq!(found("/m/a", Side::Theirs).ok(), Some(2));
        assert_eq!(found("/m/a", Side::Ours).unwrap_err().exit, Exit::Conflict);
        assert_eq!(found("/m/#7", Side::Theirs).ok(), Some(1));
        assert_eq!(found("/m/b", Side::Both).unwrap_err().exit, Exit::NotFound);
    }

    #[test]
    fn a_copy_of_another_host_is_known_by_its_name() {
        let of = |name: &str| made_from(&Path::new("/m/d").join(name));
        let notes = Some(PathBuf::from("/m/d/notes.txt"));
        assert_eq!(of("notes.txt.conflict-tin-20261123-101500"), notes);
        assert_eq!(of("notes.txt.conflict-my-old-host-20261123-101500-2"), notes);
        for other in
            ["notes.txt", "notes.conflict-tin", ".conflict-tin-20261123-101500", "a.conflict-x-1-2"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
