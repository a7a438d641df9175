//! The settings that a participant's sessions are given: which of them are not for others to set.

use super::participant::{Kind, ParticipantConfig};

/// What Handfast sets itself, since what it promises rests on it, and what to say in its place.
const OURS: [(Kind, &str, &str); 12] = [
    (Kind::Postgres, "application_name", "recovery finds sessions by it"),
    (Kind::Postgres, "default_transaction_read_only", "nothing may be written outside of a branch's transaction"),
    (Kind::Postgres, "session_authorization", "only who logged in can finish what it prepared"),
    (Kind::Postgres, "lock_timeout", "say transaction.lock_timeout"),
    (Kind::Mysql, "autocommit", "a session outside of a transaction commits by itself"),
    (Kind::Mysql, "completion_type", "an end of a branch may begin nothing"),
    (Kind::Mysql, "innodb_lock_wait_timeout", "say transaction.lock_timeout"),
    (Kind::Mysql, "sql_log_bin", "a replica that is promoted would not have it"),
    (Kind::Mysql, "timestamp", "it stands still then"),
    (Kind::Mysql, "transaction_read_only", "declare branches read-only by Options::read_only"),
    (Kind::Mysql, "tx_read_only", "declare branches read-only by Options::read_only"),
    (Kind::Mysql, "wsrep_on", "it keeps writes from the other nodes"),
];

/// What is wrong with a participant's settings.
pub(super) fn wrong(participant: &ParticipantConfig) -> Option<String> {
    participant.settings.iter().find_map(|(name, value)| {
        let said = name.to_ascii_lowercase();
        let ours = OURS.iter().find(|(kind, ours, _)| (*kind, *ours) == (participant.kind, said.as_str()));
        match ours {
            Some((.., why)) => Some(format!("settings.{name} is Handfast's to set: {why}")),
            None if said.starts_with("handfast.") => Some(format!("settings.{name} is Handfast's to set")),
            None if !is_name(&said) => Some(format!("settings.{name:?} is not the name of a setting")),
            None if value.contains('\0') => Some(format!("settings.{name} has a character that no server takes")),
            None => None,
        }
    })
}

/// Letters, digits and `_`, in parts that dots divide.
fn is_name(name: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.split('.').all(is_word)
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn refused(kind: &str, setting: &str) -> Option<String> {
        let toml = format!(
            "node = \"n\"\njournal.directory = \"/j\"\n[participants.p]\nkind = {kind:?}\nurl = \"u\"\nsettings = {{ {setting} }}"
        );
        Config::from_toml(&toml).err().map(|error| error.chain())
    }

    #[test]
    fn what_the_promise_rests_on_is_not_for_others_to_set() {
        for (kind, setting) in [
            ("postgres", "application_name = \"x\""),
            ("postgres", "Default_Transaction_Read_Only = \"off\""),
            ("postgres", "\"handfast.branch\" = \"x\""),
            ("mysql", "autocommit = 0"),
            ("mysql", "innodb_lock_wait_timeout = 7"),
        ] {
            let why = refused(kind, setting).unwrap_or_else(|| panic!("{setting}"));
            assert!(why.contains("participants.p: settings.") && why.contains("Handfast's to set"), "{why}");
        }
        for name in ["a b", "a; DROP TABLE t", "1a", "", "a..b", "a=b", "ä"] {
            let why = refused("mysql", &format!("{name:?} = \"x\"")).unwrap_or_else(|| panic!("{name}"));
            assert!(why.contains("not the name of a setting"), "{why}");
        }
        assert_eq!(refused("postgres", "statement_timeout = \"5s\", \"app.tenant\" = \"a 'b' \\\\\""), None);
        // What is one database's is the other's not.
        assert_eq!(refused("mysql", "sql_mode = \"ANSI\", max_execution_time = 5000"), None);
    }
}
