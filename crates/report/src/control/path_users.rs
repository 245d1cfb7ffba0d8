//! Users of a path, in words.

use larder_schema::control::PathUsers;

/// Returns the clause that a path is in use, with its users, as far as they are known.
#[must_use]
pub fn in_use(path: &str, users: &PathUsers) -> String {
    let first = users.first.iter().map(|user| user.description.clone());
    let others = (users.others > 0).then(|| format!("{} more", users.others));
    let users: Vec<String> = first.chain(others).collect();
    let joint = if users.is_empty() { "" } else { ": " };
    format!("{path} is in use{joint}{}", users.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::control::PathUser;

    #[test]
    fn the_first_users_are_named_and_the_others_counted() {
        let user = |pid| PathUser { pid: Some(pid), description: format!("process {pid}") };
        let mut users = PathUsers::default();
        assert_eq!(in_use("/m", &users), "/m is in use");
        users.first = vec![user(1), user(2)];
        assert_eq!(in_use("/m", &users), "/m is in use: process 1, process 2");
        users.others = 7;
        assert_eq!(in_use("/m", &users), "/m is in use: process 1, process 2, 7 more");
    }
}
