//! Comparison of an output with that of a page.

/// The line that stands for any lines.
const ANY: &str = "...";
/// Units that follow a number, as the product writes them.
const UNITS: &[&str] = &[
    "%", "B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "ms", "s", "min", "h", "days", "points", "x",
];

/// Returns true if `fresh` is the output that the page shows.
pub(super) fn matches(shown: &[String], fresh: &[String], figures_vary: bool) -> bool {
    let form = |line: &String| if figures_vary { mask(line) } else { line.trim_end().to_owned() };
    let fresh: Vec<String> = trimmed(fresh).iter().map(form).collect();
    let shown: Vec<String> = shown.iter().map(form).collect();
    align(&shown, &fresh).is_some()
}

/// Returns the shown lines with fresh figures; `None` if the lines differ by more than that.
pub(super) fn fill(shown: &[String], fresh: &[String]) -> Option<Vec<String>> {
    let fresh: Vec<String> = trimmed(fresh).iter().map(|line| line.trim_end().into()).collect();
    if !shown.iter().any(|line| line == ANY) {
        return Some(fresh);
    }
    let masked = |lines: &[String]| lines.iter().map(|line| mask(line)).collect::<Vec<_>>();
    let aligned = align(&masked(shown), &masked(&fresh))?;
    let line = |index: Option<usize>| index.map_or(ANY.to_owned(), |index| fresh[index].clone());
    Some(aligned.into_iter().map(line).collect())
}

/// Returns the text of a difference.
pub(super) fn difference(command: &str, shown: &[String], fresh: &[String]) -> String {
    let block =
        |lines: &[String]| lines.iter().flat_map(|line| ["    ", line, "\n"]).collect::<String>();
    let (shown, fresh) = (block(shown), block(trimmed(fresh)));
    format!("$ {command}\n  the page shows\n{shown}  the program prints\n{fresh}")
}

/// Returns the lines without the empty ones at the end.
fn trimmed(mut lines: &[String]) -> &[String] {
    while let [rest @ .., last] = lines
        && last.trim().is_empty()
    {
        lines = rest;
    }
    lines
}

/// Aligns lines; returns for each shown line the index of its fresh line, `None` for [`ANY`].
fn align(shown: &[String], fresh: &[String]) -> Option<Vec<Option<usize>>> {
    // reachable[i][j]: the first j fresh lines can be those of the first i shown lines.
    let mut reachable = vec![vec![false; fresh.len() + 1]; shown.len() + 1];
    reachable[0][0] = true;
    for (i, line) in shown.iter().enumerate() {
        for j in 0..=fresh.len() {
            reachable[i + 1][j] = if line == ANY {
                reachable[i][j] || (j > 0 && reachable[i + 1][j - 1])
            } else {
                j > 0 && reachable[i][j - 1] && *line == fresh[j - 1]
            };
        }
    }
    let (mut i, mut j) = (shown.len(), fresh.len());
    if !reachable[i][j] {
        return None;
    }
    let mut aligned = vec![None; shown.len()];
    while i > 0 {
        if shown[i - 1] != ANY {
            (i, j) = (i - 1, j - 1);
            aligned[i] = Some(j);
        } else if reachable[i - 1][j] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    Some(aligned)
}

/// Returns a line with `0` for each number with its sign and unit, and without its columns.
fn mask(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let unit = word.trim_end_matches([',', ')', ';', '.', ':']);
        match words.last_mut() {
            Some(last) if last.ends_with('0') && UNITS.contains(&unit) => {
                last.push_str(&word[unit.len()..]);
            }
            last => {
                let masked = mask_word(word);
                let is_bound = last.is_some_and(|last| last == ">" || last == "<");
                // `> 99.9 %` is a share that is not exactly 100.0 %.
                if is_bound && masked.starts_with('0') {
                    words.pop();
                }
                words.push(masked);
            }
        }
    }
    words.join(" ")
}

fn mask_word(word: &str) -> String {
    if word.len() > 3 && word.bytes().all(|byte| byte == b'-') {
        return "---".to_owned();
    }
    let mut masked = String::new();
    let mut rest = word;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        masked.push_str(rest[..at].trim_end_matches(['+', '-']));
        masked.push('0');
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
        let end = rest[at..].find(|c| !is_part(c)).map_or(rest.len(), |len| at + len);
        // A comma or a period at the end belongs to the sentence.
        rest = &rest[rest[..end].trim_end_matches(['.', ',']).len()..];
        let unit = rest.trim_end_matches([',', ')', ';', '.', ':']);
        if UNITS.contains(&unit) {
            rest = &rest[unit.len()..];
        }
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn figures_are_masked_with_units_and_columns() {
        assert_eq!(mask("a  1,234 KiB   99.9 %  -3 x"), "a 0 0 0");
        assert_eq!(mask("took 3.5 ms, then 12."), "took 0, then 0.");
        assert_eq!(mask("gain  311x (4.39x)  ------"), "gain 0 (0) ---");
        assert_eq!(mask("pid 4270: B"), "pid 0: B");
        assert_eq!(mask("share  > 99.9 %  1 > file"), "share 0 0 > file");
    }

    #[test]
    fn any_lines_match_dots() {
        let fresh = lines("a 1\nb\nc\nd 4\n\n");
        assert!(matches(&lines("a 1\n...\nd 4"), &fresh, false));
        assert!(matches(&lines("a 2\n...\nd 5"), &fresh, true));
        assert!(!matches(&lines("a 2\n...\nd 4"), &fresh, false));
        assert!(!matches(&lines("a 1\nd 4"), &fresh, false));
        assert!(matches(&lines("...\nb\n..."), &fresh, false));
        assert!(matches(&[], &lines("\n"), false) && !matches(&[], &fresh, false));
    }

    #[test]
    fn fresh_figures_replace_shown_ones() {
        let fresh = lines("a 10\nb\nc\nd 40");
        let filled = fill(&lines("a 1\n...\nd 4"), &fresh).unwrap();
        assert_eq!(filled, lines("a 10\n...\nd 40"));
        assert_eq!(fill(&lines("x"), &fresh).unwrap(), fresh);
        assert_eq!(fill(&lines("x\n..."), &fresh), None);
    }
}
