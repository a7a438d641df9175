//! The alphabet of the format: integers, names and counted bytes, little-endian, without padding.
//!
//! Every field is written and read under its name in `docs/journal-format.md`. The name costs nothing at run time
//! but makes a decoder's complaint exact, and lets a test compare the document with what the code really does.

use crate::id::{Incarnation, Lineage, NodeName, ParticipantName, TransactionId};
use std::str::FromStr;

/// Why bytes with a good checksum are not the entry that they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field {field} {why}")]
pub struct Malformed {
    /// The field's name in the format document.
    pub field: &'static str,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Appends fields to a buffer.
pub struct Encoder<'a>(pub &'a mut Vec<u8>);

impl Encoder<'_> {
    pub fn u8(&mut self, field: &'static str, value: u8) {
        trace::note(field, "u8");
        self.0.push(value);
    }

    pub fn u16(&mut self, field: &'static str, value: u16) {
        trace::note(field, "u16");
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u32(&mut self, field: &'static str, value: u32) {
        trace::note(field, "u32");
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn u64(&mut self, field: &'static str, value: u64) {
        trace::note(field, "u64");
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// A name: its length in one byte, then its ASCII bytes.
    pub fn name(&mut self, field: &'static str, name: &str) {
        trace::note(field, "name");
        self.0.push(u8::try_from(name.len()).expect("names have at most 24 bytes"));
        self.0.extend_from_slice(name.as_bytes());
    }

    /// Up to 255 bytes after their count.
    pub fn bytes8(&mut self, field: &'static str, bytes: &[u8]) {
        trace::note(field, "bytes8");
        self.0.push(u8::try_from(bytes.len()).expect("checked against its limit before encoding"));
        self.0.extend_from_slice(bytes);
    }

    /// Up to 65535 bytes of UTF-8 after their count.
    pub fn text16(&mut self, field: &'static str, text: &str) {
        trace::note(field, "text16");
        let length = u16::try_from(text.len()).expect("checked against its limit before encoding");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Bytes after their count in four bytes.
    pub fn bytes32(&mut self, field: &'static str, bytes: &[u8]) {
        trace::note(field, "bytes32");
        let length = u32::try_from(bytes.len()).expect("checked against its limit before encoding");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(bytes);
    }

    pub fn transaction(&mut self, id: TransactionId) {
        assert!(id.sequence > 0, "sequences count from 1");
        self.name("transaction.node", id.node.as_str());
        self.u64("transaction.incarnation", id.incarnation.0);
        self.u64("transaction.sequence", id.sequence);
    }
}

/// Takes fields off a slice.
pub struct Decoder<'a>(pub &'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, field: &'static str, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed { field, why: "is cut short" })?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed { field, why: "is cut short" })?;
        self.0 = rest;
        Ok(*taken)
    }

    fn counted(&mut self, field: &'static str, length: u32) -> Result<&'a [u8], Malformed> {
        self.take(field, usize::try_from(length).map_err(|_| Malformed { field, why: "is longer than memory" })?)
    }

    pub fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        trace::note(field, "u8");
        Ok(self.array::<1>(field)?[0])
    }

    pub fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        trace::note(field, "u16");
        self.array(field).map(u16::from_le_bytes)
    }

    pub fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        trace::note(field, "u32");
        self.array(field).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        trace::note(field, "u64");
        self.array(field).map(u64::from_le_bytes)
    }

    fn name<T: FromStr>(&mut self, field: &'static str) -> Result<T, Malformed> {
        trace::note(field, "name");
        let length = self.array::<1>(field)?[0];
        let bytes = self.take(field, usize::from(length))?;
        let name = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
        name.ok_or(Malformed { field, why: "is not such a name" })
    }

    pub fn node(&mut self, field: &'static str) -> Result<NodeName, Malformed> {
        self.name(field)
    }

    pub fn participant(&mut self, field: &'static str) -> Result<ParticipantName, Malformed> {
        self.name(field)
    }

    pub fn incarnation(&mut self, field: &'static str) -> Result<Incarnation, Malformed> {
        self.u64(field).map(Incarnation)
    }

    pub fn lineage(&mut self, field: &'static str) -> Result<Lineage, Malformed> {
        self.u64(field).map(Lineage)
    }

    pub fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed { field, why: "is neither 0 nor 1" }),
        }
    }

    pub fn bytes8(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        trace::note(field, "bytes8");
        let length = self.array::<1>(field)?[0];
        self.take(field, usize::from(length))
    }

    pub fn text16(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        trace::note(field, "text16");
        let length = u16::from_le_bytes(self.array(field)?);
        let bytes = self.take(field, usize::from(length))?;
        std::str::from_utf8(bytes).map_err(|_| Malformed { field, why: "is not UTF-8" })
    }

    pub fn bytes32(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        trace::note(field, "bytes32");
        let length = u32::from_le_bytes(self.array(field)?);
        self.counted(field, length)
    }

    pub fn transaction(&mut self) -> Result<TransactionId, Malformed> {
        let id = TransactionId {
            node: self.node("transaction.node")?,
            incarnation: self.incarnation("transaction.incarnation")?,
            sequence: self.u64("transaction.sequence")?,
        };
        match id.sequence {
            0 => Err(Malformed { field: "transaction.sequence", why: "is 0" }),
            _ => Ok(id),
        }
    }

    /// Every byte must have had a meaning.
    pub fn end(self) -> Result<(), Malformed> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed { field: "content", why: "is longer than its fields" }),
        }
    }
}

#[cfg(not(test))]
mod trace {
    #[inline(always)]
    pub fn note(_field: &'static str, _kind: &'static str) {}
}

/// What the test sees of each field: its name and its type, in order.
#[cfg(test)]
pub mod trace {
    use std::cell::RefCell;
    thread_local!(static FIELDS: RefCell<Vec<(&'static str, &'static str)>> = const { RefCell::new(Vec::new()) });

    pub fn note(field: &'static str, kind: &'static str) {
        FIELDS.with_borrow_mut(|fields| fields.push((field, kind)));
    }

    pub fn take() -> Vec<(&'static str, &'static str)> {
        FIELDS.take()
    }
}
