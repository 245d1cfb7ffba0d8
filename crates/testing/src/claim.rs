//! Claims of benchmarks and long tests, which `cargo xtask prove` collects.

use std::fmt::Display;

/// Prints a claim: the statement, the figure, the figure of the peer or the bound, and if the
/// statement holds (`None` if it could not be checked; the figure then states the reason).
#[expect(clippy::print_stdout, reason = "the caller of a benchmark reads its output")]
pub fn claim(
    statement: impl Display,
    figure: impl Display,
    peer: impl Display,
    holds: impl Into<Option<bool>>,
) {
    let verdict = match holds.into() {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "skipped",
    };
    println!("claim\t{statement}\t{figure}\t{peer}\t{verdict}");
}
