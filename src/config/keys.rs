//! The keys that there are, by the code's own structs: what is misspelt is refused with what was probably meant.

use super::source::{Source, of_value};
use super::{Config, JournalConfig, ParticipantConfig, PoolConfig, RecoveryConfig, TransactionConfig};
use config::{Value, ValueKind};
use serde::de::value::Error as Nothing;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

/// The keys of a table in the order of the code, `None` where any name will do.
pub(super) fn of(table: &[&str]) -> Option<&'static [&'static str]> {
    match table {
        [] => fields::<Config>(),
        ["journal"] => fields::<JournalConfig>(),
        ["transaction"] => fields::<TransactionConfig>(),
        ["recovery"] => fields::<RecoveryConfig>(),
        ["pool"] => fields::<PoolConfig>(),
        ["participants", _] => fields::<ParticipantConfig>(),
        _ => None,
    }
}

fn fields<T: Deserialize<'static>>() -> Option<&'static [&'static str]> {
    let mut names = None;
    // It fails by design, once it has the names.
    let _ = T::deserialize(Names(&mut names));
    names
}

/// Takes down what a struct asks for, and gives it nothing.
struct Names<'a>(&'a mut Option<&'static [&'static str]>);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Nothing;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Nothing> {
        Err(Nothing::custom("only names are asked for"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        *self.0 = Some(fields);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Every key that is unknown, and every participant that only a misspelt name can have made, in one line.
pub(super) fn check(root: &Value) -> Result<(), String> {
    let mut wrong = Vec::new();
    look(root, &mut Vec::new(), &mut wrong);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

fn look<'a>(value: &'a Value, path: &mut Vec<&'a str>, wrong: &mut Vec<String>) {
    let ValueKind::Table(table) = &value.kind else { return };
    let known = of(path);
    // Not in the order of a hash: the same text is the same error.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.as_str());
    for (key, inner) in entries {
        if known.is_some_and(|known| !known.contains(&key.as_str())) {
            wrong.push(unknown(path, key, inner));
            continue;
        }
        path.push(key);
        if let (["participants", name], ValueKind::Table(keys)) = (path.as_slice(), &inner.kind)
            && !keys.contains_key("kind")
        {
            let others = table.keys().map(String::as_str).filter(|other| other != name);
            wrong.push(without_kind(name, inner, nearest(name, others)));
        }
        look(inner, path, wrong);
        path.pop();
    }
}

fn unknown(path: &[&str], key: &str, value: &Value) -> String {
    let by = Spelling::of(value);
    let known = of(path).unwrap_or_default();
    let said = by.spell(path, key);
    match nearest(key, known.iter().copied()) {
        Some(meant) => format!("{said} is unknown: did you mean {}?", by.spell(path, meant)),
        None => match elsewhere(key) {
            Some(section) => format!("{said} is unknown: did you mean {}?", by.spell(&[section], key)),
            None => format!("{said} is unknown: there are {}", known.join(", ")),
        },
    }
}

fn without_kind(name: &str, value: &Value, meant: Option<&str>) -> String {
    let by = Spelling::of(value);
    let said = by.spell(&["participants"], name);
    match meant {
        Some(meant) => format!("{said} has no kind: did you mean {}?", by.spell(&["participants"], meant)),
        None => format!("{said} has no kind: \"postgres\" or \"mysql\""),
    }
}

/// How a key is written where it was found.
struct Spelling {
    source: Source,
    is_table: bool,
}

impl Spelling {
    fn of(value: &Value) -> Self {
        Self { source: of_value(value), is_table: matches!(value.kind, ValueKind::Table(_)) }
    }

    fn spell(&self, path: &[&str], key: &str) -> String {
        let all = path.iter().copied().chain([key]);
        match self.source {
            Source::Environment => {
                let rest = if self.is_table { "__.." } else { "" };
                let names: Vec<_> = all.map(str::to_uppercase).collect();
                format!("HANDFAST__{}{rest}", names.join("__"))
            }
            Source::File | Source::Default => all.collect::<Vec<_>>().join("."),
        }
    }
}

/// The name that is a slip of the finger away.
fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let by_distance = known.map(|name| (strsim::damerau_levenshtein(key, name), name));
    let (distance, name) = by_distance.min()?;
    (distance <= 1.max(key.chars().count() / 3)).then_some(name)
}

/// The section in which this is a key.
fn elsewhere(key: &str) -> Option<&'static str> {
    let has = |section: &&str| of(&[section]).is_some_and(|keys| keys.contains(&key));
    of(&[]).unwrap_or_default().iter().copied().find(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_its_keys() {
        for section in of(&[]).unwrap().iter().filter(|key| !["node", "participants"].contains(key)) {
            assert!(of(&[section]).is_some_and(|keys| !keys.is_empty()), "{section}");
        }
        assert!(of(&["participants", "ledger"]).unwrap().contains(&"password_file"));
        assert_eq!(of(&["participants"]), None);
    }

    #[test]
    fn what_is_near_is_meant() {
        let keys = of(&["transaction"]).unwrap();
        let of = |key| nearest(key, keys.iter().copied());
        assert_eq!(of("timeuot"), Some("timeout"));
        assert_eq!(of("lock-timeout"), Some("lock_timeout"));
        assert_eq!(of("retry"), None);
        assert_eq!(of("x"), None);
        assert_eq!(elsewhere("interval"), Some("recovery"));
        assert_eq!(elsewhere("frobnicate"), None);
    }
}
