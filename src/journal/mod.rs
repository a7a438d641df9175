//! The durable memory of decisions.
