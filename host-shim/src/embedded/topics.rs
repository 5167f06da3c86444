//! Topics and namespaces: rows of the catalog, mirrored in memory for lookups.
//!
//! A topic of 10,000 partitions is one row; a partition has none until something is written to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use handler_api::control::Nothing;
use handler_api::topics::{
    Namespace, NamespaceList, Tenant, Topic, TopicChange, TopicList, TopicName, TopicNames,
    TopicsChanged,
};
use handler_api::{ApiError, ErrorCode, Reply};
use parking_lot::RwLock;
use redb::{ReadableTable, WriteTransaction};

use super::catalog::{
    CURSORS, Catalog, LIVES, LedgerRow, MANAGED, MARKS, META, ManagedRow, NAMESPACES, Outcome,
    TOPICS, TopicRow, decode_row, meta, reply,
};
use super::limits::{MAX_NAME_BYTES, MAX_PARTITIONS};
use super::partition::NOT_PARTITIONED;
use super::services::{Core, now_ms};
use super::structure::check_properties;

const SCHEME: &str = "persistent://";
const PARTITION_SUFFIX: &str = "-partition-";

/// The managed ledger that a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) topic_id: u64,
    pub(crate) number: u32,
}

/// All topics, by full name.
pub(crate) struct Topics {
    rows: RwLock<BTreeMap<String, Arc<TopicRow>>>,
}

/// Checks the full name of a topic or partition; answers its namespace.
pub(crate) fn check_name(name: &str) -> Result<&str, ApiError> {
    let parse = || {
        let rest = name.strip_prefix(SCHEME)?;
        let (tenant, rest) = rest.split_once('/')?;
        let (namespace, topic) = rest.split_once('/')?;
        let fits = !tenant.is_empty()
            && !namespace.is_empty()
            && !topic.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && !name.chars().any(char::is_control);
        let end = SCHEME.len() + tenant.len() + 1 + namespace.len();
        fits.then(|| name.get(SCHEME.len()..end)).flatten()
    };
    parse().ok_or_else(|| {
        ApiError::new(
            ErrorCode::InvalidArgument,
            format!(
                "{name:?} is no topic name: it must look like persistent://tenant/namespace/topic"
            ),
        )
    })
}

/// Splits a partition's name into its topic and number.
fn split_partition(name: &str) -> Option<(&str, u32)> {
    let (topic, number) = name.rsplit_once(PARTITION_SUFFIX)?;
    let parsed: u32 = number.parse().ok()?;
    // `-partition-01` and `-partition-+1` are other names.
    (parsed.to_string() == number).then_some((topic, parsed))
}

fn check_namespace(namespace: &str) -> Result<(), ApiError> {
    let well_formed = namespace.len() <= MAX_NAME_BYTES
        && namespace.split_once('/').is_some_and(|(tenant, name)| {
            !tenant.is_empty() && !name.is_empty() && !name.contains('/')
        });
    if well_formed {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::InvalidArgument,
        format!("{namespace:?} is no namespace: it must look like tenant/namespace"),
    ))
}

fn unknown(name: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("there is no topic {name}"))
}

fn answer(name: &str, row: &TopicRow) -> Topic {
    Topic {
        name: name.to_owned(),
        found: true,
        partitions: row.partitions,
        properties: row.properties.clone(),
        created_ms: row.created_ms,
    }
}

impl Topics {
    pub(crate) fn load(catalog: &Catalog) -> Result<Self, ApiError> {
        let rows = catalog.read(|transaction| {
            let mut rows = BTreeMap::new();
            for row in transaction.open_table(TOPICS)?.iter()? {
                let (name, row) = row?;
                match decode_row::<TopicRow>(row.value(), name.value()) {
                    Ok(row) => rows.insert(name.value().to_owned(), Arc::new(row)),
                    Err(error) => return Ok(Err(error)),
                };
            }
            Ok(Ok(rows))
        })?;
        Ok(Self {
            rows: RwLock::new(rows?),
        })
    }

    fn get(&self, name: &str) -> Option<Arc<TopicRow>> {
        self.rows.read().get(name).cloned()
    }

    /// The managed ledger of a partition or of a topic that is not partitioned.
    pub(crate) fn resolve(&self, name: &str) -> Result<Resolved, ApiError> {
        if let Some(row) = self.get(name) {
            if row.partitions == 0 {
                return Ok(Resolved {
                    topic_id: row.id,
                    number: NOT_PARTITIONED,
                });
            }
            return Err(ApiError::new(
                ErrorCode::InvalidArgument,
                format!(
                    "{name} is partitioned: name one of its {} partitions",
                    row.partitions
                ),
            ));
        }
        check_name(name)?;
        split_partition(name)
            .and_then(|(topic, number)| Some((self.get(topic)?, number)))
            .filter(|(row, number)| *number < row.partitions)
            .map(|(row, number)| Resolved {
                topic_id: row.id,
                number,
            })
            .ok_or_else(|| unknown(name))
    }

    /// Names of all managed ledgers of a topic; `None` if there is no such topic.
    pub(crate) fn partitions_of(&self, name: &str) -> Option<Vec<String>> {
        let row = self.get(name)?;
        Some(managed_names(name, row.partitions))
    }
}

fn managed_names(topic: &str, partitions: u32) -> Vec<String> {
    if partitions == 0 {
        return vec![topic.to_owned()];
    }
    (0..partitions)
        .map(|number| format!("{topic}{PARTITION_SUFFIX}{number}"))
        .collect()
}

pub(crate) fn describe(core: &Core, request: TopicNames) -> Result<TopicList, ApiError> {
    let topics = request
        .names
        .into_iter()
        .map(|name| match core.topics.get(&name) {
            Some(row) => answer(&name, &row),
            None => Topic {
                name,
                ..Topic::default()
            },
        });
    Ok(TopicList {
        topics: topics.collect(),
    })
}

pub(crate) fn list(core: &Core, request: &Namespace) -> Result<TopicList, ApiError> {
    check_namespace(&request.namespace)?;
    let prefix = format!("{SCHEME}{}/", request.namespace);
    let rows = core.topics.rows.read();
    let topics = rows
        .range(prefix.clone()..)
        .take_while(|(name, _)| name.starts_with(&prefix))
        .map(|(name, row)| answer(name, row))
        .collect();
    Ok(TopicList { topics })
}

/// Reads a topic's row within a write.
fn stored(transaction: &WriteTransaction, name: &str) -> Outcome<Option<TopicRow>> {
    let table = transaction.open_table(TOPICS)?;
    let row = table.get(name)?;
    Ok(row.map(|row| decode_row(row.value(), name)).transpose())
}

fn store(transaction: &WriteTransaction, name: &str, row: &TopicRow) -> Result<(), redb::Error> {
    let bytes = prost::Message::encode_to_vec(row);
    transaction
        .open_table(TOPICS)?
        .insert(name, bytes.as_slice())?;
    transaction.open_table(LIVES)?.insert(row.id, name)?;
    Ok(())
}

/// Queues a change of a topic's row; mirrors it, answers and tells everyone once it is durable.
fn change(
    core: &Arc<Core>,
    name: String,
    apply: impl FnOnce(&WriteTransaction, &str) -> Outcome<TopicRow> + Send + 'static,
) -> Reply<Topic> {
    let (done, reply) = reply();
    let mirror = Arc::clone(core);
    let stored_name = name.clone();
    core.catalog.submit(
        move |transaction| match apply(transaction, &stored_name)? {
            Ok(row) => {
                store(transaction, &stored_name, &row)?;
                Ok(Ok(row))
            }
            Err(error) => Ok(Err(error)),
        },
        move |result: Result<TopicRow, ApiError>| match result {
            Ok(row) => {
                let topic = answer(&name, &row);
                mirror
                    .topics
                    .rows
                    .write()
                    .insert(name.clone(), Arc::new(row));
                // Told before it is answered: nobody who knows the answer still holds what was before.
                mirror.announce(&TopicsChanged { topics: vec![name] });
                done(Ok(topic));
            }
            Err(error) => done(Err(error)),
        },
    );
    reply
}

pub(crate) fn create(core: &Arc<Core>, request: Topic) -> Reply<Topic> {
    let namespace = match check_new(&request) {
        Ok(namespace) => namespace.to_owned(),
        Err(error) => return Reply::err(error),
    };
    let created_ms = now_ms();
    let Topic {
        name,
        partitions,
        properties,
        ..
    } = request;
    change(core, name, move |transaction, name| {
        if transaction
            .open_table(NAMESPACES)?
            .get(namespace.as_str())?
            .is_none()
        {
            return Ok(Err(ApiError::new(
                ErrorCode::NotFound,
                format!("there is no namespace {namespace}"),
            )));
        }
        match stored(transaction, name)? {
            Ok(None) => {}
            Ok(Some(_)) => {
                return Ok(Err(ApiError::new(
                    ErrorCode::Conflict,
                    format!("the topic {name} exists already"),
                )));
            }
            Err(error) => return Ok(Err(error)),
        }
        let mut numbers = transaction.open_table(META)?;
        let id = numbers
            .get(meta::NEXT_TOPIC)?
            .map_or(1, |next| next.value());
        numbers.insert(meta::NEXT_TOPIC, id + 1)?;
        Ok(Ok(TopicRow {
            id: id.cast_unsigned(),
            partitions,
            properties,
            created_ms,
        }))
    })
}

/// Checks a topic to be created; answers its namespace.
fn check_new(topic: &Topic) -> Result<&str, ApiError> {
    let namespace = check_name(&topic.name)?;
    if split_partition(&topic.name).is_some() {
        return Err(ApiError::new(
            ErrorCode::InvalidArgument,
            format!("{} is the name of a partition, not of a topic", topic.name),
        ));
    }
    check_partitions(topic.partitions)?;
    check_properties(&topic.properties)?;
    Ok(namespace)
}

fn check_partitions(partitions: u32) -> Result<(), ApiError> {
    if partitions > MAX_PARTITIONS {
        return Err(ApiError::new(
            ErrorCode::InvalidArgument,
            format!("{partitions} partitions are more than {MAX_PARTITIONS}"),
        ));
    }
    Ok(())
}

pub(crate) fn update(core: &Arc<Core>, request: TopicChange) -> Reply<Topic> {
    if let Err(error) = check_partitions(request.partitions) {
        return Reply::err(error);
    }
    change(core, request.name, move |transaction, name| {
        let mut row = match stored(transaction, name)? {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Err(unknown(name))),
            Err(error) => return Ok(Err(error)),
        };
        if request.partitions > 0 {
            if row.partitions == 0 || request.partitions < row.partitions {
                return Ok(Err(ApiError::new(
                    ErrorCode::InvalidArgument,
                    format!(
                        "{name} has {} partitions and cannot be given {}",
                        row.partitions, request.partitions
                    ),
                )));
            }
            row.partitions = request.partitions;
        }
        for (key, expected) in &request.expect {
            let found = row.properties.get(key).map_or("", String::as_str);
            if found != expected {
                return Ok(Err(ApiError::new(
                    ErrorCode::Conflict,
                    format!("property {key} of {name} is {found:?}, not {expected:?}"),
                )));
            }
        }
        row.properties.extend(request.set);
        row.properties
            .retain(|key, _| !request.remove.contains(key));
        if let Err(error) = check_properties(&row.properties) {
            return Ok(Err(error));
        }
        Ok(Ok(row))
    })
}

/// Removes a topic's rows; answers its number and the ledgers that the catalog knew.
fn remove(transaction: &WriteTransaction, name: &str) -> Outcome<(TopicRow, Vec<LedgerRow>)> {
    let row = match stored(transaction, name)? {
        Ok(Some(row)) => row,
        Ok(None) => return Ok(Err(unknown(name))),
        Err(error) => return Ok(Err(error)),
    };
    transaction.open_table(TOPICS)?.remove(name)?;
    transaction.open_table(LIVES)?.remove(row.id)?;
    let mut ledgers = Vec::new();
    let mut managed = transaction.open_table(MANAGED)?;
    for managed_row in managed.range((row.id, 0)..=(row.id, u32::MAX))? {
        let (_, bytes) = managed_row?;
        match decode_row::<ManagedRow>(bytes.value(), name) {
            Ok(managed_row) => ledgers.extend(managed_row.ledgers),
            // Unreadable, and it goes anyway: the next unclean start removes its files.
            Err(error) => tracing::warn!(%error, "deleting a damaged row"),
        }
    }
    managed.retain_in((row.id, 0)..=(row.id, u32::MAX), |_, _| false)?;
    let mut marks = transaction.open_table(MARKS)?;
    for ledger in &ledgers {
        marks.retain_in((ledger.id, 0)..=(ledger.id, u32::MAX), |_, _| false)?;
    }
    transaction
        .open_table(CURSORS)?
        .retain_in((row.id, 0, "")..(row.id + 1, 0, ""), |_, _| false)?;
    Ok(Ok((row, ledgers)))
}

pub(crate) fn delete(core: &Arc<Core>, request: TopicName) -> Reply<Nothing> {
    let worker = Arc::clone(core);
    core.disk.reply("a deletion", move || {
        let name = request.name;
        let removed = name.clone();
        let mirror = Arc::clone(&worker);
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // The mirror is changed on the writer's thread, in the order of the commits.
        worker
            .catalog
            .submit(move |transaction| remove(transaction, &removed), {
                let name = name.clone();
                move |result: Result<(TopicRow, Vec<LedgerRow>), ApiError>| {
                    if result.is_ok() {
                        mirror.topics.rows.write().remove(&name);
                    }
                    let _ = sender.send(result);
                }
            });
        let (row, ledgers) = receiver
            .recv()
            .unwrap_or_else(|_| Err(super::catalog::closing()))?;
        let mut files: Vec<_> = ledgers.iter().map(LedgerRow::key).collect();
        for managed in managed_names(&name, row.partitions) {
            files.extend(end_managed(&worker, &managed));
        }
        files.sort_unstable();
        files.dedup();
        worker.maintenance.discard(files);
        worker.announce(&TopicsChanged { topics: vec![name] });
        Ok(Nothing {})
    })
}

/// Ends the openings of a deleted managed ledger; answers the files that they know of.
fn end_managed(core: &Core, name: &str) -> Vec<(i64, u32)> {
    let mut files = Vec::new();
    let open = core.handles.named(name);
    if let Some(partition) = &open {
        let reason = partition.closed("the topic was deleted");
        partition.end(&reason);
        core.handles.remove(partition, false);
        core.closed(partition, &reason);
    }
    for partition in open.into_iter().chain(core.handles.forget_dead(name)) {
        let view = partition.view.lock();
        files.extend(view.ledgers.iter().map(|ledger| ledger.row.key()));
    }
    files
}

pub(crate) fn ensure_namespace(core: &Arc<Core>, request: Namespace) -> Reply<Nothing> {
    if let Err(error) = check_namespace(&request.namespace) {
        return Reply::err(error);
    }
    let (done, reply) = reply();
    core.catalog.submit(
        move |transaction| {
            transaction
                .open_table(NAMESPACES)?
                .insert(request.namespace.as_str(), ())?;
            Ok(Ok(Nothing {}))
        },
        done,
    );
    reply
}

pub(crate) fn list_namespaces(core: &Core, request: &Tenant) -> Result<NamespaceList, ApiError> {
    let prefix = format!("{}/", request.tenant);
    let namespaces = core.catalog.read(|transaction| {
        let table = transaction.open_table(NAMESPACES)?;
        let mut found = Vec::new();
        for row in table.range(prefix.as_str()..)? {
            let (name, ()) = row.map(|(name, unit)| (name.value().to_owned(), unit.value()))?;
            if !name.starts_with(&prefix) {
                break;
            }
            found.push(name);
        }
        Ok(found)
    })?;
    Ok(NamespaceList { namespaces })
}
