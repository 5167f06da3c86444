//! A second place for what makes a topic ours: its id, its configurations and its entry format, in the metadata store.
//!
//! Old Pulsar releases (2.10.0) drop all properties of a topic when somebody adds partitions to it, and have no way to
//! give them back but ours. A record names the creation that it belongs to, so that a topic that was deleted and made
//! again does not inherit from its predecessor. It must not know what a property means.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use handler_api::metadata::{DeleteValue, GetValue, Path, PutRequest, PutValue};
use handler_api::topics::Topic as HostTopic;
use handler_api::{ErrorCode, Host};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::deletions::url_encoded;

/// Where the records lie.
const PATH: &str = "/kop/topics";
/// Version of a record's form.
const VERSION: i64 = 1;
/// What the names of the properties that are recorded start with: KoP's and ours.
const PREFIX: &str = "kafka";

/// The properties of a topic that a record holds, by name.
type Recorded = BTreeMap<String, String>;

/// The records, and which of them are known to be as they should be.
#[derive(Debug)]
pub(super) struct Records {
    host: Host,
    state: Mutex<State>,
    /// Topics that are remembered at once; one more and all are looked at again.
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    written: HashMap<String, (i64, Recorded)>,
    /// Topics whose records are to be looked at.
    waiting: BTreeMap<String, (i64, Recorded)>,
    is_writing: bool,
}

/// A record as it is stored.
#[derive(Debug, PartialEq, Eq)]
struct Stored {
    created_ms: i64,
    properties: Recorded,
}

impl Records {
    pub(super) fn new(host: Host, most: usize) -> Arc<Self> {
        Arc::new(Self {
            host,
            state: Mutex::default(),
            most,
        })
    }

    /// Sees to it, soon, that the record of a topic says what its properties do. Nobody waits for it.
    pub(super) fn remember(self: &Arc<Self>, topic: &HostTopic) {
        // Without the time of its creation a record could not be told from one of another topic.
        if topic.created_ms == 0 {
            return;
        }
        let wanted = (topic.created_ms, recorded(&topic.properties));
        let mut state = self.state.lock();
        if state.written.get(&topic.name) == Some(&wanted) || state.waiting.len() >= self.most {
            return;
        }
        state.waiting.insert(topic.name.clone(), wanted);
        if !state.is_writing {
            state.is_writing = true;
            tokio::spawn(Arc::clone(self).write_all());
        }
    }

    /// The properties that a topic had which has lost them. `None` if nothing is known of this very topic.
    pub(super) async fn lost_properties(
        &self,
        topic: &HostTopic,
    ) -> Option<HashMap<String, String>> {
        if topic.created_ms == 0 {
            return None;
        }
        let path = path(&topic.name);
        let stored = match self.host.control::<GetValue>(&path).await {
            Ok(value) => parse(&value.value),
            Err(error) if error.kind() == ErrorCode::NotFound => None,
            Err(error) => {
                tracing::warn!(topic = topic.name, %error, "the record of a topic cannot be read");
                None
            }
        };
        stored
            .filter(|stored| stored.created_ms == topic.created_ms)
            .map(|stored| stored.properties.into_iter().collect())
            .filter(|properties: &HashMap<_, _>| !properties.is_empty())
    }

    /// A topic is gone, and so is its record.
    pub(super) fn forget(self: &Arc<Self>, full_name: &str) {
        let was_known = {
            let mut state = self.state.lock();
            state.waiting.remove(full_name);
            state.written.remove(full_name).is_some()
        };
        if !was_known {
            return;
        }
        let host = self.host.clone();
        let request = PutRequest {
            path: path(full_name).path,
            ..PutRequest::default()
        };
        tokio::spawn(async move {
            // What stays belongs to a creation that no topic has any more: it is overwritten, and hurts nobody.
            if let Err(error) = host.control::<DeleteValue>(&request).await
                && error.kind() != ErrorCode::NotFound
            {
                tracing::debug!(path = request.path, %error, "the record of a deleted topic stays");
            }
        });
    }

    async fn write_all(self: Arc<Self>) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.waiting.pop_first();
                state.is_writing = next.is_some();
                next
            };
            let Some((name, wanted)) = next else {
                return;
            };
            if self.write(&name, &wanted).await {
                let mut state = self.state.lock();
                if state.written.len() >= self.most {
                    state.written.clear();
                }
                state.written.insert(name, wanted);
            }
        }
    }

    /// Writes a record if it is not as it should be. Whether it is, afterwards.
    async fn write(&self, name: &str, (created_ms, properties): &(i64, Recorded)) -> bool {
        let version = match self.host.control::<GetValue>(&path(name)).await {
            Ok(value) => {
                let is_there = parse(&value.value).is_some_and(|stored| {
                    stored.created_ms == *created_ms && stored.properties == *properties
                });
                if is_there {
                    return true;
                }
                value.version
            }
            Err(error) if error.kind() == ErrorCode::NotFound => -1,
            Err(error) => {
                tracing::debug!(topic = name, %error, "the record of a topic cannot be read");
                return false;
            }
        };
        let record = json!({
            "version": VERSION,
            "created": created_ms,
            "properties": properties,
        });
        let put = PutRequest {
            path: path(name).path,
            value: record.to_string().into(),
            expected_version: Some(version),
        };
        match self.host.control::<PutValue>(&put).await {
            Ok(_) => true,
            // Another broker was faster: it saw the same topic.
            Err(error) if error.kind() == ErrorCode::Conflict => false,
            Err(error) => {
                tracing::debug!(topic = name, %error, "the record of a topic cannot be written");
                false
            }
        }
    }
}

fn path(full_name: &str) -> Path {
    Path {
        path: format!("{PATH}/{}", url_encoded(full_name)),
    }
}

fn recorded(properties: &HashMap<String, String>) -> Recorded {
    properties
        .iter()
        .filter(|(key, _)| key.starts_with(PREFIX))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// A record; `None` for what no release wrote, or a newer one did.
fn parse(bytes: &[u8]) -> Option<Stored> {
    let record: Value = serde_json::from_slice(bytes).ok()?;
    if record.get("version")?.as_i64()? != VERSION {
        return None;
    }
    let properties = record.get("properties")?.as_object()?;
    Some(Stored {
        created_ms: record.get("created")?.as_i64()?,
        properties: properties
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: what is persisted may be added to, never changed.
    #[test]
    fn a_record_is_read_as_it_always_was() {
        let golden = include_bytes!("testdata/record-v1.json");
        let stored = parse(golden).unwrap();
        assert_eq!(stored.created_ms, 1_700_000_000_000);
        let expected = [
            ("kafkaConfig.retention.ms", "60000"),
            ("kafkaEntryFormat", "kafka"),
            ("kafkaTopicUUID", "63cbe1e4-5932-4dd7-844c-3cd7f43c661c"),
        ];
        let found: Vec<_> = stored
            .properties
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_record_of_this_version_is_none() {
        for bad in [
            &b""[..],
            b"[]",
            br#"{"version":2,"created":1,"properties":{}}"#,
            br#"{"version":1,"created":"1","properties":{}}"#,
            br#"{"version":1,"created":1}"#,
        ] {
            assert_eq!(parse(bad), None);
        }
    }
}
