//! What the examples share with the benchmark: the rows of the click log.

pub mod clicks;
