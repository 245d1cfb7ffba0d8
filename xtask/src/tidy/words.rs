//! The words of comments: doc comments open with a noun phrase or a verb, and actors have names.

/// Words that no doc comment opens with.
const OPENINGS: &[&str] = &["What", "How", "Whether", "Why", "Who", "Whose", "Whom", "Which"];

/// Words and phrases that no comment contains, and their replacement.
const WORDS: &[(&str, &str)] = &[
    ("somebody", ACTOR),
    ("someone", ACTOR),
    ("whoever", ACTOR),
    ("nobody", "no client, no thread, no process"),
    ("is told", RECEIVES),
    ("are told", RECEIVES),
    ("be told", RECEIVES),
    ("folder", "directory"),
    ("folders", "directories"),
    ("clerk", "blocking worker"),
    ("desk", "session"),
    ("haggle", "negotiate"),
];
const ACTOR: &str = "the client, user, process or thread that acts";
const RECEIVES: &str = "receives, is notified of; or say who reports it";

/// Returns the doc comment or comment of a line of source code.
pub(super) fn comment(line: &str) -> Option<Comment<'_>> {
    let line = line.trim_start();
    let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    match (doc, line.strip_prefix("//")) {
        (Some(text), _) => Some(Comment { text, is_doc: true }),
        (None, Some(text)) => Some(Comment { text, is_doc: false }),
        (None, None) => None,
    }
}

/// A line of a comment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Comment<'a> {
    text: &'a str,
    is_doc: bool,
}

impl Comment<'_> {
    /// Returns the violations of this line, whose line before is `before`.
    pub(super) fn violations(&self, before: Option<Comment<'_>>) -> Vec<String> {
        let mut found = Vec::new();
        let is_first = !before.is_some_and(|before| before.is_doc);
        let opening = words(self.text).next().filter(|_| self.is_doc && is_first);
        if let Some(word) = opening.filter(|word| OPENINGS.contains(word)) {
            found.push(format!("doc comment opens with {word}: begin with a noun or a verb"));
        }
        let words: Vec<String> = words(self.text).map(str::to_lowercase).collect();
        for (phrase, better) in WORDS {
            let phrase: Vec<&str> = phrase.split(' ').collect();
            if words.windows(phrase.len()).any(|it| it == phrase) {
                found.push(format!("comment says {:?}: {better}", phrase.join(" ")));
            }
        }
        found
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
