//! Reasons for doubt in a result, as text.

use crate::escape;

/// Returns a paragraph with the reasons for doubt, as a list if there are several; empty if there
/// are none. `subject` is a sentence up to the reason, such as `B is doubtful`.
pub(crate) fn doubts_in_words<'a>(
    subject: &str,
    doubts: impl IntoIterator<Item = &'a String>,
) -> String {
    let sentences: Vec<_> =
        doubts.into_iter().map(|doubt| format!("{}.\n", escape::line(doubt))).collect();
    match &sentences[..] {
        [] => String::new(),
        [sentence] => format!("\n{subject} because {sentence}"),
        several => format!("\n{subject} because\n* {}", several.join("* ")),
    }
}
