//! How a session is set up, and set up anew for the next branch.

use super::super::session::Product;
use super::{Question, Shows, Sql, Step};
use crate::id::SessionName;
use std::collections::BTreeMap;

/// What changes the meaning of statements, and is restored where an application may have set it.
const RESTORED: [&str; 16] = [
    "sql_mode",
    "time_zone",
    "character_set_client",
    "character_set_results",
    "collation_connection",
    "foreign_key_checks",
    "unique_checks",
    "sql_safe_updates",
    "sql_select_limit",
    "sql_auto_is_null",
    "sql_big_selects",
    "group_concat_max_len",
    "div_precision_increment",
    "lc_time_names",
    "completion_type",
    "lock_wait_timeout",
];

/// Of those, what only one of the two knows by this name.
fn restored_by(product: Product) -> [&'static str; 3] {
    match product {
        Product::MySql => ["transaction_isolation", "transaction_read_only", "max_execution_time"],
        Product::MariaDb => ["tx_isolation", "tx_read_only", "max_statement_time"],
    }
}

impl Sql {
    /// The statement that makes a session's settings again what they are now: one value. `timestamp` has no value that
    /// would last.
    pub(in super::super) fn restoring(product: Product, others: &[String]) -> String {
        let always = || RESTORED.into_iter().chain(restored_by(product));
        let others =
            others.iter().map(String::as_str).filter(|other| !always().any(|one| one.eq_ignore_ascii_case(other)));
        let each = always().chain(others);
        // Read as text, some of them are given in digits that SET takes for a number only without quotes.
        let value = |name| format!("', {name} = ', IF(@@{name} REGEXP '^[0-9.]+$', @@{name}, QUOTE(@@{name}))");
        format!("SELECT CONCAT('SET SESSION timestamp = DEFAULT', {})", each.map(value).collect::<Vec<_>>().join(", "))
    }

    /// Gives up every lock that the session has, and takes its name again: one row, `1`.
    ///
    /// For a moment it has no name. Nothing is at stake then: it has no branch, and gets none without the name.
    pub(in super::super) fn rename_session(session: &SessionName) -> Question {
        let only_its_name = format!("SELECT RELEASE_ALL_LOCKS() * 0 + GET_LOCK('{session}', 0)");
        Question::in_step().shown(Step::Nonce, &only_its_name, Shows::Row("1".into()))
    }
}

/// Sets a session's settings. Digits are numbers: some settings take nothing else.
pub(in super::super) fn set(settings: &BTreeMap<String, String>) -> String {
    let each = settings.iter().map(|(name, value)| {
        let is_number = !value.is_empty() && value.parse::<f64>().is_ok_and(f64::is_finite);
        let value = if is_number { value.clone() } else { quoted(value) };
        format!("{name} = {value}")
    });
    format!("SET SESSION {}", each.collect::<Vec<_>>().join(", "))
}

/// In single quotes. Where the server's `sql_mode` has backslashes mean themselves they are doubled; nothing gets out.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_a_value() {
        let all = [("a", "5000"), ("b", "ON"), ("c", "x'; DROP TABLE t -- \\"), ("d", ""), ("e", "inf"), ("f", "-1.5")];
        let all = all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let text = r"SET SESSION a = 5000, b = 'ON', c = 'x''; DROP TABLE t -- \\', d = '', e = 'inf', f = -1.5";
        assert_eq!(set(&all), text);
    }

    #[test]
    fn each_setting_is_restored_once() {
        let text = Sql::restoring(Product::MySql, &["SQL_MODE".into(), "optimizer_switch".into()]);
        assert_eq!(
            (text.matches(", sql_mode = ").count(), text.matches(", optimizer_switch = ").count()),
            (1, 1),
            "{text}"
        );
        assert!(!text.contains("SQL_MODE"), "{text}");
    }
}
