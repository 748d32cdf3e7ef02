//! Patterns for names, as in a shell: `*` matches any text, `?` any character.

/// True if `pattern` matches all of `name`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut from) = (0, 0);
    // The position after the last `*`, and the end of its match. Backtracking to an earlier `*` is
    // never needed.
    let mut last: Option<(usize, usize)> = None;
    while let Some(next) = name.get(from) {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                last = Some((at, from));
            }
            Some(wanted) if *wanted == '?' || wanted == next => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((behind, reached)) = last else { return false };
                (at, from) = (behind, reached + 1);
                last = Some((at, from));
            }
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_like_a_shell_s() {
        for (pattern, name, is_like) in [
            ("*.txt", "notes.txt", true),
            ("*.txt", ".txt", true),
            ("*.txt", "notes.txt~", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a?c*", "aäc", true),
            ("a?c", "ac", false),
            ("*ab*abc*", "aababcx", true),
            ("*ab*abc", "ababab", false),
            ("[a]", "a", false),
            ("Makefile", "Makefile", true),
        ] {
            assert_eq!(matches(pattern, name), is_like, "{pattern:?} {name:?}");
        }
    }
}
