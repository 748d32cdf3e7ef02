//! Everything that is linked into the program may be given away under its own licence.

use cargo_metadata::MetadataCommand;

/// Licences that ask for nothing but their own text. One of a package's alternatives must be
/// made of these alone.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

#[test]
fn every_package_has_an_allowed_licence() {
    // What only other systems build is not ours to give away, and need not be downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let options = ["--locked".to_owned(), "--filter-platform".to_owned(), platform];
    let metadata = MetadataCommand::new().other_options(options).exec().unwrap();
    let refused: Vec<String> = metadata
        .packages
        .iter()
        .filter(|package| !package.license.as_deref().is_some_and(is_allowed))
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.license))
        .collect();
    assert!(refused.is_empty(), "not on the list of allowed licences: {refused:#?}");
}

/// The file in the root for each licence, and lines that only this licence has.
const TEXTS: [(&str, &str, [&str; 2]); 2] = [
    (
        "Apache-2.0",
        "LICENSE-APACHE",
        ["Version 2.0, January 2004", "9. Accepting Warranty or Additional Liability."],
    ),
    (
        "MIT",
        "LICENSE-MIT",
        ["Copyright (c) 2026 The Segue authors", "Permission is hereby granted, free of charge,"],
    ),
];

#[test]
fn the_root_has_the_text_of_each_licence_of_the_workspace() {
    let options = ["--locked".to_owned()];
    let metadata = MetadataCommand::new().no_deps().other_options(options).exec().unwrap();
    for package in &metadata.packages {
        let named: Vec<&str> = package.license.as_deref().unwrap().split(" OR ").collect();
        assert_eq!(named, TEXTS.map(|(licence, ..)| licence), "{}", package.name);
    }
    for (licence, file, lines) in TEXTS {
        let text = std::fs::read_to_string(metadata.workspace_root.join(file)).unwrap();
        for line in lines {
            assert!(text.contains(line), "{file} is not the text of {licence}: no {line:?}");
        }
    }
}

/// Evaluates an SPDX expression: OR needs one side, AND (which binds tighter) both.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (result, rest) = any_of(&words);
    result && rest.is_empty()
}

fn any_of<'a>(words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = all_of(words);
    while let ["OR", after @ ..] = rest {
        let (next, remaining) = all_of(after);
        result |= next;
        rest = remaining;
    }
    (result, rest)
}

fn all_of<'a>(words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
    let (mut result, mut rest) = one(words);
    while let ["AND", after @ ..] = rest {
        let (next, remaining) = one(after);
        result &= next;
        rest = remaining;
    }
    (result, rest)
}

fn one<'a>(words: &'a [&'a str]) -> (bool, &'a [&'a str]) {
    match words {
        ["(", inside @ ..] => {
            let (result, rest) = any_of(inside);
            (result && rest.first() == Some(&")"), rest.get(1..).unwrap_or(&[]))
        }
        [licence, "WITH", exception, rest @ ..] => {
            (ALLOWED.contains(&format!("{licence} WITH {exception}").as_str()), rest)
        }
        [licence, rest @ ..] => (ALLOWED.contains(licence), rest),
        [] => (false, &[]),
    }
}

#[test]
fn expressions_are_read_as_spdx_says() {
    for good in ["MIT", "MIT/GPL-3.0", "GPL-2.0 OR (MIT AND ISC)", "(MIT OR GPL-2.0) AND Zlib"] {
        assert!(is_allowed(good), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH x", "(MIT", "MIT MIT"] {
        assert!(!is_allowed(bad), "{bad}");
    }
}
