//! The standalone broker.
fn main() {}
