//! The host as a subject of the contract: emptied between facts, since it is one broker for all of them.
//!
//! It must not know which host it is.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use handler_api::auth::Credentials;
use handler_api::contract::{Running, Subject, Witness};
use handler_api::control::Operation;
use handler_api::metadata::{DeleteValue, ListChildren, Path, PutRequest};
use handler_api::topics::{
    DeleteTopic, EnsureNamespace, ListNamespaces, ListTopics, Namespace, Tenant, TopicName,
};
use handler_api::{ApiError, ErrorCode, Handle, Host, HostServices, Position};

/// Where the facts keep values, and where they make topics.
const PATHS: [&str; 5] = ["/contract", "/c", "/cc", "/w", "/wide"];
const NAMESPACES: [&str; 2] = ["public/default", "contract/space"];

/// Who listens to the host at this moment.
#[derive(Debug, Default)]
pub(crate) struct Listening(Mutex<Option<Arc<Witness>>>);

impl Listening {
    fn witness(&self) -> Option<Arc<Witness>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, witness: Option<Arc<Witness>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = witness;
    }

    pub(crate) fn end_moved(&self, handle: Handle, position: Position, index: i64) {
        if let Some(witness) = self.witness() {
            witness.end_moved(handle, position, index);
        }
    }

    pub(crate) fn event(&self, op: u32, payload: Bytes) {
        if let Some(witness) = self.witness() {
            witness.event(op, payload);
        }
    }
}

/// The host that has loaded this plugin.
pub(crate) struct ThisHost {
    pub(crate) host: Host,
    pub(crate) listening: Arc<Listening>,
    /// What somebody shows who may do everything.
    pub(crate) token: Option<String>,
}

impl Subject for ThisHost {
    fn start(&self, witness: Arc<Witness>) -> Box<dyn Running> {
        self.empty();
        self.listening.set(Some(witness));
        Box::new(Served {
            host: self.host.clone(),
            listening: Arc::clone(&self.listening),
        })
    }

    fn credentials(&self) -> Option<Credentials> {
        self.token.clone().map(|token| Credentials {
            method: "token".to_owned(),
            data: token.into(),
            remote_address: "127.0.0.1:4711".to_owned(),
        })
    }
}

struct Served {
    host: Host,
    listening: Arc<Listening>,
}

impl Running for Served {
    fn services(&self) -> Arc<dyn HostServices> {
        Arc::new(self.host.clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.listening.set(None);
    }
}

impl ThisHost {
    /// Takes away what earlier facts have left. What cannot be taken away makes a fact fail, which then says so.
    fn empty(&self) {
        // A Pulsar standalone makes it only after its broker has started.
        let namespace = Namespace {
            namespace: "public/default".to_owned(),
        };
        for _ in 0..100 {
            if self.control::<EnsureNamespace>(&namespace).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        for namespace in NAMESPACES {
            self.empty_namespace(namespace);
        }
        for path in PATHS {
            self.delete(path);
        }
    }

    fn empty_namespace(&self, namespace: &str) {
        let tenant = namespace.split('/').next().unwrap_or_default().to_owned();
        let known = self.control::<ListNamespaces>(&Tenant { tenant });
        let namespace = namespace.to_owned();
        if !known.is_ok_and(|list| list.namespaces.contains(&namespace)) {
            return;
        }
        let topics = self.control::<ListTopics>(&Namespace { namespace });
        for topic in topics.map(|list| list.topics).unwrap_or_default() {
            let name = TopicName { name: topic.name };
            for _ in 0..5 {
                match self.control::<DeleteTopic>(&name) {
                    Err(error) if error.kind() != ErrorCode::NotFound => {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    _ => break,
                }
            }
        }
    }

    /// Deletes a value and all below it; a path without a value is no error.
    fn delete(&self, path: &str) {
        let asked = Path { path: path.into() };
        let below = self.control::<ListChildren>(&asked);
        for path in below.map(|list| list.paths).unwrap_or_default() {
            self.delete(&path);
        }
        let gone = PutRequest {
            path: path.into(),
            ..PutRequest::default()
        };
        let _ = self.control::<DeleteValue>(&gone);
    }

    fn control<O: Operation>(&self, request: &O::Request) -> Result<O::Answer, ApiError> {
        wait(self.host.control::<O>(request))
    }
}

#[derive(Default)]
struct Woken {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// Waits for an answer.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        let guard = woken.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = woken.changed.wait_while(guard, |woken| !*woken);
        *waited.unwrap_or_else(PoisonError::into_inner) = false;
    }
}
