//! Examples in documents that tests make anew: what stands in a block below a mark in a comment.

/// Begins the line before an example and is followed by how it is made.
pub(crate) const MARK: &str = "<!-- example: ";

/// The document with its examples made anew: `made` says what an example shows.
pub(crate) fn renewed(old: &str, made: impl Fn(&str) -> String) -> String {
    let mut new = String::new();
    let mut lines = old.lines();
    while let Some(line) = lines.next() {
        new.push_str(line);
        new.push('\n');
        let Some(how) = line.strip_prefix(MARK) else { continue };
        let how = how.strip_suffix(" -->").expect("the end of the comment");
        assert_eq!(lines.next(), Some("```console"), "a block follows {line}");
        lines.by_ref().take_while(|inside| *inside != "```").for_each(drop);
        for part in ["```console\n", &made(how), "```\n"] {
            new.push_str(part);
        }
    }
    new
}
