//! The control operations: one line each says where it goes and whether it may wait for the disk.

use std::sync::Arc;

use bytes::Bytes;
use handler_api::auth::{Authenticate, Authorize, Decisions, EndSession};
use handler_api::control::{Nothing, Operation, encode, unsupported};
use handler_api::cursor::{DeleteCursor, ListCursors, MarkDelete, OpenCursor};
use handler_api::ledger::{
    DescribeLedgers, HandleRef, Ledger, LedgerList, OpenLedgers, Properties, ReplaceLedger,
    Rollover, StorageUse, Trim, UpdateLedgerProperties,
};
use handler_api::metadata::{DeleteValue, GetValue, ListChildren, PutValue, WatchPath};
use handler_api::topics::{
    Broker, Cluster, CreateTopic, DeleteTopic, DescribeTopics, EnsureNamespace, ListBrokers,
    ListNamespaces, ListTopics, UpdateTopic,
};
use handler_api::{ApiError, ErrorCode, Reply};

use super::partition::Partition;
use super::services::{Core, Services};
use super::{cursors, opening, topics, values};

/// An operation by its number and version, to be matched with the ones that are known.
struct Call<'a> {
    op: u32,
    version: u32,
    request: &'a Bytes,
}

impl Call<'_> {
    /// Whether this is operation `O`, and then its request.
    fn is<O: Operation>(&self) -> Option<Result<O::Request, ApiError>> {
        handler_api::control::request::<O>(self.op, self.version, self.request)
    }
}

/// Turns a reply with a message into one with its bytes.
fn encoded<O: Operation>(reply: Reply<O::Answer>) -> Reply<Bytes> {
    match reply {
        Reply::Ready(result) => Reply::Ready(result.map(|answer| encode(&answer))),
        Reply::Pending(future) => {
            Reply::pending(async move { future.await.map(|answer| encode(&answer)) })
        }
    }
}

/// Runs `$handle` on the request if the call is operation `$op`.
macro_rules! on {
    ($call:ident, $op:ty, $handle:expr) => {
        if let Some(request) = $call.is::<$op>() {
            return encoded::<$op>(match request {
                Ok(request) => $handle(request),
                Err(error) => Reply::err(error),
            });
        }
    };
}

pub(crate) fn dispatch(
    services: &Services,
    op: u32,
    version: u32,
    request: &Bytes,
) -> Reply<Bytes> {
    let call = Call {
        op,
        version,
        request,
    };
    let core = &services.core;

    on!(call, DescribeTopics, |request| topics::describe(
        core, request
    )
    .into());
    on!(call, ListTopics, |request| topics::list(core, &request)
        .into());
    on!(call, CreateTopic, |request| topics::create(core, request));
    on!(call, UpdateTopic, |request| topics::update(core, request));
    on!(call, DeleteTopic, |request| topics::delete(core, request));
    on!(call, EnsureNamespace, |request| topics::ensure_namespace(
        core, request
    ));
    on!(call, ListNamespaces, |request| topics::list_namespaces(
        core, &request
    )
    .into());
    on!(call, ListBrokers, |_: Nothing| Reply::ok(cluster(services)));

    on!(call, OpenLedgers, |request| opening::open(core, request));
    on!(call, DescribeLedgers, |request| describe_ledgers(
        core, request
    )
    .into());
    on!(call, Rollover, |request: HandleRef| with(
        core,
        Some(request),
        "a rollover",
        |core, partition| { partition.roll_over(core).map(|()| Nothing {}) }
    ));
    on!(call, Trim, |request: handler_api::ledger::TrimRequest| {
        with(core, request.handle, "a trim", move |core, partition| {
            partition.trim(core, request.before_index)
        })
    });
    on!(
        call,
        UpdateLedgerProperties,
        |request: handler_api::ledger::PropertiesChange| {
            with(
                core,
                request.handle,
                "a change of properties",
                move |core, partition| {
                    let properties =
                        partition.update_properties(core, request.set, &request.remove)?;
                    Ok(Properties { properties })
                },
            )
        }
    );
    on!(
        call,
        ReplaceLedger,
        |request: handler_api::ledger::Replacement| {
            with(
                core,
                request.handle,
                "a replacement",
                move |core, partition| partition.replace(core, &request).map(|()| Nothing {}),
            )
        }
    );
    on!(call, StorageUse, |request| opening::storage_use(
        core, request
    ));

    on!(
        call,
        OpenCursor,
        |request: handler_api::cursor::CursorRequest| {
            with(core, request.handle, "a cursor", move |core, partition| {
                cursors::open(core, partition, &request)
            })
        }
    );
    on!(
        call,
        MarkDelete,
        |request: handler_api::cursor::CursorRequest| {
            with(core, request.handle, "a cursor", move |core, partition| {
                cursors::mark_delete(core, partition, &request)
            })
        }
    );
    on!(
        call,
        DeleteCursor,
        |request: handler_api::cursor::CursorRequest| {
            with(core, request.handle, "a cursor", move |core, partition| {
                cursors::delete(core, partition, &request).map(|()| Nothing {})
            })
        }
    );
    on!(call, ListCursors, |request: HandleRef| {
        with(core, Some(request), "cursors", cursors::list)
    });

    on!(call, GetValue, |request| values::get(core, &request).into());
    on!(call, PutValue, |request| values::put(core, request));
    on!(call, DeleteValue, |request| values::delete(core, request));
    on!(call, ListChildren, |request| values::children(
        core, &request
    )
    .into());
    on!(call, WatchPath, |request| values::watch(services, request)
        .into());

    on!(call, Authenticate, |_| Reply::err(ApiError::new(
        ErrorCode::Unsupported,
        "this broker authenticates nobody"
    )));
    on!(
        call,
        Authorize,
        |request: handler_api::auth::AuthorizeRequest| Reply::ok(Decisions {
            allowed: vec![true; request.actions.len()],
        })
    );
    on!(call, EndSession, |_| Reply::ok(Nothing {}));

    Reply::err(unsupported(op, version))
}

/// The managed ledger that a request names.
fn named(core: &Core, handle: Option<HandleRef>) -> Result<Arc<Partition>, ApiError> {
    let handle = handle
        .ok_or_else(|| ApiError::new(ErrorCode::InvalidArgument, "the request names no handle"))?;
    core.handles.get(handle.into())
}

/// Runs something on a managed ledger, on the disk's threads.
fn with<T: Send + 'static>(
    core: &Arc<Core>,
    handle: Option<HandleRef>,
    what: &'static str,
    task: impl FnOnce(&Arc<Core>, &Arc<Partition>) -> Result<T, ApiError> + Send + 'static,
) -> Reply<T> {
    match named(core, handle) {
        Ok(partition) => {
            let worker = Arc::clone(core);
            core.disk.reply(what, move || task(&worker, &partition))
        }
        Err(error) => Reply::err(error),
    }
}

fn describe_ledgers(core: &Core, handle: HandleRef) -> Result<LedgerList, ApiError> {
    let partition = named(core, Some(handle))?;
    let view = partition.view.lock();
    if let Some(dead) = &view.dead {
        return Err(dead.clone());
    }
    let ledgers = view.ledgers.iter().map(|ledger| {
        let row = &ledger.row;
        Ledger {
            id: row.id,
            first_index: row.first_index,
            last_index: row.last_index,
            entries: row.entries,
            bytes: row.bytes,
            sealed: row.sealed,
            created_ms: row.created_ms,
            last_append_ms: row.last_append_ms,
            replaced: row.replaced,
        }
    });
    Ok(LedgerList {
        ledgers: ledgers.collect(),
    })
}

fn cluster(services: &Services) -> Cluster {
    let owner = services.owner();
    Cluster {
        name: services.core.config.cluster_name.clone(),
        local_broker: owner.broker.to_string(),
        brokers: vec![Broker {
            id: owner.broker.into_string(),
            protocol_data: owner.protocol_data.into_string(),
        }],
    }
}
