//! What reaches Java and what comes back. The bytes stand here as Java's classes read and write them.

use std::collections::HashMap;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use handler_api::auth::{Action, AuthorizeRequest, Decisions, Session};
use handler_api::control::{self, Nothing, Operation};
use handler_api::metadata::{Path, PutRequest, Value, ValueChanged};
use handler_api::topics::{
    BrokersChanged, NamespacePolicies, OwnershipChanged, PolicyOutcome, Topic, TopicChange,
    TopicNames, TopicsChanged,
};
use handler_api::{ErrorCode, Event, Owner};

use super::*;

/// A Java that gives one answer and remembers what it was asked.
struct Java {
    answer: Result<Vec<u8>, ApiError>,
    asked: Mutex<Vec<(u32, Vec<u8>)>>,
}

impl Java {
    fn answering(write: impl FnOnce(&mut Writer)) -> Self {
        let mut writer = Writer::new();
        write(&mut writer);
        Self {
            answer: Ok(writer.finish()),
            asked: Mutex::default(),
        }
    }

    fn call<O: Operation>(&self, request: &O::Request) -> Result<O::Answer, ApiError> {
        let reply = dispatch(self, O::OP, O::VERSION, &control::encode(request));
        done(reply).and_then(control::decode)
    }

    /// The one thing that it was asked.
    fn asked(&self, read: impl FnOnce(u32, &mut Reader<'_>)) {
        let asked = self.asked.lock().unwrap();
        let [(op, bytes)] = asked.as_slice() else {
            panic!("asked {} times", asked.len());
        };
        let mut reader = Reader::new(bytes);
        read(*op, &mut reader);
        assert!(reader.bool().is_err(), "something is left over");
    }
}

impl Upcalls for Java {
    fn call(&self, op: u32, request: Vec<u8>) -> Answer {
        self.asked.lock().unwrap().push((op, request));
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

fn done<T>(reply: Reply<T>) -> Result<T, ApiError> {
    match reply {
        Reply::Ready(result) => result,
        Reply::Pending(mut future) => {
            match future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
            {
                Poll::Ready(result) => result,
                Poll::Pending => panic!("Java has answered, and yet there is no answer"),
            }
        }
    }
}

fn text(key: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn topics_come_back_in_the_order_of_their_names() {
    let java = Java::answering(|writer| {
        writer.i32(2);
        writer
            .text("a")
            .bool(true)
            .i32(3)
            .map(&text("k", "v"))
            .i64(7);
        writer
            .text("b")
            .bool(false)
            .i32(0)
            .map(&HashMap::new())
            .i64(0);
    });
    let names = TopicNames {
        names: vec!["a".into(), "b".into()],
    };
    let found = java.call::<DescribeTopics>(&names).unwrap().topics;
    let expected = [
        Topic {
            name: "a".into(),
            found: true,
            partitions: 3,
            properties: text("k", "v"),
            created_ms: 7,
        },
        Topic {
            name: "b".into(),
            ..Topic::default()
        },
    ];
    assert_eq!(found, expected);
    java.asked(|op, reader| {
        assert_eq!((op, reader.texts().unwrap()), (0x0101, names.names));
    });
}

#[test]
fn a_change_of_a_topic_is_told_whole() {
    let java = Java::answering(|writer| {
        writer
            .text("a")
            .bool(true)
            .i32(5)
            .map(&text("k", "w"))
            .i64(7);
    });
    let change = TopicChange {
        name: "a".into(),
        partitions: 5,
        set: text("k", "w"),
        remove: vec!["r".into()],
        expect: text("k", "v"),
    };
    assert_eq!(java.call::<UpdateTopic>(&change).unwrap().partitions, 5);
    java.asked(|op, reader| {
        assert_eq!((op, reader.text().unwrap()), (0x0104, "a".to_owned()));
        assert_eq!(reader.i32().unwrap(), 5);
        assert_eq!(reader.map().unwrap(), change.set);
        assert_eq!(reader.texts().unwrap(), change.remove);
        assert_eq!(reader.map().unwrap(), change.expect);
    });
}

#[test]
fn more_partitions_than_java_can_count_are_refused_here() {
    let java = Java::answering(|_| {});
    let topic = Topic {
        name: "a".into(),
        partitions: u32::MAX,
        ..Topic::default()
    };
    let refused = java.call::<CreateTopic>(&topic).unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::InvalidArgument);
    assert!(java.asked.lock().unwrap().is_empty());
}

#[test]
fn absent_policies_are_told_as_absent() {
    let java = Java::answering(|writer| {
        writer.bool(false).text("do this");
    });
    let policies = NamespacePolicies {
        namespace: "a/b".into(),
        retention_bytes: Some(-1),
        compaction_threshold_bytes: Some(9),
        ..NamespacePolicies::default()
    };
    let outcome = java.call::<SetNamespacePolicies>(&policies).unwrap();
    let advice = "do this".to_owned();
    assert_eq!(
        outcome,
        PolicyOutcome {
            applied: false,
            advice
        }
    );
    java.asked(|op, reader| {
        assert_eq!((op, reader.text().unwrap()), (0x010a, "a/b".to_owned()));
        assert!(!reader.bool().unwrap(), "no time");
        assert!(reader.bool().unwrap());
        assert_eq!(reader.i64().unwrap(), -1);
        assert!(!reader.bool().unwrap(), "no TTL");
        assert!(reader.bool().unwrap());
        assert_eq!(reader.i64().unwrap(), 9);
    });
}

#[test]
fn values_keep_their_path_and_bytes() {
    let java = Java::answering(|writer| {
        writer.bytes(b"\0\xff").i64(4);
    });
    let path = Path { path: "/a".into() };
    let expected = Value {
        path: "/a".into(),
        value: b"\0\xff".as_slice().into(),
        version: 4,
    };
    assert_eq!(java.call::<GetValue>(&path).unwrap(), expected);

    let java = Java::answering(|writer| {
        writer.i64(5);
    });
    let put = PutRequest {
        path: "/a".into(),
        value: b"x".as_slice().into(),
        expected_version: Some(4),
    };
    assert_eq!(java.call::<PutValue>(&put).unwrap().version, 5);
    java.asked(|op, reader| {
        assert_eq!((op, reader.text().unwrap()), (0x0402, "/a".to_owned()));
        assert_eq!(reader.bytes().unwrap(), b"x");
        assert!(reader.bool().unwrap());
        assert_eq!(reader.i64().unwrap(), 4);
    });
}

#[test]
fn a_decision_too_few_allows_nothing() {
    let request = AuthorizeRequest {
        actions: vec![Action::default(), Action::default()],
        ..AuthorizeRequest::default()
    };
    let decide = |allowed: &[bool]| {
        let java = Java::answering(|writer| {
            writer.list(allowed, |writer, allowed| {
                writer.bool(*allowed);
            });
        });
        java.call::<Authorize>(&request)
    };
    let allowed = vec![true, false];
    assert_eq!(decide(&allowed).unwrap(), Decisions { allowed });
    assert_eq!(decide(&[true]).unwrap_err().kind(), ErrorCode::Internal);
    let java = Java::answering(|_| {});
    let session = Session { session: u64::MAX };
    let refused = java.call::<EndSession>(&session).unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::Unauthenticated);
}

#[test]
fn topics_of_one_bundle_share_an_answer() {
    let java = Java::answering(|writer| {
        writer.i32(2);
        writer.i32(0).bool(true).text("here:1").text("kafka://here");
        writer.i32(8).text("wait");
        writer.list(&[0, 1, 0], |writer, number| {
            writer.i32(*number);
        });
    });
    let topics = ["a", "b", "c"].map(str::to_owned);
    let owners = done(lookup(&java, &topics)).unwrap();
    let here = Owner {
        local: true,
        broker: "here:1".into(),
        protocol_data: "kafka://here".into(),
    };
    let wait = ApiError::new(ErrorCode::NotReady, "wait");
    assert_eq!(owners, [Ok(here.clone()), Err(wait), Ok(here)]);
    java.asked(|op, reader| {
        assert_eq!((op, reader.texts().unwrap()), (0x8001, topics.to_vec()));
    });
    assert!(
        done(lookup(&java, &topics[..2])).is_err(),
        "an answer too many"
    );
}

#[test]
fn an_answer_that_is_cut_off_is_an_error() {
    let whole = Java::answering(|writer| {
        writer
            .text("c")
            .text("here:1")
            .i32(1)
            .text("here:1")
            .text("");
    });
    let cluster = whole.call::<ListBrokers>(&Nothing {}).unwrap();
    assert_eq!(cluster.brokers.len(), 1);
    let bytes = whole.answer.unwrap();
    for length in 0..bytes.len() {
        let java = Java {
            answer: Ok(bytes[..length].to_vec()),
            asked: Mutex::default(),
        };
        let refused = java.call::<ListBrokers>(&Nothing {}).unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::Internal, "{length} bytes");
    }
}

#[test]
fn a_refusal_of_java_is_the_answer() {
    let refusal = ApiError::new(ErrorCode::Conflict, "it exists");
    let java = Java {
        answer: Err(refusal.clone()),
        asked: Mutex::default(),
    };
    let topic = Topic::default();
    assert_eq!(java.call::<CreateTopic>(&topic).unwrap_err(), refusal);
}

#[test]
fn events_are_translated_or_ignored() {
    let told = |op, write: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        write(&mut writer);
        translate(op, &writer.finish())
    };
    let moved = told(OwnershipChanged::OP, &|writer| {
        writer.texts(["a"].iter()).bool(false);
    });
    let expected = OwnershipChanged {
        topics: vec!["a".into()],
        acquired: false,
    };
    assert_eq!(moved.unwrap().unwrap(), control::encode(&expected));
    let gone = told(ValueChanged::OP, &|writer| {
        writer.text("/a").bool(true);
    });
    let expected = ValueChanged {
        path: "/a".into(),
        deleted: true,
    };
    assert_eq!(gone.unwrap().unwrap(), control::encode(&expected));
    let brokers = told(BrokersChanged::OP, &|writer| {
        writer.text("c").text("b:1").i32(0);
    });
    let brokers: BrokersChanged = control::decode(brokers.unwrap().unwrap()).unwrap();
    assert_eq!(brokers.cluster.unwrap().local_broker, "b:1");
    assert!(told(TopicsChanged::OP, &|_| {}).is_err(), "cut off");
    assert_eq!(told(0x7fff, &|_| {}).unwrap(), None);
}
