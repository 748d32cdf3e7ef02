//! `segue resolve`: resolves a conflict by the user's choice of a side.

mod merge;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use segue_client::original_name;
use segue_client::replies::{Conflict, ConflictKind, ResolveReply, ResolveRequest};
use serde_json::{Value, json};

use super::{Context, block_on, conflicts};
use crate::exit::{Exit, Failure, Outcome};
use crate::mounts::Mount;
use crate::{control, mounts, output, places};

/// Bytes written at a time.
const STEP: u64 = 1 << 20;

/// Resolve a conflict: choose the side that stays
///
/// PATH is a conflict copy, the file beside it, or the file that a refused change was for. If the
/// note of a conflict cannot be read, PATH is the note that 'segue conflicts' shows.
///
/// "Ours" is this host's side: the conflict copy or the refused change. "Theirs" is the file that
/// has the original name. The command changes files like any other program: other hosts see the
/// result, and the command works offline.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("side").required(true))]
pub(crate) struct Arguments {
    /// Paths from 'segue conflicts', or the files beside them; with --all, where to search
    #[arg(value_name = "PATH", required_unless_present = "all")]
    paths: Vec<PathBuf>,
    /// Merge all conflict copies below PATH [default: on this user's mounts] that have a program
    #[arg(long, requires = "merge")]
    all: bool,
    /// Replace the file by its conflict copy; write refused data again
    #[arg(long, group = "side")]
    ours: bool,
    /// Remove the conflict copy; drop a refused change
    #[arg(long, group = "side")]
    theirs: bool,
    /// Keep both under their names; write refused data to a new file NAME.refused-NUMBER
    #[arg(long, group = "side")]
    both: bool,
    /// Replace the file by the output of a shell command; without PROGRAM, by that of the command
    /// configured for its name
    #[arg(long, group = "side", value_name = "PROGRAM", num_args = 0..=1)]
    merge: Option<Option<String>>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  segue conflicts
  segue resolve ~/home/notes.txt --theirs
  segue resolve ~/home/notes.txt.conflict-tin-20261123-101500 --ours
  segue resolve ~/home/report.odt --both
  segue resolve ~/home/todo --merge 'git merge-file --union %A %O %B'
  segue resolve --all --merge
  segue resolve ~/home/papers --all --merge

Programs of --merge:
  Segue calls a program like a git merge driver. %A is a file with ours, and the program writes its
  output there. %B is a file with theirs. %O is an empty file, because the common ancestor is not
  kept. %P is the path. If the program exits with 0, its output replaces the file and the conflict
  copy is removed. Otherwise both stay, and the exit code is 5. In ~/.config/segue/config.toml, the
  first matching rule is used:

  [[merge]]
  pattern = \"*.bib\"
  program = \"sort -u %A %B -o %A\"";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ours,
    Theirs,
    Both,
    Merged,
}

/// Resolves the conflicts one after the other. Without `--all`, the first failure ends the command.
pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let side = match (arguments.ours, arguments.theirs, &arguments.merge) {
        (true, ..) => Side::Ours,
        (_, true, _) => Side::Theirs,
        (_, _, Some(_)) => Side::Merged,
        _ => Side::Both,
    };
    let mut resolving = Resolving { arguments, context, side, resolved: Vec::new() };
    let exit = match arguments.all {
        true => resolving.all()?,
        false => resolving.paths()?,
    };
    if arguments.json {
        output::print_json(&json!({ "resolved": resolving.resolved }))?;
    } else if arguments.all && exit == Exit::Done && resolving.resolved.is_empty() {
        output::print("no conflict copies with a merge program ('segue conflicts' lists all)\n")?;
    }
    Ok(exit)
}

/// A run of the command: its arguments, and the conflicts resolved so far.
struct Resolving<'a> {
    arguments: &'a Arguments,
    context: &'a Context,
    side: Side,
    resolved: Vec<Value>,
}

impl Resolving<'_> {
    fn paths(&mut self) -> Outcome {
        let all = mounts::list()?;
        for path in &self.arguments.paths {
            let (mount, path, known) = holding(&all, path, self.context)?;
            for conflict in meant(&path, known, self.side)? {
                self.resolve(&mount, &conflict)?;
            }
        }
        Ok(Exit::Done)
    }

    /// Merges every conflict copy that has a program; reports failures and goes on.
    fn all(&mut self) -> Outcome {
        let places = self.places()?;
        let mut mounts = mounts::list()?;
        mounts.retain(|mount| places.iter().any(|(holding, _)| holding == mount));
        let context = self.context;
        let ask = |mount: &Mount| Ok((mount.clone(), block_on(conflicts::ask(mount, context))?));
        let (answers, mut exit) = control::each(&mounts, ask);
        for (mount, conflicts) in &answers {
            for conflict in conflicts {
                let is_copy = conflict.kind == ConflictKind::Copy && conflict.note.is_empty();
                let is_below =
                    |(_, path): &(_, PathBuf)| Path::new(&conflict.path).starts_with(path);
                let is_meant = places.iter().any(is_below);
                if !is_copy || !is_meant || self.program(conflict).is_none() {
                    continue;
                }
                // A failure does not keep the other copies from being merged.
                if let Err(failure) = self.resolve(mount, conflict) {
                    output::note(&failure.to_string());
                    exit = exit.max(failure.exit);
                }
            }
        }
        Ok(exit)
    }

    /// The paths to search for copies, each with its mount; by default this user's mounts.
    fn places(&self) -> Result<Vec<(Mount, PathBuf)>, Failure> {
        if self.arguments.paths.is_empty() {
            let whole = |mount: Mount| (mount.clone(), mount.mountpoint);
            return Ok(control::chosen(None)?.into_iter().map(whole).collect());
        }
        let all = mounts::list()?;
        let place = |path: &PathBuf| {
            let (mount, inside) = control::holding(&all, path)?;
            let path = mount.mountpoint.join(inside);
            Ok((mount, path))
        };
        self.arguments.paths.iter().map(place).collect()
    }

    fn resolve(&mut self, mount: &Mount, conflict: &Conflict) -> Result<(), Failure> {
        if mount.owner != places::user() {
            return Err(not_as(mount));
        }
        if conflict.note.is_empty() {
            refuse_unclear(&conflict.path)?;
            refuse_unclear(&conflict.of)?;
            refuse_links(Path::new(&conflict.path))?;
        }
        let (context, side) = (self.context, self.side);
        let did = match conflict.kind {
            ConflictKind::Copy if !conflict.note.is_empty() => {
                unreadable(mount, context, conflict, side)?
            }
            ConflictKind::Copy if side == Side::Merged => self.merge(conflict)?,
            ConflictKind::Copy => copy(mount, context, conflict, side)?,
            ConflictKind::Refused => refused(mount, context, conflict, side)?,
            ConflictKind::Beside => {
                let words = format!(
                    "{}: another host's change is in the copy {}; resolve the conflict on that \
                     host, or name the copy",
                    conflict.of, conflict.path
                );
                return Err(Failure::new(Exit::Conflict, words));
            }
        };
        if !self.arguments.json {
            output::print(&format!("{}: {did}\n", output::path(Path::new(&conflict.path))))?;
        }
        let done = json!({ "path": conflict.path, "kind": conflict.kind, "did": did });
        self.resolved.push(done);
        Ok(())
    }

    /// The program that merges a conflict copy with the file of the original name.
    fn program(&self, conflict: &Conflict) -> Option<&str> {
        let name = Path::new(&conflict.of).file_name()?.to_str()?;
        let given = self.arguments.merge.as_ref()?.as_deref();
        given.or_else(|| self.context.config.merge_program(name))
    }

    fn merge(&self, conflict: &Conflict) -> Result<&'static str, Failure> {
        let program = self.program(conflict).ok_or_else(|| {
            Failure::failed(format!(
                "{}: no [[merge]] rule in {} matches its name ('segue help resolve' explains how)",
                conflict.of,
                self.context.places.config_file.display()
            ))
        })?;
        let files = (Path::new(&conflict.path), Path::new(&conflict.of));
        merge::merge(program, files, self.arguments.json)?;
        Ok("merged into the file of the original name")
    }
}

/// Refuses a path with a name that is no text. The mount tells such a name with U+FFFD in place of
/// its other bytes, and that can be the name of another file.
fn refuse_unclear(path: &str) -> Result<(), Failure> {
    if !path.contains(char::REPLACEMENT_CHARACTER) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{}: a name in this path is not valid UTF-8, so 'segue resolve' cannot tell which file it \
         means; keep the version that you want by hand (cp, mv and rm take such names)",
        output::path(Path::new(path))
    )))
}

/// The paths and data of a conflict are what the mount's process says, and links lead anywhere. So
/// nobody uses them with more rights than the mount's owner has.
fn not_as(mount: &Mount) -> Failure {
    let words = format!(
        "{}: this mount belongs to uid {owner}, and only that user resolves its conflicts: \
         setpriv --reuid {owner} --clear-groups segue resolve ..",
        mount.mountpoint.display(),
        owner = mount.owner
    );
    Failure::new(Exit::NotPermitted, words)
}

/// Fails if a symbolic link leads to `path`: another host may have put it into the place of a
/// directory since, and it may lead out of the mount.
fn refuse_links(path: &Path) -> Result<(), Failure> {
    if mounts::resolve(path) == path {
        return Ok(());
    }
    let words = format!("{}: a symbolic link leads there: name it by its own path", path.display());
    Err(Failure::failed(words))
}

/// The mount that holds `path`, or that keeps `path` as a note, and the conflicts that it knows.
fn holding(
    all: &[Mount],
    path: &Path,
    context: &Context,
) -> Result<(Mount, PathBuf, Vec<Conflict>), Failure> {
    let not_on_one = match control::holding(all, path) {
        Ok((mount, inside)) => {
            let known = block_on(conflicts::ask(&mount, context))?;
            let path = mount.mountpoint.join(inside);
            return Ok((mount, path, known));
        }
        Err(failure) => failure,
    };
    let file = mounts::resolve(path);
    for mount in control::chosen(None)? {
        // A mount that does not answer could not drop the note either.
        let Ok(known) = block_on(conflicts::ask(&mount, context)) else { continue };
        let mut notes = known.iter().map(|conflict| Path::new(&conflict.note));
        if let Some(note) = notes.find(|note| mounts::resolve(note) == file) {
            let note = note.to_owned();
            return Ok((mount, note, known));
        }
    }
    Err(not_on_one)
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
        // By its own name it is a copy like any other.
        ConflictKind::Beside => conflict.of == shown,
    };
    let mut about: Vec<Conflict> = known.into_iter().filter(is_about).collect();
    if about.iter().any(|conflict| conflict.kind != ConflictKind::Beside) {
        about.retain(|conflict| conflict.kind != ConflictKind::Beside);
    }
    let copies = about.iter().filter(|conflict| conflict.kind == ConflictKind::Copy);
    let names: Vec<&str> = copies.map(|conflict| conflict.path.as_str()).collect();
    if names.len() > 1 && side == Side::Ours {
        let words =
            format!("{shown}: has several conflict copies; name one of them: {}", names.join(", "));
        return Err(Failure::new(Exit::Conflict, words));
    }
    if !about.is_empty() {
        return Ok(about);
    }
    // A conflict copy that another host made: this host knows it only by its name.
    let of = made_from(path).filter(|_| path.symlink_metadata().is_ok());
    let of = of.ok_or_else(|| {
        let words =
            format!("{shown}: no conflict is known for this path ('segue conflicts' lists all)");
        Failure::new(Exit::NotFound, words)
    })?;
    Ok(vec![Conflict { path: shown, of: of.display().to_string(), ..Conflict::default() }])
}

/// The original path of the conflict copy `copy`, from its name.
fn made_from(copy: &Path) -> Option<PathBuf> {
    // The paths of conflicts are valid UTF-8.
    let name = original_name(copy.file_name()?.to_str()?.as_bytes())?;
    Some(copy.with_file_name(OsStr::from_bytes(name)))
}

/// Resolves a conflict copy; returns a description of the action.
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
            "{}: is a directory, and --ours and --theirs replace files only: move its files by \
             hand and remove it, or use --both",
            path.display()
        )));
    }
    match side {
        Side::Theirs => {
            fs::remove_file(copy).map_err(|error| Failure::io(copy.display(), &error))?;
            Ok("removed; the file of the original name stays")
        }
        _ => {
            fs::rename(copy, of).map_err(|error| Failure::io(copy.display(), &error))?;
            Ok("renamed to the original name")
        }
    }
}

/// Resolves a conflict whose note cannot be read; returns a description of the action.
fn unreadable(
    mount: &Mount,
    context: &Context,
    conflict: &Conflict,
    side: Side,
) -> Result<&'static str, Failure> {
    if side != Side::Both {
        return Err(Failure::failed(format!(
            "{}: this note cannot be read, so its conflict copy is unknown: look for the copy with \
             find {} -name '*.conflict-*', resolve it by its name, then drop the note with --both",
            conflict.path,
            mount.mountpoint.display()
        )));
    }
    tell(
        mount,
        context,
        &ResolveRequest { unreadable: conflict.id.clone(), ..Default::default() },
    )?;
    Ok("note dropped; its conflict copy stays")
}

/// Resolves a refused change; returns a description of the action.
fn refused(
    mount: &Mount,
    context: &Context,
    conflict: &Conflict,
    side: Side,
) -> Result<&'static str, Failure> {
    let path = Path::new(&conflict.path);
    let (into, did) = match side {
        Side::Merged => {
            return Err(Failure::failed(format!(
                "{}: --merge is for conflict copies, and this is a refused change: --both writes \
                 its data to a new file",
                conflict.path
            )));
        }
        Side::Theirs => (None, "the refused change is dropped"),
        Side::Ours => (Some(path.to_owned()), "the refused data are written again"),
        Side::Both => {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".refused-{}", conflict.id));
            (Some(path.with_file_name(name)), "the refused data are in a new file beside it")
        }
    };
    if let Some(into) = into {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('#') || name == conflict.id {
            let way = match conflict.data.as_str() {
                "" => "none of its data are kept, so".to_owned(),
                data => format!("copy the data you need from {data}, then"),
            };
            return Err(Failure::failed(format!(
                "{}: this host no longer knows the name of this object: {way} use --theirs",
                conflict.path
            )));
        }
        if conflict.data.is_empty() {
            return Err(Failure::failed(format!(
                "{}: the refused change is a {} without data: do it again, then use --theirs",
                conflict.path, conflict.change
            )));
        }
        write(conflict, &into, side == Side::Both)
            .map_err(|error| Failure::io(into.display(), &error))?;
    }
    tell(mount, context, &ResolveRequest { refused: conflict.id.clone(), ..Default::default() })?;
    Ok(did)
}

/// Writes the refused data into the file `into`, which may have become a link since.
fn write(conflict: &Conflict, into: &Path, is_new: bool) -> io::Result<()> {
    let from = File::open(&conflict.data)?;
    let mut options = File::options();
    let file = options.write(true).create_new(is_new).custom_flags(libc::O_NOFOLLOW).open(into)?;
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

/// Makes the mount drop a conflict.
fn tell(mount: &Mount, context: &Context, request: &ResolveRequest) -> Result<(), Failure> {
    let asking = control::post(&context.places, mount, "/v1/resolve", request);
    let reply: ResolveReply = block_on(asking)?;
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

    /// Root had written refused data through a link that another host made.
    #[test]
    fn nothing_is_written_or_looked_for_behind_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let [data, file, link, below, to_below] =
            ["data", "file", "link", "below", "to-below"].map(|name| base.join(name));
        fs::write(&data, "new").unwrap();
        fs::write(&file, "old").unwrap();
        fs::create_dir(&below).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(&below, &to_below).unwrap();
        let conflict = Conflict {
            data: data.to_str().unwrap().to_owned(),
            ranges: vec![0..3],
            size: 3,
            ..Conflict::default()
        };
        let refused = write(&conflict, &link, false).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ELOOP));
        assert_eq!(fs::read(&file).unwrap(), b"old");
        write(&conflict, &file, false).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        for there in [&link, &below.join("x"), &base.join("none/x")] {
            refuse_links(there).unwrap();
        }
        assert_eq!(refuse_links(&to_below.join("x")).unwrap_err().exit, Exit::Failed);
    }

    /// Proves S10.6.
    #[test]
    fn a_copy_of_another_host_is_known_by_its_name() {
        let of = |name: &str| made_from(&Path::new("/m/d").join(name));
        let notes = Some(PathBuf::from("/m/d/notes.txt"));
        assert_eq!(of("notes.txt.conflict-tin-20261123-101500"), notes);
        assert_eq!(of("notes.txt"), None);
    }
}
