//! Rules of the classic protocol, as Kafka has them, each as a scenario.

mod bounds;
mod leaving;
mod offsets;
mod rebalance;
mod refresh;
mod statics;
mod timeouts;
mod undo;
