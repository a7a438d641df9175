//! Sizes with units.

use serde::Serializer;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;

const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// A number of bytes: `65536`, `"64 KiB"`, `"16MiB"`, `"1 GB"`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Size)
}

/// In the largest unit that divides it.
pub(super) fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&shown(*bytes))
}

fn shown(bytes: u64) -> String {
    let divides = |(_, unit): &&(&str, u64)| unit.is_power_of_two() && bytes > 0 && bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().find(divides).unwrap_or(&("B", 1));
    format!("{} {name}", bytes / unit)
}

struct Size;

impl Visitor<'_> for Size {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"16 MiB\", or a number of bytes")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::invalid_value(de::Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "" => 1,
        name => UNITS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("65536", 65536), ("64 KiB", 65536), ("16MiB", 16 << 20), (" 2 gib ", 2 << 30), ("5 MB", 5_000_000)]
        {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5 MiB", "1 parsec", "99999999999 GiB", "1 MiB 2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_so_that_they_read_the_same() {
        for (bytes, text) in
            [(16 << 20, "16 MiB"), (65536, "64 KiB"), (65537, "65537 B"), (0, "0 B"), (1 << 30, "1 GiB")]
        {
            assert_eq!((shown(bytes).as_str(), parse(&shown(bytes))), (text, Some(bytes)));
        }
    }
}
