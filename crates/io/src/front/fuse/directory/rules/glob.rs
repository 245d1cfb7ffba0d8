//! Glob patterns, which match paths byte by byte.
//!
//! Invariant: a match tracks all positions in the path that the pattern can have reached, without
//! backtracking. Its time is bounded by the length of the pattern times the length of the path.

/// Maximum nesting of groups: a match stores positions in the path for each open group.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Glob {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    /// A byte within one of these ranges or, if negated, outside all of them.
    Byte { ranges: Vec<(u8, u8)>, negated: bool },
    /// Any number of bytes, with or without slashes.
    Bytes { slashes: bool },
    /// `{`: the first alternative begins.
    Open,
    /// `,`: the next alternative begins.
    Or,
    /// `}`: the last alternative ends.
    Close,
}

impl Step {
    fn literal(byte: u8) -> Self {
        Step::Byte { ranges: vec![(byte, byte)], negated: false }
    }
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// Returns the reason why the pattern is malformed.
    pub(super) fn parse(pattern: &str) -> Result<Self, String> {
        let (mut steps, mut depth) = (Vec::new(), 0);
        let (pattern, mut rest) = (pattern.as_bytes(), pattern.as_bytes());
        while let [byte, after @ ..] = rest {
            // `**` matches slashes only if it is a whole component of the path.
            let before = pattern[..pattern.len() - rest.len()].last();
            let begins = matches!(before, None | Some(b'/'))
                || matches!(steps.last(), Some(Step::Open | Step::Or));
            rest = after;
            match (byte, after) {
                (b'*', [b'*'] | [b'*', b'/']) if begins => {
                    steps.push(Step::Bytes { slashes: true });
                    rest = &[];
                }
                (b'*', [b'*', b',' | b'}', ..]) if begins && depth > 0 => {
                    steps.push(Step::Bytes { slashes: true });
                    rest = &after[1..];
                }
                (b'*', [b'*', b'/', after @ ..]) if begins => {
                    let slash = Step::literal(b'/');
                    steps.extend([Step::Open, Step::Bytes { slashes: true }, slash]);
                    steps.extend([Step::Or, Step::Close]);
                    rest = after;
                }
                (b'*', _) => steps.push(Step::Bytes { slashes: false }),
                (b'?', _) => steps.push(Step::Byte { ranges: vec![(b'/', b'/')], negated: true }),
                (b'[', _) => {
                    let (class, after) = class(after)?;
                    steps.push(class);
                    rest = after;
                }
                (b'{', _) if depth == DEPTH_MAX => {
                    return Err(format!("more than {DEPTH_MAX} nested alternate groups"));
                }
                (b'{', _) => {
                    steps.push(Step::Open);
                    depth += 1;
                }
                (b',', _) if depth > 0 => steps.push(Step::Or),
                (b'}', _) if depth == 0 => {
                    return Err("unopened alternate group; missing '{' (or write '[}]')".into());
                }
                (b'}', _) => {
                    steps.push(Step::Close);
                    depth -= 1;
                }
                (b'\\', []) => return Err("dangling '\\'".into()),
                (b'\\', [escaped, after @ ..]) => {
                    steps.push(Step::literal(*escaped));
                    rest = after;
                }
                _ => steps.push(Step::literal(*byte)),
            }
        }
        if depth > 0 {
            return Err("unclosed alternate group; missing '}' (or write '[{]')".into());
        }
        Ok(Glob { steps })
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        // The positions that the steps so far can have reached, in ascending order.
        let mut positions = vec![0];
        // For each open group, the positions before it and those after its alternatives so far.
        let mut groups: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        for step in &self.steps {
            match step {
                Step::Byte { ranges, negated } => positions.retain_mut(|position| {
                    let byte = path.get(*position);
                    *position += 1;
                    let is_in =
                        |byte| ranges.iter().any(|(low, high)| (low..=high).contains(&byte));
                    byte.is_some_and(|byte| is_in(byte) != *negated)
                }),
                Step::Bytes { slashes } => {
                    let mut reached = Vec::new();
                    for start in positions {
                        if reached.last().is_none_or(|last| *last < start) {
                            let stops = |byte: &u8| *byte == b'/' && !slashes;
                            let length = path[start..].iter().position(stops);
                            reached.extend(start..=length.map_or(path.len(), |len| start + len));
                        }
                    }
                    positions = reached;
                }
                Step::Open => groups.push((positions.clone(), Vec::new())),
                Step::Or => {
                    let (before, reached) = groups.last_mut().expect("a group is open");
                    add(reached, &positions);
                    positions.clone_from(before);
                }
                Step::Close => {
                    let (_, reached) = groups.pop().expect("a group is open");
                    add(&mut positions, &reached);
                }
            }
        }
        positions.last() == Some(&path.len())
    }
}

/// Parses the class that follows a `[`. Returns it with the rest of the pattern.
fn class(pattern: &[u8]) -> Result<(Step, &[u8]), String> {
    let negated = matches!(pattern.first(), Some(b'!' | b'^'));
    let pattern = &pattern[usize::from(negated)..];
    // A `]` that comes first is a member of the class.
    let end = pattern.iter().skip(1).position(|byte| *byte == b']');
    let end = end.ok_or("unclosed character class; missing ']'")? + 1;
    let (mut bytes, mut ranges) = (&pattern[..end], Vec::new());
    while let [low, after @ ..] = bytes {
        let (high, after) = match after {
            [b'-', high, after @ ..] => (high, after),
            _ => (low, after),
        };
        if !low.is_ascii() || !high.is_ascii() {
            return Err("non-ASCII character in a class; use alternates such as {x,y}".into());
        }
        if low > high {
            let (low, high) = (char::from(*low), char::from(*high));
            return Err(format!("invalid range; '{low}' > '{high}'"));
        }
        ranges.push((*low, *high));
        bytes = after;
    }
    Ok((Step::Byte { ranges, negated }, &pattern[end + 1..]))
}

/// Adds positions to a sorted list of positions.
fn add(positions: &mut Vec<usize>, more: &[usize]) {
    positions.extend_from_slice(more);
    positions.sort_unstable();
    positions.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: impl AsRef<[u8]>) -> bool {
        Glob::parse(pattern).expect(pattern).matches(path.as_ref())
    }

    /// Checks that a pattern matches the first paths and not the others.
    #[track_caller]
    fn check(pattern: &str, matched: &[&str], others: &[&str]) {
        for path in matched {
            assert!(matches(pattern, path), "{pattern} matches {path}");
        }
        for path in others {
            assert!(!matches(pattern, path), "{pattern} does not match {path}");
        }
    }

    #[test]
    fn stars_and_question_marks_match_no_slash() {
        check("*", &["", "a", ".a", "a.b"], &["/", "a/b", "a/"]);
        check("a*b*c", &["abc", "axxbbc"], &["ab", "abcd", "a/bc"]);
        check("a?c", &["abc"], &["ac", "a/c", "abbc"]);
        check("a/*/c", &["a/b/c", "a//c"], &["a/c", "a/b/b/c"]);
    }

    #[test]
    fn two_stars_match_directories_if_they_are_a_whole_component() {
        check("**", &["", "a", "a/b/c"], &[]);
        check("**/", &["a", "a/b"], &[]);
        check("**/c", &["c", "b/c", "a/b/c"], &["bc", "c/b"]);
        check("a/**", &["a/b", "a/b/c", "a/"], &["a", "ba/c"]);
        check("a/**/c", &["a/c", "a/b/c", "a/b/b/c"], &["ac", "a/bc"]);
        check("**/a/**/**", &["a/b", "x/a/b/c"], &["a", "xa/b"]);
        check("a**/c", &["a/c", "ab/c"], &["a/b/c"]);
        check("a/**c", &["a/c", "a/bc"], &["a/b/c"]);
        check("***", &["a"], &["a/b"]);
        check("{a/,**}", &["a/", "b", "b/c"], &[]);
        check("{**/b,c/**}", &["b", "a/b", "c/b/a"], &["c", "a"]);
    }

    #[test]
    fn classes_match_bytes_and_ranges_or_their_complement() {
        check("[a-c]", &["a", "b", "c"], &["d", "", "ab"]);
        for not in ["[!a-c]", "[^a-c]"] {
            check(not, &["d", "!", "^", "-"], &["a", "c", ""]);
        }
        check("[]a]", &["]", "a"], &["[", "b"]);
        check("[!]]", &["a"], &["]"]);
        check("[a-][-a]", &["a-", "--", "aa"], &["b-"]);
        check("[a-c-e]", &["b", "-", "e"], &["d"]);
        check("[*?{},!\\]", &["*", "?", "{", ",", "!", "\\"], &["a"]);
    }

    #[test]
    fn alternatives_can_be_nested_and_empty() {
        check("*.{iso,img}", &["a.iso", "a.img"], &["a.is", "a.isoimg", "a.{iso,img}"]);
        check("{a,b{c,d}}e", &["ae", "bce", "bde"], &["be", "ace", "e"]);
        check("a{,.gz}", &["a", "a.gz"], &["a,", "a."]);
        check("a{}", &["a"], &["a{}"]);
        check("{a*,*b}{c,d}", &["axc", "xbd", "ac"], &["xc"]);
        check("a,b", &["a,b"], &["a", "b"]);
        check("{a[,}],b}", &["a,", "a}", "b"], &["a"]);
    }

    #[test]
    fn a_backslash_escapes_the_next_character() {
        check("\\*\\?\\[\\{\\\\", &["*?[{\\"], &["a?[{\\"]);
        check("\\a\\\u{e4}", &["a\u{e4}"], &["\\a"]);
        check("{a\\,b,c\\}}", &["a,b", "c}"], &["a", "b"]);
        check("!a", &["!a"], &["b"]);
    }

    #[test]
    fn names_are_bytes() {
        assert!(
            matches("*.db", b"\xff\xfe.db") && matches("?", b"\xff") && matches("[!a]", b"\xff")
        );
        assert!(matches("**/\u{e4}*", "x/\u{e4}b") && matches("??", "\u{e4}"));
        assert!(!matches("?", "\u{e4}") && !matches("\u{e4}", b"\xc3"));
        assert!(matches("*", b"a\nb") && matches("a/**", b"a/\n\xff/\0"));
    }

    #[test]
    fn malformed_patterns_are_refused_with_a_reason() {
        for (pattern, reason) in [
            ("a[b", "unclosed character class; missing ']'"),
            ("[", "unclosed character class; missing ']'"),
            ("[]", "unclosed character class; missing ']'"),
            ("[!]", "unclosed character class; missing ']'"),
            ("[b-a]", "invalid range; 'b' > 'a'"),
            ("[\u{e4}]", "non-ASCII character in a class"),
            ("{a,b", "unclosed alternate group; missing '}'"),
            ("{a,{b}", "unclosed alternate group; missing '}'"),
            ("a}", "unopened alternate group; missing '{'"),
            ("a\\", "dangling '\\'"),
            (&"{".repeat(17), "more than 16 nested alternate groups"),
        ] {
            let error = Glob::parse(pattern).expect_err(pattern);
            assert!(error.starts_with(reason) && !error.contains('\n'), "{pattern}: {error}");
        }
        let deep = format!("{}a{}", "{".repeat(16), "}".repeat(16));
        assert!(matches(&deep, "a") && !matches(&deep, "b"));
    }

    #[test]
    fn hostile_patterns_match_in_bounded_time() {
        let name = "a".repeat(255);
        let path = "a/".repeat(2047);
        let started = std::time::Instant::now();
        // Backtracking would take exponential time.
        for (pattern, path) in [
            ("*a".repeat(100) + "b", &name),
            ("**/".repeat(100) + "b", &path),
            ("**/*a/".repeat(100) + "b", &path),
            ("{a,a,a*}".repeat(100) + "b", &name),
            ("{*,{*,{*,{*,*}}}}".repeat(20) + "b", &name),
            ("{**/,*,?}".repeat(50) + "b", &path),
        ] {
            assert!(!matches(&pattern, path), "{pattern}");
        }
        assert!(started.elapsed() < std::time::Duration::from_secs(30));
    }
}
