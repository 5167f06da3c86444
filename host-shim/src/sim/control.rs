//! The control operations of the simulated broker: topics, managed ledgers, cursors, the metadata store.
//!
//! It must not decide when an answer is given.

use bytes::Bytes;
use handler_api::auth::{Authenticate, Authorize, Decisions, EndSession};
use handler_api::control::{Fault, Nothing, Operation, encode, request, unsupported};
use handler_api::cursor::{
    Cursor, CursorList, CursorRequest, DeleteCursor, ListCursors, MarkDelete, OpenCursor,
};
use handler_api::ledger::{
    DescribeLedgers, HandleRef, LedgerList, OpenLedgers, Opened, OpenedList, Properties,
    PropertiesChange, ReplaceLedger, Replacement, Rollover, StartMoved, StorageReport, StorageUse,
    Trim, TrimRequest, UpdateLedgerProperties,
};
use handler_api::metadata::{
    DeleteValue, GetValue, ListChildren, Path, PathList, PutRequest, PutValue, Value, ValueChanged,
    WatchPath,
};
use handler_api::topics::{
    CreateTopic, DeleteTopic, DescribeTopics, EnsureNamespace, ListBrokers, ListNamespaces,
    ListTopics, Namespace, NamespaceList, SetNamespacePolicies, SetTopicPolicies, Tenant, Topic,
    TopicChange, TopicList, TopicName, TopicNames, TopicsChanged, UpdateTopic,
};
use handler_api::{ApiError, ErrorCode, capability};

use super::managed::Managed;
use super::world::{TopicState, World};
use crate::names;

pub(super) type Answer<O> = Result<<O as Operation>::Answer, ApiError>;

impl World {
    /// Carries out one operation.
    pub(super) fn control(
        &mut self,
        view: u64,
        op: u32,
        version: u32,
        bytes: &Bytes,
    ) -> Result<Bytes, ApiError> {
        self.view(view)?;
        self.readiness()?;
        macro_rules! dispatch {
            ($($operation:ty => $method:expr;)+) => {$(
                if let Some(asked) = request::<$operation>(op, version, bytes) {
                    let answer: Answer<$operation> = $method(self, asked?);
                    return answer.map(|answer| encode(&answer));
                }
            )+};
        }
        dispatch! {
            DescribeTopics => Self::describe_topics;
            ListTopics => Self::list_topics;
            CreateTopic => Self::create_topic;
            UpdateTopic => Self::update_topic;
            DeleteTopic => Self::delete_topic;
            EnsureNamespace => Self::ensure_namespace;
            ListNamespaces => Self::list_namespaces;
            SetTopicPolicies => Self::set_topic_policies;
            SetNamespacePolicies => Self::set_namespace_policies;
            ListBrokers => |world: &mut Self, _| world.list_brokers(view);
            OpenLedgers => |world: &mut Self, asked| world.open_ledgers(view, asked);
            DescribeLedgers => |world: &mut Self, handle| world.describe_ledgers(view, handle);
            Rollover => |world: &mut Self, handle| world.rollover(view, handle);
            Trim => |world: &mut Self, asked| world.trim(view, asked);
            UpdateLedgerProperties => |world: &mut Self, asked| world.update_properties(view, asked);
            ReplaceLedger => |world: &mut Self, asked| world.replace_ledger(view, asked);
            StorageUse => Self::storage_use;
            OpenCursor => |world: &mut Self, asked| world.open_cursor(view, asked);
            MarkDelete => |world: &mut Self, asked| world.mark_delete(view, asked);
            DeleteCursor => |world: &mut Self, asked| world.delete_cursor(view, asked);
            ListCursors => |world: &mut Self, handle| world.list_cursors(view, handle);
            GetValue => Self::get_value;
            PutValue => Self::put_value;
            DeleteValue => Self::delete_value;
            ListChildren => Self::list_children;
            WatchPath => |world: &mut Self, path| world.watch_path(view, path);
            Authenticate => |_: &mut Self, _| Err(unsupported(op, version));
            Authorize => |_: &mut Self, asked: handler_api::auth::AuthorizeRequest| {
                Ok(Decisions { allowed: vec![true; asked.actions.len()] })
            };
            EndSession => |_: &mut Self, _| Ok(Nothing {});
        }
        Err(unsupported(op, version))
    }

    // ---- topics

    fn topic(&self, name: &str) -> Topic {
        let Some(state) = self.topics.get(name) else {
            return Topic {
                name: name.to_owned(),
                ..Topic::default()
            };
        };
        Topic {
            name: name.to_owned(),
            found: true,
            partitions: state.partitions,
            properties: state.properties.clone(),
            created_ms: state.created_ms,
        }
    }

    pub(super) fn topic_names(topic: &str, partitions: u32) -> Vec<String> {
        if partitions == 0 {
            return vec![topic.to_owned()];
        }
        let name = |number| names::partition_name(topic, number);
        (0..partitions).map(name).collect()
    }

    fn describe_topics(&mut self, asked: TopicNames) -> Answer<DescribeTopics> {
        let topics = asked.names.iter().map(|name| self.topic(name)).collect();
        Ok(TopicList { topics })
    }

    fn list_topics(&mut self, asked: Namespace) -> Answer<ListTopics> {
        if !self.namespaces.contains_key(&asked.namespace) {
            return Err(not_found(&asked.namespace));
        }
        let inside = |name: &&String| {
            names::parse_topic(name).is_some_and(|parts| parts.namespace == asked.namespace)
        };
        let names: Vec<&String> = self.topics.keys().filter(inside).collect();
        Ok(TopicList {
            topics: names.into_iter().map(|name| self.topic(name)).collect(),
        })
    }

    /// Creates namespace and topic.
    pub(super) fn admin_create(&mut self, name: &str, partitions: u32) -> bool {
        if let Some(parts) = names::parse_topic(name) {
            self.namespaces
                .entry(parts.namespace.to_owned())
                .or_default();
        }
        self.create_topic(Topic {
            name: name.to_owned(),
            partitions,
            ..Topic::default()
        })
        .is_ok()
    }

    fn create_topic(&mut self, asked: Topic) -> Answer<CreateTopic> {
        let parts = names::parse_topic(&asked.name)
            .filter(|_| names::split_partition(&asked.name).is_none())
            .ok_or_else(|| invalid(format!("{:?} is no name of a topic", asked.name)))?;
        if !self.namespaces.contains_key(parts.namespace) {
            return Err(not_found(parts.namespace));
        }
        if self.topics.contains_key(&asked.name) {
            return Err(ApiError::new(
                ErrorCode::Conflict,
                format!("{} exists", asked.name),
            ));
        }
        let state = TopicState {
            partitions: asked.partitions,
            properties: asked.properties,
            created_ms: self.now_ms,
            retention: None,
        };
        self.topics.insert(asked.name.clone(), state);
        self.topic_changed(&asked.name);
        Ok(self.topic(&asked.name))
    }

    fn topic_changed(&mut self, name: &str) {
        self.tell(&TopicsChanged {
            topics: vec![name.to_owned()],
        });
    }

    fn update_topic(&mut self, asked: TopicChange) -> Answer<UpdateTopic> {
        let state = self
            .topics
            .get_mut(&asked.name)
            .ok_or_else(|| not_found(&asked.name))?;
        if asked.partitions != 0 && asked.partitions < state.partitions {
            return Err(invalid(format!(
                "{} has {} partitions and cannot have {}",
                asked.name, state.partitions, asked.partitions
            )));
        }
        if asked.partitions != 0 && state.partitions == 0 {
            return Err(invalid(format!("{} is not partitioned", asked.name)));
        }
        for (key, expected) in &asked.expect {
            let found = state.properties.get(key).map_or("", String::as_str);
            if found != expected {
                return Err(ApiError::new(
                    ErrorCode::Conflict,
                    format!(
                        "property {key} of {} is {found:?}, not {expected:?}",
                        asked.name
                    ),
                ));
            }
        }
        state.partitions = state.partitions.max(asked.partitions);
        state.properties.extend(asked.set);
        for key in &asked.remove {
            state.properties.remove(key);
        }
        self.topic_changed(&asked.name);
        Ok(self.topic(&asked.name))
    }

    fn delete_topic(&mut self, asked: TopicName) -> Answer<DeleteTopic> {
        let state = self
            .topics
            .remove(&asked.name)
            .ok_or_else(|| not_found(&asked.name))?;
        for partition in Self::topic_names(&asked.name, state.partitions) {
            self.forget(&partition);
        }
        self.topic_changed(&asked.name);
        Ok(Nothing {})
    }

    fn ensure_namespace(&mut self, asked: Namespace) -> Answer<EnsureNamespace> {
        if !names::is_namespace(&asked.namespace) {
            return Err(invalid(format!("{:?} is no namespace", asked.namespace)));
        }
        self.namespaces.entry(asked.namespace).or_default();
        Ok(Nothing {})
    }

    fn list_namespaces(&mut self, asked: Tenant) -> Answer<ListNamespaces> {
        let of_tenant = |name: &&String| {
            name.split_once('/')
                .is_some_and(|(tenant, _)| tenant == asked.tenant)
        };
        let namespaces = self.namespaces.keys().filter(of_tenant).cloned().collect();
        Ok(NamespaceList { namespaces })
    }

    fn list_brokers(&mut self, view: u64) -> Answer<ListBrokers> {
        let broker = self.view(view)?.broker.clone();
        Ok(self.broker_list(&broker))
    }

    // ---- managed ledgers

    fn exists(&self, partition: &str) -> bool {
        if let Some((topic, number)) = names::split_partition(partition) {
            let state = self.topics.get(topic);
            return state.is_some_and(|state| number < state.partitions);
        }
        let state = self.topics.get(partition);
        state.is_some_and(|state| state.partitions == 0)
    }

    fn open_ledgers(&mut self, view: u64, asked: TopicNames) -> Answer<OpenLedgers> {
        let mut open = |name: &String| {
            if !self.exists(name) {
                return Err(not_found(name));
            }
            self.readiness()?;
            self.open(view, name).map(|managed| managed.opened())
        };
        let or_fault = |result: Result<Opened, ApiError>| {
            result.unwrap_or_else(|error| Opened {
                fault: Some(Fault::from(error)),
                ..Opened::default()
            })
        };
        let ledgers = asked.names.iter().map(|name| or_fault(open(name)));
        Ok(OpenedList {
            ledgers: ledgers.collect(),
        })
    }

    fn managed(&mut self, view: u64, handle: Option<HandleRef>) -> Result<&mut Managed, ApiError> {
        let handle = handle.ok_or_else(|| invalid("the request names no handle".to_owned()))?;
        self.open_ledger(view, handle.into())
    }

    fn describe_ledgers(&mut self, view: u64, asked: HandleRef) -> Answer<DescribeLedgers> {
        let ledgers = self.managed(view, Some(asked))?.describe();
        Ok(LedgerList { ledgers })
    }

    fn rollover(&mut self, view: u64, asked: HandleRef) -> Answer<Rollover> {
        let (now_ms, id) = (self.now_ms, self.next_ledger_id());
        let managed = self.managed(view, Some(asked))?;
        if managed.has_pending() {
            return Err(ApiError::new(
                ErrorCode::NotReady,
                "appends are under way; try again",
            ));
        }
        managed.roll(id, now_ms);
        Ok(Nothing {})
    }

    fn trim(&mut self, view: u64, asked: TrimRequest) -> Answer<Trim> {
        let to_entry = self.capabilities & capability::TRIM_TO_ENTRY != 0;
        let managed = self.managed(view, asked.handle)?;
        let moved = managed.trim(asked.before_index, to_entry);
        let opened = managed.opened();
        if moved {
            self.tell(&StartMoved {
                handle: opened.handle,
                start_index: opened.start_index,
            });
        }
        Ok(opened)
    }

    fn update_properties(
        &mut self,
        view: u64,
        asked: PropertiesChange,
    ) -> Answer<UpdateLedgerProperties> {
        let managed = self.managed(view, asked.handle)?;
        managed.properties.extend(asked.set);
        for key in &asked.remove {
            managed.properties.remove(key);
        }
        Ok(Properties {
            properties: managed.properties.clone(),
        })
    }

    fn replace_ledger(&mut self, view: u64, asked: Replacement) -> Answer<ReplaceLedger> {
        if self.capabilities & capability::REPLACE_LEDGER == 0 {
            return Err(unsupported(ReplaceLedger::OP, ReplaceLedger::VERSION));
        }
        self.managed(view, asked.handle)?.replace(&asked)?;
        Ok(Nothing {})
    }

    fn storage_use(&mut self, asked: TopicNames) -> Answer<StorageUse> {
        let bytes = |name: &String| self.ledgers.get(name).map_or(0, Managed::bytes);
        Ok(StorageReport {
            bytes: asked.names.iter().map(bytes).collect(),
            location: "memory".to_owned(),
            ..StorageReport::default()
        })
    }

    // ---- cursors

    fn open_cursor(&mut self, view: u64, asked: CursorRequest) -> Answer<OpenCursor> {
        if asked.name.is_empty() {
            return Err(invalid("a cursor needs a name".to_owned()));
        }
        let managed = self.managed(view, asked.handle)?;
        let index = asked.index.clamp(-1, managed.end_index);
        managed.cursors.entry(asked.name.clone()).or_insert(index);
        cursor(managed, &asked.name)
    }

    fn mark_delete(&mut self, view: u64, asked: CursorRequest) -> Answer<MarkDelete> {
        let managed = self.managed(view, asked.handle)?;
        let end = managed.end_index;
        let index = managed
            .cursors
            .get_mut(&asked.name)
            .ok_or_else(|| not_found(&asked.name))?;
        if asked.index < *index || asked.index > end {
            return Err(invalid(format!(
                "cursor {} is at {index} of {end} and cannot move to {}",
                asked.name, asked.index
            )));
        }
        *index = asked.index;
        cursor(managed, &asked.name)
    }

    fn delete_cursor(&mut self, view: u64, asked: CursorRequest) -> Answer<DeleteCursor> {
        let managed = self.managed(view, asked.handle)?;
        let removed = managed.cursors.remove(&asked.name);
        removed
            .map(|_| Nothing {})
            .ok_or_else(|| not_found(&asked.name))
    }

    fn list_cursors(&mut self, view: u64, asked: HandleRef) -> Answer<ListCursors> {
        let managed = self.managed(view, Some(asked))?;
        let names = managed.cursors.keys();
        let cursors: Result<_, _> = names.map(|name| cursor(managed, name)).collect();
        Ok(CursorList { cursors: cursors? })
    }

    // ---- the metadata store

    fn get_value(&mut self, asked: Path) -> Answer<GetValue> {
        let stored = self.values.get(&asked.path);
        let (value, version) = stored.cloned().ok_or_else(|| not_found(&asked.path))?;
        Ok(Value {
            path: asked.path,
            value,
            version,
        })
    }

    fn check_version(&self, asked: &PutRequest) -> Result<Option<i64>, ApiError> {
        let well_formed = asked.path.starts_with('/')
            && asked.path.len() > 1
            && asked.path.split('/').skip(1).all(|part| !part.is_empty());
        if !well_formed {
            return Err(invalid(format!("{:?} is no path", asked.path)));
        }
        let version = self.values.get(&asked.path).map(|(_, version)| *version);
        match asked.expected_version {
            Some(expected) if expected != version.unwrap_or(-1) => Err(ApiError::new(
                ErrorCode::Conflict,
                format!(
                    "{} has version {}, not {expected}",
                    asked.path,
                    version.unwrap_or(-1)
                ),
            )),
            _ => Ok(version),
        }
    }

    fn value_changed(&mut self, path: &str, deleted: bool) {
        let event = ValueChanged {
            path: path.to_owned(),
            deleted,
        };
        self.tell_some(&event, |view| {
            view.paths.iter().any(|watched| {
                let below = path.strip_prefix(watched.trim_end_matches('/'));
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        });
    }

    fn put_value(&mut self, asked: PutRequest) -> Answer<PutValue> {
        let version = self.check_version(&asked)?.map_or(0, |version| version + 1);
        let stored = (asked.value.clone(), version);
        self.values.insert(asked.path.clone(), stored);
        self.value_changed(&asked.path, false);
        Ok(Value {
            path: asked.path,
            value: asked.value,
            version,
        })
    }

    fn delete_value(&mut self, asked: PutRequest) -> Answer<DeleteValue> {
        self.check_version(&asked)?
            .ok_or_else(|| not_found(&asked.path))?;
        self.values.remove(&asked.path);
        self.value_changed(&asked.path, true);
        Ok(Nothing {})
    }

    fn list_children(&mut self, asked: Path) -> Answer<ListChildren> {
        let parent = format!("{}/", asked.path.trim_end_matches('/'));
        let below = self.values.keys().filter_map(|path| {
            let rest = path.strip_prefix(&parent)?;
            let child = rest.split('/').next()?;
            Some(format!("{parent}{child}"))
        });
        let mut paths: Vec<String> = below.collect();
        // `/a/b-c` lies between `/a/b` and `/a/b/d`.
        paths.sort_unstable();
        paths.dedup();
        Ok(PathList { paths })
    }

    fn watch_path(&mut self, view: u64, asked: Path) -> Answer<WatchPath> {
        self.view(view)?.paths.insert(asked.path);
        Ok(Nothing {})
    }
}

fn cursor(managed: &Managed, name: &str) -> Result<Cursor, ApiError> {
    let index = *managed.cursors.get(name).ok_or_else(|| not_found(name))?;
    let found = managed.find(index);
    let exists = managed
        .entries()
        .any(|(position, stored)| position == found && stored.index >= index);
    Ok(Cursor {
        name: name.to_owned(),
        index,
        position: (index >= 0 && exists).then(|| found.into()),
    })
}

pub(super) fn not_found(what: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("{what} does not exist"))
}

pub(super) fn invalid(text: String) -> ApiError {
    ApiError::new(ErrorCode::InvalidArgument, text)
}
