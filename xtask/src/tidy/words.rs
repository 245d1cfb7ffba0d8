//! The words of comments, strings and documents: doc comments and paragraphs open with a noun
//! phrase or a verb, and actors have names.

use proc_macro2::{TokenStream, TokenTree};

/// Words that no doc comment and no paragraph of a document opens with.
const OPENINGS: &[&str] = &["What", "How", "Whether", "Why", "Who", "Whose", "Whom", "Which"];

/// Words and phrases that no comment, string or document contains, and their replacement.
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
    ("anew", "again"),
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
        found.extend(listed_words(self.text).map(|text| format!("comment has {text}")));
        found
    }
}

/// Returns the violations of a line of a document outside of code; `opens` if the line opens a
/// paragraph, a heading, an item or a table.
pub(super) fn document_violations(line: &str, opens: bool) -> Vec<String> {
    let mut found: Vec<String> =
        listed_words(line).map(|text| format!("document has {text}")).collect();
    let is_question = line.trim_end().ends_with('?');
    let opening =
        words(line).next().filter(|word| opens && !is_question && OPENINGS.contains(word));
    if let Some(word) = opening {
        found.push(format!("paragraph opens with {word}: begin with its topic or with a verb"));
    }
    found
}

/// Returns the line number and the violation of each string of a source file.
pub(super) fn string_violations(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    if let Ok(tokens) = source.parse::<TokenStream>() {
        visit_strings(tokens, &mut found);
    }
    found
}

fn visit_strings(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => visit_strings(group.stream(), found),
            TokenTree::Literal(literal) => {
                let (text, line) = (literal.to_string(), literal.span().start().line);
                let text = text.replace("\\n", " ");
                // Doc comments are strings, too; they have a rule of their own.
                if text.starts_with('"') {
                    found.extend(listed_words(&text).map(|it| (line, format!("string has {it}"))));
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Returns the listed words and phrases of a text, with their replacement.
fn listed_words(text: &str) -> impl Iterator<Item = String> {
    let words: Vec<String> = words(text).map(str::to_lowercase).collect();
    WORDS.iter().filter_map(move |(phrase, better)| {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        let is_found = words.windows(phrase.len()).any(|it| it == phrase);
        is_found.then(|| format!("{:?}: {better}", phrase.join(" ")))
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
