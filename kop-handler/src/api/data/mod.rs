//! APIs that move records: producing, fetching, offsets.

pub(crate) mod describe_producers;
pub(crate) mod fetch;
pub(crate) mod fetch_sessions;
pub(crate) mod init_producer_id;
pub(crate) mod list_offsets;
pub(crate) mod offset_for_leader_epoch;
mod partitions;
pub(crate) mod produce;
