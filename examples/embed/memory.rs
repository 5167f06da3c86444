//! The smallest services that a protocol handler can live on: topics, logs and values in memory, behind one lock.
//!
//! Each log is one ledger that is never sealed, so nothing can be compacted, and says so by leaving out
//! `capability::REPLACE_LEDGER`. Every call is answered at once. It must not know Kafka.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use handler_api::control::{Fault, Nothing, encode, request, unsupported};
use handler_api::host::capability;
use handler_api::ledger::{
    DescribeLedgers, HandleRef, Ledger, LedgerList, OpenLedgers, Opened, OpenedList, Properties,
    Rollover, StorageReport, StorageUse, Trim, UpdateLedgerProperties,
};
use handler_api::metadata::{GetValue, ListChildren, PathList, PutValue, Value};
use handler_api::topics::{
    Broker, Cluster, CreateTopic, DeleteTopic, DescribeTopics, EnsureNamespace, ListBrokers,
    ListNamespaces, ListTopics, NamespaceList, Topic, TopicList, TopicsChanged, UpdateTopic,
};
use handler_api::{
    ApiError, AppendRequest, Appended, Entry, ErrorCode, Event, Handle, HostServices, Level, List,
    Owner, Position, ReadAnswer, ReadRequest, Reply, Segment, SharedBytes,
};
use host_shim::events::EventSink;
use host_shim::host::BrokerServices;
use host_shim::{logging, names};

const BROKER: &str = "embedded:0";

/// A broker in memory.
#[derive(Default)]
pub struct Memory {
    shared: Arc<Mutex<State>>,
}

impl Memory {
    /// How many hold its state: itself, and each plugin that is attached.
    #[allow(dead_code, reason = "for tests that share this file")]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.shared)
    }
}

#[derive(Default)]
struct State {
    namespaces: BTreeSet<String>,
    topics: BTreeMap<String, Topic>,
    /// By full name of the partition.
    logs: BTreeMap<String, Log>,
    names: HashMap<u64, String>,
    values: BTreeMap<String, Value>,
    next_id: u64,
    sinks: Vec<Arc<dyn EventSink>>,
}

/// The log of one partition.
struct Log {
    id: u64,
    entries: VecDeque<(i64, u32, Vec<SharedBytes>)>,
    /// Entry number of the first one that is kept.
    first_entry: i64,
    start_index: i64,
    end_index: i64,
    properties: HashMap<String, String>,
    /// Whom to wake, and beyond which index.
    watches: Vec<(Arc<dyn EventSink>, i64)>,
}

impl BrokerServices for Memory {
    fn attach(&self, protocol_data: String, sink: Arc<dyn EventSink>) -> Arc<dyn HostServices> {
        let mut state = lock(&self.shared);
        state.namespaces.insert("public/default".to_owned());
        state.sinks.push(Arc::clone(&sink));
        Arc::new(Services {
            shared: Arc::clone(&self.shared),
            protocol_data,
            sink,
        })
    }
}

/// What one plugin sees.
struct Services {
    shared: Arc<Mutex<State>>,
    protocol_data: String,
    sink: Arc<dyn EventSink>,
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error(code: ErrorCode, text: impl Into<String>) -> ApiError {
    ApiError::new(code, text)
}

fn missing(name: &str) -> ApiError {
    error(ErrorCode::NotFound, format!("{name} does not exist"))
}

impl Log {
    fn new(id: u64) -> Self {
        Self {
            id,
            entries: VecDeque::new(),
            first_entry: 0,
            start_index: 0,
            end_index: -1,
            properties: HashMap::new(),
            watches: Vec::new(),
        }
    }

    fn handle(&self) -> Handle {
        Handle {
            id: self.id,
            generation: 1,
        }
    }

    fn position(&self, number: usize) -> Position {
        Position::new(self.id as i64, self.first_entry + number as i64)
    }

    /// Number of the first entry whose last message is `index` or later.
    fn locate(&self, index: i64) -> usize {
        self.entries.partition_point(|(last, ..)| *last < index)
    }

    fn read(&self, asked: &ReadRequest, budget: &mut u64, first: &mut bool) -> ReadAnswer {
        let mut entries = List::new();
        let mut left = asked.max_bytes;
        let from = self.locate(asked.index);
        let mut next = Position::UNKNOWN;
        let wanted = self.entries.iter().enumerate().skip(from);
        for (number, (index, _, segments)) in wanted.take(asked.max_entries as usize) {
            let size: u64 = segments.iter().map(|s| s.len() as u64).sum();
            let forced = *first && asked.flags & ReadRequest::AT_LEAST_ONE != 0;
            if size > left.min(*budget) && !forced {
                break;
            }
            *first = false;
            left = left.saturating_sub(size);
            *budget = budget.saturating_sub(size);
            entries.push(Entry {
                position: self.position(number),
                index: *index,
                segments: segments.iter().cloned().map(Segment::from).collect(),
            });
            next = self.position(number + 1);
        }
        ReadAnswer {
            entries,
            next,
            start_index: self.start_index,
            end_index: self.end_index,
        }
    }

    fn trim(&mut self, before: i64) {
        let before = before.min(self.end_index + 1);
        while self
            .entries
            .front()
            .is_some_and(|(last, ..)| *last < before)
        {
            self.entries.pop_front();
            self.first_entry += 1;
        }
        let first = self.entries.front();
        let start = first.map_or(self.end_index + 1, |(last, messages, _)| {
            last - i64::from(*messages) + 1
        });
        self.start_index = self.start_index.max(start);
    }

    fn opened(&self) -> Opened {
        Opened {
            handle: Some(self.handle().into()),
            fault: None,
            start_index: self.start_index,
            end_index: self.end_index,
            properties: self.properties.clone(),
        }
    }

    fn bytes(&self) -> u64 {
        let segments = self.entries.iter().flat_map(|(.., segments)| segments);
        segments.map(|s| s.len() as u64).sum()
    }
}

impl State {
    fn log(&mut self, handle: Handle) -> Result<&mut Log, ApiError> {
        let closed = || error(ErrorCode::HandleClosed, "the topic is gone");
        let name = self.names.get(&handle.id).ok_or_else(closed)?;
        self.logs.get_mut(name).ok_or_else(closed)
    }

    fn log_of(&mut self, handle: Option<HandleRef>) -> Result<&mut Log, ApiError> {
        let missing = || error(ErrorCode::InvalidArgument, "the request names no handle");
        self.log(handle.ok_or_else(missing)?.into())
    }

    fn open(&mut self, name: &str) -> Result<Opened, ApiError> {
        let topic = names::split_partition(name);
        let (topic, number) = topic.map_or((name, None), |(topic, n)| (topic, Some(n)));
        let found = self.topics.get(topic).ok_or_else(|| missing(name))?;
        if number.is_none() != (found.partitions == 0) || number >= Some(found.partitions) {
            return Err(missing(name));
        }
        if !self.logs.contains_key(name) {
            self.next_id += 1;
            self.names.insert(self.next_id, name.to_owned());
            self.logs.insert(name.to_owned(), Log::new(self.next_id));
        }
        let log = self.logs.get(name);
        log.map(Log::opened).ok_or_else(|| missing(name))
    }

    fn describe(&self, name: &str) -> Topic {
        let absent = || Topic {
            name: name.to_owned(),
            ..Topic::default()
        };
        self.topics.get(name).cloned().unwrap_or_else(absent)
    }

    fn update(&mut self, change: handler_api::topics::TopicChange) -> Result<Topic, ApiError> {
        let name = change.name;
        let topic = self.topics.get_mut(&name).ok_or_else(|| missing(&name))?;
        let differs = |(key, value): (&String, &String)| {
            topic.properties.get(key).map_or("", String::as_str) != value
        };
        if change.expect.iter().any(differs) {
            return Err(error(ErrorCode::Conflict, "the topic has changed"));
        }
        if change.partitions != 0 && change.partitions < topic.partitions {
            return Err(error(ErrorCode::InvalidArgument, "partitions cannot go"));
        }
        topic.partitions = topic.partitions.max(change.partitions);
        topic.properties.extend(change.set);
        for key in &change.remove {
            topic.properties.remove(key);
        }
        Ok(topic.clone())
    }

    fn delete(&mut self, name: &str) -> Result<Nothing, ApiError> {
        let topic = self.topics.remove(name).ok_or_else(|| missing(name))?;
        let partitions = (0..topic.partitions).map(|n| names::partition_name(name, n));
        for partition in partitions.chain([name.to_owned()]) {
            if let Some(log) = self.logs.remove(&partition) {
                self.names.remove(&log.id);
            }
        }
        Ok(Nothing {})
    }

    fn put(&mut self, asked: handler_api::metadata::PutRequest) -> Result<Value, ApiError> {
        let version = self
            .values
            .get(&asked.path)
            .map_or(-1, |value| value.version);
        if asked
            .expected_version
            .is_some_and(|expected| expected != version)
        {
            return Err(error(ErrorCode::Conflict, format!("version {version}")));
        }
        let value = Value {
            path: asked.path.clone(),
            value: asked.value,
            version: version + 1,
        };
        self.values.insert(asked.path, value.clone());
        Ok(value)
    }
}

impl HostServices for Services {
    fn capabilities(&self) -> u64 {
        capability::SINGLE_BROKER | capability::TRIM_TO_ENTRY
    }

    fn log_enabled(&self, level: Level) -> bool {
        logging::plugin_enabled(level)
    }

    fn log(&self, level: Level, target: &str, message: &str) {
        logging::plugin_line(level, target, message);
    }

    fn lookup(&self, topics: Vec<String>) -> Reply<Vec<Result<Owner, ApiError>>> {
        let owner = Owner {
            local: true,
            broker: BROKER.into(),
            protocol_data: self.protocol_data.as_str().into(),
        };
        Reply::ok(topics.iter().map(|_| Ok(owner.clone())).collect())
    }

    fn append(&self, requests: Vec<AppendRequest>) -> Reply<Vec<Result<Appended, ApiError>>> {
        let mut woken = Vec::new();
        let mut state = lock(&self.shared);
        let mut append = |asked: AppendRequest| {
            let log = state.log(asked.handle)?;
            let index = log.end_index + i64::from(asked.messages);
            let segments = asked.segments.into_vec();
            log.entries.push_back((index, asked.messages, segments));
            log.end_index = index;
            let position = log.position(log.entries.len() - 1);
            let handle = log.handle();
            let due = log.watches.extract_if(.., |(_, after)| index > *after);
            woken.extend(due.map(|(sink, _)| (sink, handle, position, index)));
            Ok(Appended { position, index })
        };
        let results = requests.into_iter().map(&mut append).collect();
        // Plugins are called with no lock held.
        drop(state);
        for (sink, handle, position, index) in woken {
            sink.end_moved(handle, position, index);
        }
        Reply::ok(results)
    }

    fn read(
        &self,
        requests: Vec<ReadRequest>,
        max_bytes: u64,
    ) -> Reply<Vec<Result<ReadAnswer, ApiError>>> {
        let mut state = lock(&self.shared);
        let (mut budget, mut first) = (max_bytes, true);
        let mut read = |asked: &ReadRequest| {
            let log = state.log(asked.handle)?;
            Ok(log.read(asked, &mut budget, &mut first))
        };
        Reply::ok(requests.iter().map(&mut read).collect())
    }

    fn find(&self, handle: Handle, index: i64) -> Reply<Position> {
        let mut state = lock(&self.shared);
        let log = state.log(handle);
        log.map(|log| log.position(log.locate(index))).into()
    }

    fn watch(&self, handle: Handle, after_index: i64) -> Result<i64, ApiError> {
        let mut state = lock(&self.shared);
        let log = state.log(handle)?;
        log.watches
            .retain(|(sink, _)| !Arc::ptr_eq(sink, &self.sink));
        if log.end_index <= after_index {
            log.watches.push((Arc::clone(&self.sink), after_index));
        }
        Ok(log.end_index)
    }

    fn call(&self, op: u32, version: u32, bytes: Bytes) -> Reply<Bytes> {
        let mut changed = None;
        let answer = self.control(op, version, &bytes, &mut changed);
        if let Some(topic) = changed {
            let topics = vec![topic];
            let payload = encode(&TopicsChanged { topics });
            let sinks = lock(&self.shared).sinks.clone();
            for sink in sinks {
                sink.event(TopicsChanged::OP, payload.clone());
            }
        }
        answer.into()
    }
}

impl Services {
    /// One control operation. `changed` is the topic that others must hear of.
    fn control(
        &self,
        op: u32,
        version: u32,
        bytes: &Bytes,
        changed: &mut Option<String>,
    ) -> Result<Bytes, ApiError> {
        let mut state = lock(&self.shared);
        let state = &mut *state;
        macro_rules! operation {
            ($operation:ty, $answer:expr) => {
                if let Some(asked) = request::<$operation>(op, version, bytes) {
                    let answer: Result<<$operation as handler_api::Operation>::Answer, ApiError> =
                        $answer(asked?);
                    return answer.map(|answer| encode(&answer));
                }
            };
        }
        operation!(DescribeTopics, |asked: handler_api::topics::TopicNames| {
            let topics = asked.names.iter().map(|name| state.describe(name));
            Ok(TopicList {
                topics: topics.collect(),
            })
        });
        operation!(ListTopics, |asked: handler_api::topics::Namespace| {
            let inside = |topic: &&Topic| {
                let parts = names::parse_topic(&topic.name);
                parts.is_some_and(|parts| parts.namespace == asked.namespace)
            };
            let topics = state.topics.values().filter(inside).cloned().collect();
            Ok(TopicList { topics })
        });
        operation!(CreateTopic, |mut topic: Topic| {
            let parts = names::parse_topic(&topic.name);
            let parts = parts.ok_or_else(|| error(ErrorCode::InvalidArgument, "no topic name"))?;
            if !state.namespaces.contains(parts.namespace) {
                return Err(missing(parts.namespace));
            }
            if state.topics.contains_key(&topic.name) {
                return Err(error(ErrorCode::Conflict, "the topic exists"));
            }
            topic.found = true;
            state.topics.insert(topic.name.clone(), topic.clone());
            *changed = Some(topic.name.clone());
            Ok(topic)
        });
        operation!(UpdateTopic, |change: handler_api::topics::TopicChange| {
            *changed = Some(change.name.clone());
            state.update(change)
        });
        operation!(DeleteTopic, |asked: handler_api::topics::TopicName| {
            *changed = Some(asked.name.clone());
            state.delete(&asked.name)
        });
        operation!(EnsureNamespace, |asked: handler_api::topics::Namespace| {
            state.namespaces.insert(asked.namespace);
            Ok(Nothing {})
        });
        operation!(ListNamespaces, |asked: handler_api::topics::Tenant| {
            let tenant = format!("{}/", asked.tenant);
            let namespaces = state.namespaces.iter();
            let namespaces = namespaces.filter(|name| name.starts_with(&tenant));
            Ok(NamespaceList {
                namespaces: namespaces.cloned().collect(),
            })
        });
        operation!(ListBrokers, |_| {
            Ok(Cluster {
                name: "embedded".to_owned(),
                local_broker: BROKER.to_owned(),
                brokers: vec![Broker {
                    id: BROKER.to_owned(),
                    protocol_data: self.protocol_data.clone(),
                }],
            })
        });
        operation!(OpenLedgers, |asked: handler_api::topics::TopicNames| {
            let open = |name: &String| {
                state.open(name).unwrap_or_else(|error| Opened {
                    fault: Some(Fault::from(error)),
                    ..Opened::default()
                })
            };
            Ok(OpenedList {
                ledgers: asked.names.iter().map(open).collect(),
            })
        });
        operation!(DescribeLedgers, |handle: HandleRef| {
            let log = state.log_of(Some(handle))?;
            Ok(LedgerList {
                ledgers: vec![Ledger {
                    id: log.id as i64,
                    first_index: log.start_index,
                    last_index: log.end_index,
                    entries: log.entries.len() as u64,
                    bytes: log.bytes(),
                    ..Ledger::default()
                }],
            })
        });
        // The only ledger of a log is never sealed.
        operation!(Rollover, |handle: HandleRef| state
            .log_of(Some(handle))
            .map(|_| Nothing {}));
        operation!(Trim, |asked: handler_api::ledger::TrimRequest| {
            let log = state.log_of(asked.handle)?;
            log.trim(asked.before_index);
            Ok(log.opened())
        });
        operation!(
            UpdateLedgerProperties,
            |asked: handler_api::ledger::PropertiesChange| {
                let log = state.log_of(asked.handle)?;
                log.properties.extend(asked.set);
                log.properties.retain(|key, _| !asked.remove.contains(key));
                Ok(Properties {
                    properties: log.properties.clone(),
                })
            }
        );
        operation!(StorageUse, |asked: handler_api::topics::TopicNames| {
            let bytes = |name: &String| state.logs.get(name).map_or(0, Log::bytes);
            Ok(StorageReport {
                bytes: asked.names.iter().map(bytes).collect(),
                location: "memory".to_owned(),
                ..StorageReport::default()
            })
        });
        operation!(GetValue, |asked: handler_api::metadata::Path| {
            let value = state.values.get(&asked.path).cloned();
            value.ok_or_else(|| missing(&asked.path))
        });
        operation!(PutValue, |asked| state.put(asked));
        operation!(ListChildren, |asked: handler_api::metadata::Path| {
            let parent = format!("{}/", asked.path);
            let child = |path: &String| {
                let name = path.strip_prefix(&parent)?.split('/').next()?;
                Some(format!("{parent}{name}"))
            };
            let mut paths: Vec<String> = state.values.keys().filter_map(child).collect();
            paths.sort_unstable();
            paths.dedup();
            Ok(PathList { paths })
        });
        // Authentication, cursors, the rest: this broker has none.
        Err(unsupported(op, version))
    }
}
