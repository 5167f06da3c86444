//! Facts about topics, values, cursors and the control calls as such.

use std::collections::HashMap;

use super::{Bench, PARTITION, Subject, TOPIC, kind};
use crate::auth::{
    Action, Authenticate, Authorize, AuthorizeRequest, Credentials, EndSession, Resource, Session,
    TopicOperation,
};
use crate::cursor::{CursorRequest, DeleteCursor, ListCursors, MarkDelete, OpenCursor};
use crate::host::capability;
use crate::ledger::{Rollover, Trim, TrimRequest};
use crate::metadata::{
    DeleteValue, GetValue, ListChildren, Path, PutRequest, PutValue, ValueChanged, WatchPath,
};
use crate::topics::{
    CreateTopic, DeleteTopic, DescribeTopics, EnsureNamespace, ListBrokers, ListNamespaces,
    ListTopics, Namespace, NamespacePolicies, SetNamespacePolicies, SetTopicPolicies, Tenant,
    Topic, TopicChange, TopicName, TopicNames, TopicPolicies, TopicsChanged, UpdateTopic,
};
use crate::{ApiError, ErrorCode, Reply};

fn topic(name: &str) -> String {
    format!("persistent://public/default/{name}")
}

impl Bench {
    fn describe(&self, names: &[&str]) -> Vec<Topic> {
        let names = TopicNames {
            names: names.iter().map(|name| (*name).into()).collect(),
        };
        self.control::<DescribeTopics>(&names).unwrap().topics
    }

    fn put(
        &self,
        path: &str,
        value: &'static [u8],
        expected: Option<i64>,
    ) -> Result<i64, ApiError> {
        let request = PutRequest {
            path: path.into(),
            value: value.into(),
            expected_version: expected,
        };
        self.control::<PutValue>(&request)
            .map(|value| value.version)
    }

    fn get(&self, path: &str) -> Result<(Vec<u8>, i64), ApiError> {
        let path = Path { path: path.into() };
        self.control::<GetValue>(&path)
            .map(|value| (value.value.to_vec(), value.version))
    }
}

/// By name, in the order of the request; unknown ones are not made by asking.
pub fn topics_are_created_described_and_listed(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let (b, a, single) = (topic("b"), topic("a"), topic("single"));
    let made = bench.create(&b, 3).unwrap();
    assert_eq!(
        (made.found, made.partitions, made.name.as_str()),
        (true, 3, b.as_str())
    );
    bench.create(&a, 1).unwrap();
    bench.create(&single, 0).unwrap();
    assert_eq!(kind(bench.create(&b, 3)), ErrorCode::Conflict);
    for _ in 0..2 {
        let described = bench.describe(&[&topic("none"), &b, &single]);
        let seen: Vec<_> = described
            .iter()
            .map(|topic| (topic.found, topic.partitions))
            .collect();
        assert_eq!(seen, [(false, 0), (true, 3), (true, 0)]);
    }
    let namespace = Namespace {
        namespace: "public/default".into(),
    };
    let listed = bench.control::<ListTopics>(&namespace).unwrap().topics;
    let names: Vec<_> = listed.iter().map(|topic| topic.name.clone()).collect();
    assert_eq!(names, [a.clone(), b, single.clone()]);
    bench.until("the event", || {
        let events = bench.witness.events::<TopicsChanged>();
        events
            .iter()
            .any(|event| event.topics.is_empty() || event.topics.contains(&a))
    });
    // A topic without partitions is opened by its own name.
    let handle = bench.open(&single).unwrap();
    assert_eq!(bench.append(handle, 1, b"x").unwrap().index, 0);
}

/// Entries stay where they are.
pub fn topics_grow_but_do_not_shrink(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    bench.append(handle, 1, b"x").unwrap();
    let update = |partitions| {
        bench.control::<UpdateTopic>(&TopicChange {
            name: TOPIC.into(),
            partitions,
            ..TopicChange::default()
        })
    };
    let last = PARTITION.replace("-0", "-4");
    assert_eq!(kind(bench.open(&last)), ErrorCode::NotFound);
    assert_eq!(update(5).unwrap().partitions, 5);
    bench.open(&last).unwrap();
    assert_eq!(update(0).unwrap().partitions, 5, "0 leaves it");
    assert_eq!(kind(update(4)), ErrorCode::InvalidArgument);
    assert_eq!(bench.describe(&[TOPIC])[0].partitions, 5);
    assert_eq!(bench.open(PARTITION).unwrap(), handle);
    assert_eq!(bench.read_all(handle, 0).len(), 1);
    let unknown = TopicChange {
        name: topic("none"),
        ..TopicChange::default()
    };
    assert_eq!(
        kind(bench.control::<UpdateTopic>(&unknown)),
        ErrorCode::NotFound
    );
}

/// Given at creation, set and removed later.
pub fn topic_properties_are_kept(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let text = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let request = Topic {
        name: TOPIC.into(),
        partitions: 1,
        properties: HashMap::from([text("a", "1"), text("b", "2")]),
        ..Topic::default()
    };
    let made = bench.control::<CreateTopic>(&request).unwrap();
    assert_eq!(made.properties, request.properties);
    let change = TopicChange {
        name: TOPIC.into(),
        set: HashMap::from([text("b", "3"), text("c", "")]),
        remove: vec!["a".into()],
        ..TopicChange::default()
    };
    let changed = bench.control::<UpdateTopic>(&change).unwrap();
    let expected = HashMap::from([text("b", "3"), text("c", "")]);
    assert_eq!(changed.properties, expected);
    assert_eq!(bench.describe(&[TOPIC])[0].properties, expected);
}

/// A change that expects other properties than there are changes nothing; an absent one counts as empty.
pub fn topic_properties_change_by_compare_and_set(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    bench.create(TOPIC, 1).unwrap();
    let pair = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
    let change = |expect, set| {
        bench.control::<UpdateTopic>(&TopicChange {
            name: TOPIC.into(),
            partitions: 3,
            set,
            expect,
            ..TopicChange::default()
        })
    };
    let refused = change(pair("v", "1"), pair("v", "2"));
    assert_eq!(kind(refused), ErrorCode::Conflict);
    let now = bench.describe(&[TOPIC]).remove(0);
    assert_eq!(
        (now.partitions, now.properties.len()),
        (1, 0),
        "nothing was changed"
    );
    change(pair("v", ""), pair("v", "1")).unwrap();
    assert_eq!(
        kind(change(pair("v", ""), pair("v", "x"))),
        ErrorCode::Conflict
    );
    change(pair("v", "1"), pair("v", "2")).unwrap();
    let now = bench.describe(&[TOPIC]).remove(0);
    assert_eq!((now.partitions, now.properties), (3, pair("v", "2")));
}

/// A topic of the same name starts from nothing.
pub fn deleting_a_topic_deletes_its_data(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    bench.append(handle, 7, b"x").unwrap();
    let name = TopicName { name: TOPIC.into() };
    bench.control::<DeleteTopic>(&name).unwrap();
    assert!(!bench.describe(&[TOPIC])[0].found);
    assert_eq!(
        kind(bench.control::<DeleteTopic>(&name)),
        ErrorCode::NotFound
    );
    bench.create(TOPIC, 1).unwrap();
    let opened = bench.opened(PARTITION).unwrap();
    assert_eq!((opened.start_index, opened.end_index), (0, -1));
}

/// A topic cannot be made in a namespace that does not exist.
pub fn namespaces_are_needed_and_made(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let name = "persistent://contract/space/t";
    assert_eq!(kind(bench.create(name, 1)), ErrorCode::NotFound);
    let namespace = Namespace {
        namespace: "contract/space".into(),
    };
    bench.control::<EnsureNamespace>(&namespace).unwrap();
    bench.control::<EnsureNamespace>(&namespace).unwrap();
    bench.create(name, 1).unwrap();
    let tenant = Tenant {
        tenant: "contract".into(),
    };
    let listed = bench.control::<ListNamespaces>(&tenant).unwrap().namespaces;
    assert_eq!(listed, ["contract/space"]);
    assert_eq!(
        bench
            .control::<ListTopics>(&namespace)
            .unwrap()
            .topics
            .len(),
        1
    );
}

/// A host that gives up data by itself is told how long to keep it; one that does not says that it cannot be told.
pub fn retention_is_set_where_the_host_gives_up_data(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    bench.create(TOPIC, 1).unwrap();
    let topic = |name: &str, retention_ms| TopicPolicies {
        name: name.into(),
        retention_ms,
        retention_bytes: Some(-1),
    };
    let namespace = NamespacePolicies {
        namespace: "public/default".into(),
        retention_ms: Some(-1),
        retention_bytes: Some(-1),
        ..NamespacePolicies::default()
    };
    let set = |policies| bench.control::<SetTopicPolicies>(&policies);
    if !bench.host.has(capability::HOST_RETENTION) {
        assert_eq!(kind(set(topic(TOPIC, Some(-1)))), ErrorCode::Unsupported);
        let refused = bench.control::<SetNamespacePolicies>(&namespace);
        assert_eq!(kind(refused), ErrorCode::Unsupported);
        return;
    }
    let first = set(topic(TOPIC, Some(86_400_000))).unwrap();
    assert_ne!(first.applied, !first.advice.is_empty(), "one or the other");
    let unknown = topic("persistent://public/default/none", Some(1));
    assert_eq!(kind(set(unknown)), ErrorCode::NotFound);
    assert_eq!(
        kind(set(topic(TOPIC, Some(-2)))),
        ErrorCode::InvalidArgument
    );
    for _ in 0..2 {
        let outcome = bench.control::<SetNamespacePolicies>(&namespace).unwrap();
        assert!(outcome.applied, "{}", outcome.advice);
    }
    // What the namespace keeps for ever, it keeps for a day.
    assert!(set(topic(TOPIC, Some(86_400_000))).unwrap().applied);
}

/// Of many writers that expect the same version, one wins.
pub fn values_change_by_compare_and_set(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let path = "/contract/value";
    assert_eq!(kind(bench.get(path)), ErrorCode::NotFound);
    assert_eq!(kind(bench.put(path, b"x", Some(0))), ErrorCode::Conflict);
    assert_eq!(bench.put(path, b"a", Some(-1)).unwrap(), 0);
    assert_eq!(kind(bench.put(path, b"x", Some(-1))), ErrorCode::Conflict);
    assert_eq!(bench.put(path, b"b", Some(0)).unwrap(), 1);
    assert_eq!(bench.put(path, b"c", None).unwrap(), 2);
    assert_eq!(bench.get(path).unwrap(), (b"c".to_vec(), 2));
    let delete = |expected_version| {
        bench.control::<DeleteValue>(&PutRequest {
            path: path.into(),
            expected_version,
            ..PutRequest::default()
        })
    };
    assert_eq!(kind(delete(Some(1))), ErrorCode::Conflict);
    delete(Some(2)).unwrap();
    assert_eq!(kind(delete(None)), ErrorCode::NotFound);
    assert_eq!(kind(bench.get(path)), ErrorCode::NotFound);
    bench.put(path, b"0", Some(-1)).unwrap();
    let bench = &bench;
    let won: usize = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    (0..20)
                        .filter(|n| bench.put(path, b"w", Some(*n)).is_ok())
                        .count()
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum()
    });
    let (_, version) = bench.get(path).unwrap();
    assert_eq!(won as i64, version, "every version was written once");
}

/// Direct children only, by name.
pub fn values_are_listed_by_path(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    for path in ["/c/b", "/c/a", "/c/a/deeper", "/c/a-z", "/cc/x"] {
        bench.put(path, b"", None).unwrap();
    }
    let list = |path: &str| {
        let path = Path { path: path.into() };
        bench.control::<ListChildren>(&path).unwrap().paths
    };
    assert_eq!(list("/c"), ["/c/a", "/c/a-z", "/c/b"]);
    assert_eq!(list("/c/a"), ["/c/a/deeper"]);
    assert!(list("/c/b").is_empty());
}

/// The path itself and all below it, and no other.
pub fn watched_paths_are_told_of(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let path = Path { path: "/w".into() };
    bench.put("/w/before", b"", None).unwrap();
    bench.control::<WatchPath>(&path).unwrap();
    bench.put("/w/a", b"", None).unwrap();
    bench.put("/wide", b"", None).unwrap();
    let gone = PutRequest {
        path: "/w/a".into(),
        ..PutRequest::default()
    };
    bench.control::<DeleteValue>(&gone).unwrap();
    bench.put("/w", b"", None).unwrap();
    bench.until("the last event", || {
        bench
            .witness
            .events::<ValueChanged>()
            .iter()
            .any(|event| event.path == "/w")
    });
    let told: Vec<_> = bench
        .witness
        .events::<ValueChanged>()
        .into_iter()
        .map(|event| (event.path, event.deleted))
        .collect();
    let expected = [("/w/a", false), ("/w/a", true), ("/w", false)];
    assert_eq!(
        told,
        expected.map(|(path, deleted)| (path.to_owned(), deleted))
    );
}

/// Cursors are kept by name; each has the position of its entry.
pub fn cursors_only_move_forward(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    let placed: Vec<_> = (0..5)
        .map(|_| bench.append(handle, 2, b"x").unwrap())
        .collect();
    let request = |name: &str, index| CursorRequest {
        handle: Some(handle.into()),
        name: name.into(),
        index,
    };
    let opened = bench.control::<OpenCursor>(&request("c", -1)).unwrap();
    assert_eq!((opened.index, opened.position), (-1, None));
    let moved = bench.control::<MarkDelete>(&request("c", 5)).unwrap();
    assert_eq!(
        (moved.index, moved.position),
        (5, Some(placed[2].position.into()))
    );
    assert_eq!(
        kind(bench.control::<MarkDelete>(&request("c", 4))),
        ErrorCode::InvalidArgument
    );
    assert_eq!(
        bench.control::<OpenCursor>(&request("c", 0)).unwrap().index,
        5,
        "opening does not move it"
    );
    bench.control::<OpenCursor>(&request("b", 1)).unwrap();
    let list = || {
        let cursors = bench
            .control::<ListCursors>(&handle.into())
            .unwrap()
            .cursors;
        cursors
            .into_iter()
            .map(|cursor| (cursor.name, cursor.index))
            .collect::<Vec<_>>()
    };
    assert_eq!(list(), [("b".to_owned(), 1), ("c".to_owned(), 5)]);
    bench.control::<DeleteCursor>(&request("b", 0)).unwrap();
    assert_eq!(list(), [("c".to_owned(), 5)]);
    assert_eq!(
        kind(bench.control::<MarkDelete>(&request("b", 9))),
        ErrorCode::NotFound
    );
    assert_eq!(
        kind(bench.control::<DeleteCursor>(&request("b", 0))),
        ErrorCode::NotFound
    );
    assert_eq!(
        kind(bench.control::<OpenCursor>(&request("", 0))),
        ErrorCode::InvalidArgument
    );
}

/// A cursor is a promise to keep data.
pub fn trimming_keeps_what_lies_behind_a_cursor(subject: &dyn Subject) {
    let (bench, handle) = Bench::with_topic(subject);
    for _ in 0..3 {
        for _ in 0..3 {
            bench.append(handle, 1, b"x").unwrap();
        }
        bench.control::<Rollover>(&handle.into()).unwrap();
    }
    let cursor = |index| CursorRequest {
        handle: Some(handle.into()),
        name: "c".into(),
        index,
    };
    bench.control::<OpenCursor>(&cursor(3)).unwrap();
    let trim = TrimRequest {
        handle: Some(handle.into()),
        before_index: 9,
    };
    let start = bench.control::<Trim>(&trim).unwrap().start_index;
    assert_eq!(
        start,
        if bench.host.has(capability::TRIM_TO_ENTRY) {
            4
        } else {
            3
        }
    );
    bench.control::<MarkDelete>(&cursor(8)).unwrap();
    assert_eq!(bench.control::<Trim>(&trim).unwrap().start_index, 9);
}

/// An older host answers a newer plugin, it does not fail.
pub fn unknown_operations_and_malformed_requests_are_refused(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let services = bench.running.services();
    let call = |op, version, request: &'static [u8]| {
        let reply = services.call(op, version, request.into());
        kind(match reply {
            Reply::Ready(result) => result,
            Reply::Pending(future) => bench.wait(future),
        })
    };
    assert_eq!(call(0xffff, 1, b""), ErrorCode::Unsupported);
    use crate::Operation;
    assert_eq!(call(CreateTopic::OP, 99, b""), ErrorCode::Unsupported);
    assert_eq!(
        call(CreateTopic::OP, 1, b"\xff\xff\xff"),
        ErrorCode::InvalidArgument
    );
    assert_eq!(call(Rollover::OP, 1, b"\x0a"), ErrorCode::InvalidArgument);
}

/// A lookup answers for topics that do not exist too; the cluster knows the brokers that it names.
pub fn everything_is_looked_up_here_or_elsewhere(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let names = vec![PARTITION.to_owned(), topic("none")];
    let owners = bench.wait(bench.host.lookup(names)).unwrap();
    assert_eq!(owners.len(), 2);
    let cluster = bench
        .control::<ListBrokers>(&crate::control::Nothing {})
        .unwrap();
    assert!(
        cluster
            .brokers
            .iter()
            .any(|broker| broker.id == cluster.local_broker)
    );
    for owner in owners {
        let owner = owner.unwrap();
        assert!(
            cluster
                .brokers
                .iter()
                .any(|broker| broker.id == owner.broker.as_str())
        );
        assert_eq!(owner.local, owner.broker.as_str() == cluster.local_broker);
        if bench.host.has(capability::SINGLE_BROKER) {
            assert!(owner.local);
        }
    }
}

/// One decision per action; a host without authorization allows everything.
pub fn permissions_are_answered_one_by_one(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let action = |operation: TopicOperation| Action {
        resource: Resource::Topic as i32,
        name: TOPIC.into(),
        operation: operation as i32,
        subscription: String::new(),
    };
    let request = AuthorizeRequest {
        actions: vec![
            action(TopicOperation::Produce),
            action(TopicOperation::Consume),
        ],
        ..AuthorizeRequest::default()
    };
    let decisions = bench.control::<Authorize>(&request).unwrap();
    assert_eq!(decisions.allowed.len(), 2);
    if !bench.host.has(capability::AUTHENTICATION) {
        assert_eq!(decisions.allowed, [true, true]);
    }
}

/// Who shows the right ones is known by a role until the session ends; a host without authentication knows nobody.
pub fn credentials_are_checked_where_they_are_asked_for(subject: &dyn Subject) {
    let bench = Bench::start(subject);
    let shown = |method: &str, data: &'static [u8]| {
        bench.control::<Authenticate>(&Credentials {
            method: method.into(),
            data: data.into(),
            remote_address: "127.0.0.1:4711".into(),
        })
    };
    if !bench.host.has(capability::AUTHENTICATION) {
        assert_eq!(kind(shown("token", b"x")), ErrorCode::Unsupported);
        return;
    }
    let unknown = shown("no-such-method", b"x");
    assert_eq!(kind(unknown), ErrorCode::Unauthenticated);
    let Some(credentials) = subject.credentials() else {
        return;
    };
    let wrong = shown(&credentials.method, b"wrong");
    assert_eq!(kind(wrong), ErrorCode::Unauthenticated);
    let identity = bench.control::<Authenticate>(&credentials).unwrap();
    assert!(!identity.role.is_empty());
    let may_produce = |role: &str, session| {
        let request = AuthorizeRequest {
            role: role.into(),
            session,
            actions: vec![Action {
                resource: Resource::Topic as i32,
                name: TOPIC.into(),
                operation: TopicOperation::Produce as i32,
                subscription: String::new(),
            }],
        };
        bench.control::<Authorize>(&request)
    };
    let allowed = may_produce(&identity.role, identity.session).unwrap();
    assert_eq!(allowed.allowed, [true]);
    assert_eq!(may_produce("", 0).unwrap().allowed, [false]);
    let session = Session {
        session: identity.session,
    };
    bench.control::<EndSession>(&session).unwrap();
    let ended = may_produce(&identity.role, identity.session);
    assert_eq!(kind(ended), ErrorCode::Unauthenticated);
}
