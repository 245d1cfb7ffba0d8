//! The number of rounds, seeds and cases of the long random tests.
//!
//! `cargo xtask test` runs each of them with a short budget, `cargo xtask prove` with a long one.

/// The environment variable that selects the budget: `short`, which is the default, or `long`.
const BUDGET: &str = "LARDER_BUDGET";

/// Returns `long` if `LARDER_BUDGET=long`, else `short`.
pub fn budget<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// Returns true if `LARDER_BUDGET=long`.
///
/// # Panics
/// The variable has a value other than `short` and `long`.
#[must_use]
pub fn is_long() -> bool {
    let value = std::env::var_os(BUDGET);
    selects_long(value.as_deref().and_then(std::ffi::OsStr::to_str))
}

fn selects_long(value: Option<&str>) -> bool {
    match value {
        None | Some("" | "short") => false,
        Some("long") => true,
        Some(other) => panic!("{BUDGET} is {other:?}: it must be short or long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_short_unless_it_is_set_to_long() {
        assert!(!selects_long(None) && !selects_long(Some("")) && !selects_long(Some("short")));
        assert!(selects_long(Some("long")));
    }

    #[test]
    #[should_panic(expected = "must be short or long")]
    fn a_misspelled_budget_is_an_error() {
        selects_long(Some("lnog"));
    }
}
