//! Examples in documents that tests update: a console block after a comment with its request.

/// Start of the line before an example; the request of the example follows.
pub(crate) const MARK: &str = "<!-- example: ";

/// Returns the document with updated examples; `render` returns the text of an example.
pub(crate) fn update_examples(old: &str, render: impl Fn(&str) -> String) -> String {
    let mut new = String::new();
    let mut lines = old.lines();
    while let Some(line) = lines.next() {
        new.push_str(line);
        new.push('\n');
        let Some(request) = line.strip_prefix(MARK) else { continue };
        let request = request.strip_suffix(" -->").expect("the end of the comment");
        assert_eq!(lines.next(), Some("```console"), "a block follows {line}");
        lines.by_ref().take_while(|line| *line != "```").for_each(drop);
        for part in ["```console\n", &render(request), "```\n"] {
            new.push_str(part);
        }
    }
    new
}
