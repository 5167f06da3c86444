//! What this version of the probe knows of the operation that a newer ABI has. A copy has another of this file.

use handler_api::Host;

#[expect(clippy::unused_async, reason = "the newer version waits for its host")]
pub(crate) async fn ping(_host: &Host) -> String {
    "this plugin knows no ping".to_owned()
}
