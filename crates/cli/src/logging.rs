//! The log on standard error: warnings and errors, or the levels that `LARDER_LOG` selects.
//!
//! `LARDER_LOG` is a level (`info`) or a list of levels by module (`warn,larder_io::store=debug`).

use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The environment variable that chooses levels.
const VARIABLE: &str = "LARDER_LOG";

/// Starts the log of this process.
pub(crate) fn start() {
    let value = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty());
    let parsed = value.as_deref().map(str::parse::<Targets>);
    let is_invalid = matches!(parsed, Some(Err(_)));
    let warnings = Targets::new().with_default(LevelFilter::WARN);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // An internal error would be reported on standard error, which is what failed.
        .log_internal_errors(false);
    let filter = parsed.and_then(Result::ok).unwrap_or(warnings);
    tracing_subscriber::registry().with(lines).with(filter).init();
    if is_invalid {
        tracing::warn!(
            "cannot parse {VARIABLE}; logging warnings and errors (set a level such as info, or \
             MODULE=LEVEL,...)"
        );
    }
}
