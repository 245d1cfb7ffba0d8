//! Reasons for doubt in a result, as text.

use crate::escape;

/// Returns a paragraph with the reasons for doubt, as a list if there are several; empty if there
/// are none. `subject` is a sentence up to the reason, such as `B is doubtful`.
pub(crate) fn doubts_in_words(subject: &str, doubts: &[&str]) -> String {
    match doubts {
        [] => String::new(),
        [doubt] => format!("\n{subject} because {}.\n", escape::line(doubt)),
        several => {
            let items = several.iter().map(|doubt| format!("* {}.\n", escape::line(doubt)));
            format!("\n{subject} because\n{}", items.collect::<String>())
        }
    }
}
