//! Users of a path, in words.

use larder_schema::control::PathUser;

/// Maximum number of users that are named.
const USERS_SHOWN_MAX: usize = 5;

/// Returns the clause that a path is in use, with its users, as far as they are known.
#[must_use]
pub fn in_use(path: &str, users: &[PathUser]) -> String {
    let shown = users.iter().take(USERS_SHOWN_MAX).map(|user| user.description.clone());
    let more = users.len().saturating_sub(USERS_SHOWN_MAX);
    let more = (more > 0).then(|| format!("{more} more"));
    let users: Vec<String> = shown.chain(more).collect();
    let joint = if users.is_empty() { "" } else { ": " };
    format!("{path} is in use{joint}{}", users.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_users_are_named_and_the_others_counted() {
        let user = |pid| PathUser { pid: Some(pid), description: format!("process {pid}") };
        let users: Vec<PathUser> = (1..8).map(user).collect();
        assert_eq!(in_use("/m", &[]), "/m is in use");
        assert_eq!(in_use("/m", &users[..2]), "/m is in use: process 1, process 2");
        assert!(in_use("/m", &users).ends_with("process 5, 2 more"), "{}", in_use("/m", &users));
    }
}
