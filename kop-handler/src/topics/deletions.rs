//! Notes in the metadata store that a topic was deleted, as KoP writes them: its brokers drop the offsets that groups
//! committed in the topic when they see one. Brokers of ours learn of it by the host's events.
//!
//! Only needed while a cluster is moved from KoP, one broker at a time, and harmless afterwards: each note is removed
//! again. It must not know groups.

use std::sync::Arc;
use std::time::Duration;

use handler_api::metadata::{DeleteValue, PutRequest, PutValue};
use handler_api::{ErrorCode, Host};
use tokio::sync::Semaphore;

/// Where KoP keeps its notes.
const PATH: &str = "/kop/delete_topics";
/// How long a note stays: KoP's brokers read it when it appears.
const STAYS: Duration = Duration::from_secs(60);
/// Notes that wait to be removed; further ones are left to KoP's brokers, which remove those that they acted on.
const MAX_NOTES: usize = 10_000;

/// Writes the notes.
#[derive(Debug)]
pub(super) struct Deletions {
    room: Arc<Semaphore>,
}

impl Deletions {
    pub(super) fn new() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_NOTES)),
        }
    }

    /// Notes that the topic that Kafka clients call `name` was deleted; what comes of it is nobody's to wait for.
    pub(super) fn note(&self, host: &Host, name: &str) {
        let host = host.clone();
        let room = Arc::clone(&self.room).try_acquire_owned().ok();
        let note = PutRequest {
            path: format!("{PATH}/{}", url_encoded(name)),
            ..PutRequest::default()
        };
        tokio::spawn(async move {
            if let Err(error) = host.control::<PutValue>(&note).await {
                tracing::warn!(path = note.path, %error, "brokers that run KoP are not told of a deleted topic: its committed offsets stay there");
                return;
            }
            if room.is_none() {
                return;
            }
            tokio::time::sleep(STAYS).await;
            match host.control::<DeleteValue>(&note).await {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorCode::NotFound => {} // KoP was faster
                Err(error) => {
                    tracing::debug!(path = note.path, %error, "the note of a deleted topic stays");
                }
            }
        });
    }
}

/// As Java's `URLEncoder` does it.
fn url_encoded(text: &str) -> String {
    use std::fmt::Write;

    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            // Writing to a string cannot fail.
            byte => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use handler_api::metadata::{ListChildren, Path};
    use host_shim::sim::SimHost;

    use super::*;

    #[test]
    fn names_are_encoded_as_by_java() {
        // What `java.net.URLEncoder.encode(name, UTF_8)` gives.
        for (name, encoded) in [
            ("a.b-c_d*E9", "a.b-c_d*E9"),
            (
                "persistent://public/default/t",
                "persistent%3A%2F%2Fpublic%2Fdefault%2Ft",
            ),
            ("a b+~ü", "a+b%2B%7E%C3%BC"),
        ] {
            assert_eq!(url_encoded(name), encoded);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_note_stays_for_a_minute_and_goes() {
        let sim = SimHost::new(1);
        let host = sim.host();
        let notes = async || {
            let path = Path {
                path: PATH.to_owned(),
            };
            host.control::<ListChildren>(&path).await.unwrap().paths
        };
        Deletions::new().note(&host, "t/n/x");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(notes().await, ["/kop/delete_topics/t%2Fn%2Fx"]);
        tokio::time::sleep(STAYS).await;
        assert_eq!(notes().await, Vec::<String>::new());
    }
}
