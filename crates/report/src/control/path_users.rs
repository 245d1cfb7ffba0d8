//! Users of a path, in words.

use larder_schema::control::PathUsers;

/// Returns the clause that a path is in use, with its users, as far as they are known. A sentence
/// on processes that may be users follows.
#[must_use]
pub fn in_use(path: &str, users: &PathUsers) -> String {
    let descriptions = |notes: bool| {
        let wanted = users.first.iter().filter(move |user| user.is_note() == notes);
        wanted.map(|user| user.description.clone()).collect::<Vec<_>>()
    };
    let mut named = descriptions(false);
    named.extend((users.others > 0).then(|| format!("{} more", users.others)));
    let joint = if named.is_empty() { "" } else { ": " };
    let clause = format!("{path} is in use{joint}{}", named.join(", "));
    [vec![clause], descriptions(true)].concat().join(". ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::control::{PathUser, UNINSPECTED};

    #[test]
    fn the_first_users_are_named_and_the_others_counted() {
        let user = |pid| PathUser { pid: Some(pid), description: format!("process {pid}") };
        let mut users = PathUsers::default();
        assert_eq!(in_use("/m", &users), "/m is in use");
        users.first = vec![user(1), user(2)];
        assert_eq!(in_use("/m", &users), "/m is in use: process 1, process 2");
        users.others = 7;
        assert_eq!(in_use("/m", &users), "/m is in use: process 1, process 2, 7 more");
        let note = format!("{UNINSPECTED}process 9");
        users.first.push(PathUser { pid: None, description: note.clone() });
        let all = format!("/m is in use: process 1, process 2, 7 more. {note}");
        assert_eq!(in_use("/m", &users), all);
    }
}
