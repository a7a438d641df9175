//! Values as the file has them: text.

use super::participant::{Kind, ParticipantConfig};
use super::url;
use crate::id::ParticipantName;
use crate::protocol::Acknowledge;
use serde::Serializer;
use serde::de::{self, Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

pub(super) fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

pub(super) fn acknowledge<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Acknowledge, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "applied" => Ok(Acknowledge::Applied),
        "decided" => Ok(Acknowledge::Decided),
        other => Err(de::Error::custom(format!("{other:?} is not \"applied\" or \"decided\""))),
    }
}

pub(super) fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "postgres" => Ok(Kind::Postgres),
        "mysql" => Ok(Kind::Mysql),
        other => Err(de::Error::custom(format!("{other:?} is not \"postgres\" or \"mysql\" (for MariaDB too)"))),
    }
}

pub(super) fn text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

pub(super) fn acknowledge_text<S: Serializer>(value: &Acknowledge, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match value {
        Acknowledge::Applied => "applied",
        Acknowledge::Decided => "decided",
    })
}

pub(super) fn kind_text<S: Serializer>(value: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match value {
        Kind::Postgres => "postgres",
        Kind::Mysql => "mysql",
    })
}

pub(super) fn url_text<S: Serializer>(value: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&url::without_password(value))
}

pub(super) fn by_name<S: Serializer>(
    all: &BTreeMap<ParticipantName, ParticipantConfig>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(all.iter().map(|(name, one)| (name.as_str(), one)))
}

pub(super) fn participants<'de, D>(deserializer: D) -> Result<BTreeMap<ParticipantName, ParticipantConfig>, D::Error>
where
    D: Deserializer<'de>,
{
    BTreeMap::<String, ParticipantConfig>::deserialize(deserializer)?
        .into_iter()
        .map(|(name, config)| Ok((name.parse().map_err(de::Error::custom)?, config)))
        .collect()
}
