//! URLs for people.

/// Without the password, wherever the driver takes one, and without what follows a question mark.
pub(super) fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
    match authority.rsplit_once('@') {
        // Key-value strings of PostgreSQL hold `password=`: show nothing of them.
        _ if scheme.is_empty() => String::from("(hidden)"),
        // A question mark may be part of the password.
        _ if query.contains('@') => format!("{scheme}://(hidden)"),
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{host}")
        }
        None => format!("{scheme}://{authority}"),
    }
}
