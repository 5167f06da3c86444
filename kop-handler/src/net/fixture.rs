//! A server on the simulated host, for tests of this room.

use std::collections::HashMap;
use std::sync::Arc;

use host_shim::sim::SimHost;
use tokio::runtime::Handle;

use crate::api::Server;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::plugin::rooms;

/// A server with some settings, on a fresh host.
pub(super) async fn server(settings: &[(&str, &str)]) -> Arc<Server> {
    let pairs: HashMap<String, String> = [("kafkaListeners", "PLAINTEXT://127.0.0.1:0")]
        .iter()
        .chain(settings)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let config = Config::parse(&pairs).unwrap();
    let clock = Arc::new(SystemClock::new());
    rooms::build(config, clock, SimHost::new(1).host(), &Handle::current()).await
}
