//! Several processes at once: of two that cannot both be right, one is.

use rustix::fs::{self, OFlags as O};
use rustix::io::Errno;

use crate::call::{create, mkdir, open};
use crate::expect::{Outcome, fails, holds, same, works};
use crate::place::Place;
use crate::process::Process;

cases! { "together"
    anyone: one_creates, one_makes_the_directory, one_links, one_renames_away,
        opposite_renames_end, making_and_removing, a_tree_by_four, listing_what_comes_and_goes;
    root: ;
}

const AT_ONCE: usize = 4;

/// Runs `work` with each number in a process of its own, and waits for all.
fn at_once(work: impl Fn(usize) -> Outcome) -> Outcome {
    let started: Result<Vec<Process>, _> =
        (0..AT_ONCE).map(|number| Process::start(|| work(number))).collect();
    for process in started? {
        process.join()?;
    }
    Ok(())
}

/// Each round exactly one of the processes succeeds at `call`; the others get `refusal`.
fn one_wins(
    p: &Place,
    refusal: Errno,
    call: impl Fn(usize, usize) -> Result<(), Errno>,
) -> Outcome {
    const ROUNDS: usize = 25;
    at_once(|number| {
        for round in 0..ROUNDS {
            match call(round, number) {
                Ok(()) => p.file(&format!("won.{round}.{number}"), "")?,
                Err(errno) => same!(errno, refusal)?,
            }
        }
        Ok(())
    })?;
    let won = p.names(".")?.iter().filter(|name| name.starts_with("won.")).count();
    same!(won, ROUNDS)
}

fn one_creates(p: &Place) -> Outcome {
    one_wins(p, Errno::EXIST, |round, _| create(format!("f{round}"), 0o644).map(drop))
}

fn one_makes_the_directory(p: &Place) -> Outcome {
    one_wins(p, Errno::EXIST, |round, _| mkdir(format!("d{round}"), 0o755))
}

fn one_links(p: &Place) -> Outcome {
    p.file("f", "")?;
    one_wins(p, Errno::EXIST, |round, _| fs::link("f", format!("l{round}")))?;
    same!(p.stat("f")?.st_nlink, 26)
}

fn one_renames_away(p: &Place) -> Outcome {
    for round in 0..25 {
        p.file(&format!("f{round}"), "")?;
    }
    one_wins(p, Errno::NOENT, |round, number| {
        fs::rename(format!("f{round}"), format!("g{round}.{number}"))
    })
}

/// Two that rename the same two directories into each other must not make a loop, and must end.
fn opposite_renames_end(p: &Place) -> Outcome {
    p.dir("a")?;
    p.dir("b")?;
    at_once(|number| {
        let (from, to) = if number % 2 == 0 { ("a", "b/x") } else { ("b", "a/y") };
        for _ in 0..100 {
            match fs::rename(from, to).or_else(|_| fs::rename(to, from)) {
                Ok(()) | Err(Errno::NOENT | Errno::INVAL | Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    })?;
    // Both are still reachable from here.
    let found = ["a", "b", "a/y", "b/x"].iter().filter(|path| fs::lstat(**path).is_ok()).count();
    same!(found, 2)
}

fn making_and_removing(p: &Place) -> Outcome {
    at_once(|number| {
        for round in 0..50 {
            let name = format!("d{}", round % 3);
            match if (number + round) % 2 == 0 { mkdir(&name, 0o755) } else { fs::rmdir(&name) } {
                Ok(()) | Err(Errno::EXIST | Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    })?;
    for name in p.names(".")? {
        works!(fs::rmdir(&name))?;
    }
    Ok(())
}

fn a_tree_by_four(p: &Place) -> Outcome {
    at_once(|number| {
        p.dir(&format!("d{number}"))?;
        for file in 0..50 {
            p.file(&format!("d{number}/f{file}"), format!("{number} {file}"))?;
        }
        works!(fs::rename(format!("d{number}"), format!("e{number}")))
    })?;
    for number in 0..AT_ONCE {
        same!(p.names(&format!("e{number}"))?.len(), 50)?;
        p.holds(&format!("e{number}/f33"), format!("{number} 33"))?;
    }
    fails!(open("d0", O::RDONLY), NOENT)
}

fn listing_what_comes_and_goes(p: &Place) -> Outcome {
    for number in 0..50 {
        p.file(&format!("stays{number}"), "")?;
    }
    at_once(|number| {
        for round in 0..20 {
            if number == 0 {
                let names = p.names(".")?;
                let stays = names.iter().filter(|name| name.starts_with("stays")).count();
                same!(stays, 50)?;
                continue;
            }
            let name = format!("goes{number}.{round}");
            p.file(&name, "")?;
            works!(fs::unlink(&name))?;
        }
        Ok(())
    })?;
    holds!(p.names(".")?.len() == 50)
}
