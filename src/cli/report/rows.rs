//! Rows of a report that are made one at a time.

use serde::{Serialize, Serializer};

/// Rows that are made anew, one at a time, each time somebody looks through them: ten thousand of them need no more
/// memory than what they are made from.
pub struct Rows<'a, T>(Box<dyn Fn() -> Box<dyn Iterator<Item = T> + 'a> + 'a>);

impl<'a, T: 'a> Rows<'a, T> {
    /// Rows as this makes them.
    pub fn new<I: Iterator<Item = T> + 'a>(make: impl Fn() -> I + 'a) -> Self {
        Self(Box::new(move || Box::new(make())))
    }

    /// No rows.
    pub fn none() -> Self {
        Self::new(std::iter::empty)
    }

    /// The rows, made now.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (self.0)()
    }
}

impl<'a, T: Clone + 'a> Rows<'a, T> {
    /// Rows that were made before.
    pub fn of(rows: Vec<T>) -> Self
    where
        T: 'static,
    {
        let rows = std::rc::Rc::new(rows);
        Self::new(move || {
            let rows = std::rc::Rc::clone(&rows);
            (0..rows.len()).map(move |at| rows[at].clone())
        })
    }
}

impl<'a, T: Serialize + 'a> Serialize for Rows<'a, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}
