//! Producer ids: blocks of a thousand, taken from the metadata store by compare-and-set.
//!
//! A block belongs to whoever wrote it; what a broker has not given out when it stops is lost, and no id is ever given
//! out twice. Path and JSON are KoP's (`FORMATS.md`), so that ids go on where KoP left off. Kafka's source:
//! `ProducerIdManager`. It must not know what an id is used for.

use handler_api::metadata::{GetValue, Path, PutRequest, PutValue};
use handler_api::{ErrorCode, Host};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::error::Fault;

/// Where the last block that was taken is kept.
const PATH: &str = "/kop_latest_producer_id_block";
/// Ids in a block.
const BLOCK: i64 = 1000;
/// Tries against other brokers that take blocks at the same time.
const TRIES: usize = 20;

/// Gives out producer ids.
#[derive(Debug)]
pub struct ProducerIds {
    host: Host,
    broker_id: i32,
    /// Ids that were taken and not given out; empty at first.
    left: Mutex<std::ops::Range<i64>>,
}

impl ProducerIds {
    /// `broker_id` (`kafkaBrokerId`) is only written into the block, for people.
    #[must_use]
    pub fn new(host: Host, broker_id: i32) -> Self {
        Self {
            host,
            broker_id,
            left: Mutex::new(0..0),
        }
    }

    /// An id that nobody was given before.
    ///
    /// # Errors
    /// [`Fault::CoordinatorNotAvailable`] if the metadata store does not answer (the client tries again), and
    /// [`Fault::Internal`] if what it holds cannot be read or all ids are used up.
    pub async fn next(&self) -> Result<i64, Fault> {
        let mut left = self.left.lock().await;
        if left.is_empty() {
            *left = self.take_block().await?;
        }
        left.next()
            .ok_or_else(|| Fault::Internal("all producer ids are used up".to_owned()))
    }

    async fn take_block(&self) -> Result<std::ops::Range<i64>, Fault> {
        for _ in 0..TRIES {
            let path = Path {
                path: PATH.to_owned(),
            };
            let (start, version) = match self.host.control::<GetValue>(&path).await {
                Ok(value) => (next_start(&value.value)?, value.version),
                Err(error) if error.kind() == ErrorCode::NotFound => (0, -1),
                Err(error) => return Err(unavailable(&error.message)),
            };
            let end = start
                .checked_add(BLOCK)
                .ok_or_else(|| Fault::Internal("all producer ids are used up".to_owned()))?;
            let block = json!({
                "version": 1,
                "broker": self.broker_id,
                "block_start": start.to_string(),
                "block_end": (end - 1).to_string(),
            });
            let put = PutRequest {
                path: PATH.to_owned(),
                value: block.to_string().into(),
                expected_version: Some(version),
            };
            match self.host.control::<PutValue>(&put).await {
                Ok(_) => return Ok(start..end),
                Err(error) if error.kind() == ErrorCode::Conflict => {} // another broker was faster
                Err(error) => return Err(unavailable(&error.message)),
            }
        }
        Err(unavailable("other brokers take producer ids all the time"))
    }
}

fn unavailable(text: &str) -> Fault {
    Fault::CoordinatorNotAvailable(format!("no producer ids from the metadata store: {text}"))
}

/// The first id after a stored block. Numbers are written as text, and read as either.
fn next_start(stored: &[u8]) -> Result<i64, Fault> {
    let unreadable = || {
        Fault::Internal(format!(
            "{PATH} in the metadata store is no block of producer ids; remove it only if no producer is older than it"
        ))
    };
    let block: Value = serde_json::from_slice(stored).map_err(|_| unreadable())?;
    let end = block.get("block_end").ok_or_else(unreadable)?;
    let end = end
        .as_i64()
        .or_else(|| end.as_str()?.parse().ok())
        .filter(|end| *end >= 0)
        .ok_or_else(unreadable)?;
    end.checked_add(1)
        .ok_or_else(|| Fault::Internal("all producer ids are used up".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use bytes::Bytes;
    use handler_api::control::{self, Operation};
    use handler_api::{
        ApiError, AppendRequest, Appended, Handle, HostServices, Level, Owner, Position,
        ReadAnswer, ReadRequest, Reply,
    };
    use parking_lot::Mutex as Lock;

    use super::*;

    /// A metadata store that holds one value and can lose the answer of a write.
    #[derive(Default)]
    struct Store {
        value: Lock<Option<(Bytes, i64)>>,
        lose_answers: Lock<u32>,
    }

    impl Store {
        fn get(&self) -> Result<Bytes, ApiError> {
            let held = self.value.lock().clone();
            let (value, version) = held.ok_or_else(|| ApiError::new(ErrorCode::NotFound, ""))?;
            Ok(control::encode(&handler_api::metadata::Value {
                path: PATH.to_owned(),
                value,
                version,
            }))
        }

        fn put(&self, put: PutRequest) -> Result<Bytes, ApiError> {
            assert_eq!(put.path, PATH);
            let mut held = self.value.lock();
            let version = held.as_ref().map_or(-1, |(_, version)| *version);
            if put.expected_version != Some(version) {
                return Err(ApiError::new(ErrorCode::Conflict, ""));
            }
            *held = Some((put.value.clone(), version + 1));
            let mut lose = self.lose_answers.lock();
            if *lose > 0 {
                *lose -= 1;
                return Err(ApiError::new(ErrorCode::Timeout, "lost"));
            }
            Ok(control::encode(&handler_api::metadata::Value::default()))
        }
    }

    struct OneValue(Arc<Store>);

    impl HostServices for OneValue {
        fn capabilities(&self) -> u64 {
            0
        }

        fn log_enabled(&self, _: Level) -> bool {
            false
        }

        fn log(&self, _: Level, _: &str, _: &str) {}

        fn lookup(&self, _: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
            Reply::err(control::unsupported(0, 0))
        }

        fn append(&self, _: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
            Reply::err(control::unsupported(0, 0))
        }

        fn read(&self, _: Vec<ReadRequest>, _: u64) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
            Reply::err(control::unsupported(0, 0))
        }

        fn find(&self, _: Handle, _: i64) -> Reply<Position> {
            Reply::err(control::unsupported(0, 0))
        }

        fn watch(&self, _: Handle, _: i64) -> Result<i64, ApiError> {
            Err(control::unsupported(0, 0))
        }

        fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
            if op == GetValue::OP {
                return self.0.get().into();
            }
            match control::request::<PutValue>(op, version, &request) {
                Some(Ok(put)) => self.0.put(put).into(),
                Some(Err(error)) => Reply::err(error),
                None => Reply::err(control::unsupported(op, version)),
            }
        }
    }

    fn broker(store: &Arc<Store>, id: i32) -> ProducerIds {
        ProducerIds::new(Host::of(Arc::new(OneValue(Arc::clone(store)))), id)
    }

    #[tokio::test]
    async fn ids_start_at_zero_and_the_block_is_written_as_kop_writes_it() {
        let store = Arc::new(Store::default());
        assert_eq!(broker(&store, 7).next().await, Ok(0));
        let held = store.value.lock().clone().unwrap().0;
        let block: Value = serde_json::from_slice(&held).unwrap();
        let expected = json!({"version": 1, "broker": 7, "block_start": "0", "block_end": "999"});
        assert_eq!(block, expected);
    }

    #[tokio::test]
    async fn no_id_is_given_twice_by_brokers_that_share_a_store_and_restart() {
        let store = Arc::new(Store::default());
        let mut given = HashSet::new();
        for round in 0..4 {
            let brokers = [broker(&store, 1), broker(&store, 2)]; // new ones: the old ones crashed
            for n in 0..1500 {
                if n % 500 == 0 && round > 0 {
                    *store.lose_answers.lock() = 1; // whoever takes the next block does not learn that it has it
                }
                for broker in &brokers {
                    if let Ok(id) = broker.next().await {
                        assert!(given.insert(id), "{id} was given twice");
                    }
                }
            }
        }
        assert!(given.len() > 11_000);
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_a_passing_fault() {
        let store = Arc::new(Store::default());
        *store.lose_answers.lock() = 1;
        let broker = broker(&store, 1);
        assert!(matches!(
            broker.next().await,
            Err(Fault::CoordinatorNotAvailable(_))
        ));
        assert_eq!(
            broker.next().await,
            Ok(1000),
            "the lost block is not reused"
        );
    }

    #[test]
    fn blocks_are_read_with_numbers_and_with_text() {
        assert_eq!(next_start(br#"{"block_end":"1999"}"#), Ok(2000));
        assert_eq!(
            next_start(br#"{"block_start":0,"block_end":999}"#),
            Ok(1000)
        );
        for bad in [
            &b""[..],
            b"{}",
            br#"{"block_end":-5}"#,
            br#"{"block_end":"x"}"#,
        ] {
            assert!(matches!(next_start(bad), Err(Fault::Internal(_))));
        }
        let last = format!(r#"{{"block_end":"{}"}}"#, i64::MAX);
        assert!(matches!(
            next_start(last.as_bytes()),
            Err(Fault::Internal(_))
        ));
    }
}
