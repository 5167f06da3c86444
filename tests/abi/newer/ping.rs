//! The newer probe asks its host for the operation that its ABI has.

use handler_api::{Host, control};

pub(crate) async fn ping(host: &Host) -> String {
    let answer = host.control::<control::Ping>(&control::Nothing {}).await;
    format!("{:?}", answer.map_err(|error| error.kind()))
}
