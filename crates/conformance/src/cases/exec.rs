//! Running what is stored there.

use std::io;
use std::process::Command;

use rustix::fs::{self, OFlags as O};

use crate::call::{chmod, chown, open};
use crate::expect::{Failure, Outcome, fails, same, works};
use crate::place::{ALICE, BOB, Place};

cases! { "exec"
    anyone: a_script, a_copied_program, what_is_not_executable_is_eacces, what_is_no_program,
        a_directory_is_eacces, a_missing_interpreter_is_enoent, through_a_symbolic_link,
        what_was_just_written, a_file_open_for_writing_is_etxtbsy, an_unlinked_program_runs_on;
    root: needs_execute_permission_only, set_user_id_counts_or_is_off;
}

/// What a program says, or why it cannot be run.
fn run(path: &str) -> Result<String, rustix::io::Errno> {
    let ran = Command::new(path).arg("argument").output();
    let said = |ran: std::process::Output| String::from_utf8_lossy(&ran.stdout).into_owned();
    ran.map(said).map_err(|error: io::Error| {
        rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
    })
}

fn script(p: &Place, name: &str, text: &str) -> Outcome {
    p.file(name, text)?;
    Ok(chmod(name, 0o755)?)
}

fn a_script(p: &Place) -> Outcome {
    script(p, "script", "#!/bin/sh\necho ran with $1\n")?;
    same!(works!(run("./script"))?, "ran with argument\n".to_owned())
}

fn a_copied_program(_: &Place) -> Outcome {
    std::fs::copy("/bin/echo", "program")?;
    works!(chmod("program", 0o755))?;
    for _ in 0..3 {
        same!(works!(run("./program"))?, "argument\n".to_owned())?;
    }
    Ok(())
}

fn what_is_not_executable_is_eacces(p: &Place) -> Outcome {
    p.file("script", "#!/bin/sh\n")?;
    fails!(run("./script"), ACCESS)
}

fn what_is_no_program(p: &Place) -> Outcome {
    script(p, "data", "\x01\x02 no program")?;
    fails!(run("./data"), NOEXEC)?;
    fails!(run("./missing"), NOENT)?;
    fails!(run("./data/x"), NOTDIR)
}

fn a_directory_is_eacces(p: &Place) -> Outcome {
    p.dir("d")?;
    fails!(run("./d"), ACCESS)
}

fn a_missing_interpreter_is_enoent(p: &Place) -> Outcome {
    script(p, "script", "#!/nowhere/interpreter\n")?;
    fails!(run("./script"), NOENT)
}

fn through_a_symbolic_link(p: &Place) -> Outcome {
    script(p, "script", "#!/bin/sh\necho ran\n")?;
    p.symlink("script", "link")?;
    same!(works!(run("./link"))?, "ran\n".to_owned())
}

/// Replacing a program takes effect with the next run.
fn what_was_just_written(p: &Place) -> Outcome {
    for round in 0..5 {
        script(p, "new", &format!("#!/bin/sh\necho {round}\n"))?;
        works!(fs::rename("new", "script"))?;
        same!(works!(run("./script"))?, format!("{round}\n"))?;
    }
    Ok(())
}

fn a_file_open_for_writing_is_etxtbsy(p: &Place) -> Outcome {
    std::fs::copy("/bin/echo", "program")?;
    works!(chmod("program", 0o755))?;
    let writer = works!(open("program", O::WRONLY))?;
    fails!(run("./program"), TXTBSY)?;
    drop(writer);
    works!(run("./program"))?;
    p.stat("program").map(drop)
}

fn an_unlinked_program_runs_on(_: &Place) -> Outcome {
    std::fs::copy("/bin/cat", "program")?;
    works!(chmod("program", 0o755))?;
    let mut child = Command::new("./program")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    works!(fs::unlink("program"))?;
    let input = child.stdin.take().ok_or_else(|| Failure::here("no input"))?;
    works!(crate::place::write_all(&input, b"still here"))?;
    drop(input);
    same!(child.wait_with_output()?.stdout, b"still here".to_vec())
}

fn needs_execute_permission_only(p: &Place) -> Outcome {
    std::fs::copy("/bin/echo", "program")?;
    chown("program", ALICE, ALICE)?;
    chmod("program", 0o711)?;
    let run_as = |user: u32| {
        let mut ran = None;
        p.as_user(user, &[], || {
            ran = Some(run("./program"));
            Ok(())
        })?;
        ran.ok_or_else(|| Failure::here("not run"))
    };
    // A program may be run by who may not read it.
    same!(works!(run_as(BOB)?)?, "argument\n".to_owned())?;
    chmod("program", 0o744)?;
    fails!(run_as(BOB)?, ACCESS)?;
    same!(works!(run_as(ALICE)?)?, "argument\n".to_owned())
}

/// Where a mount says `nosuid` the bit has no effect, but it is kept.
fn set_user_id_counts_or_is_off(p: &Place) -> Outcome {
    std::fs::copy("/usr/bin/id", "program")?;
    chown("program", BOB, BOB)?;
    chmod("program", 0o4755)?;
    let is_off = works!(fs::statvfs("."))?.f_flag.contains(fs::StatVfsMountFlags::NOSUID);
    p.as_user(ALICE, &[], || {
        let ran = Command::new("./program").arg("-u").output()?;
        let wanted = if is_off { ALICE } else { BOB };
        same!(String::from_utf8_lossy(&ran.stdout).trim(), wanted.to_string().as_str())
    })?;
    same!(p.mode("program")?, 0o4755)
}
