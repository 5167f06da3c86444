//! Facts about requests in flight.

use std::net::SocketAddr;

use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ApiKey, HeartbeatRequest, ProduceRequest};
use kafka_protocol::protocol::Encodable;
use tracing::Instrument;

use super::super::budget::Budget;
use super::*;
use crate::api::Call;
use crate::net::fixture::server;
use crate::plugin::rooms;

const fn line(key: ApiKey, waits: bool, start: fn(Arc<Server>, Call, i32, Bytes) -> Work) -> Line {
    Line {
        key,
        name: "Test",
        min: 0,
        max: 99,
        advertised: true,
        waits,
        start,
    }
}

fn bytes(text: &'static str) -> Reply {
    Reply::Bytes(Encoded {
        segments: vec![Bytes::from_static(text.as_bytes())],
    })
}

static QUICK: Line = line(ApiKey::Heartbeat, false, |_, _, _, _| {
    Box::pin(async { Ok(bytes("quick")) })
});
static NEVER: Line = line(ApiKey::Heartbeat, false, |_, _, _, _| {
    Box::pin(std::future::pending())
});
static SLOW: Line = line(ApiKey::Heartbeat, true, |_, _, _, _| {
    Box::pin(async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(bytes("slow"))
    })
});
static LATER: Line = line(ApiKey::Heartbeat, false, |_, _, _, _| {
    Box::pin(async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(bytes("later"))
    })
});
static PANICS_NOW: Line = line(ApiKey::Heartbeat, false, |_, _, _, _| {
    Box::pin(async { panic!("a bug") })
});
static PANICS_LATER: Line = line(ApiKey::Produce, false, |_, _, _, _| {
    Box::pin(async {
        tokio::task::yield_now().await;
        panic!("a bug")
    })
});
static UNWRITABLE: Line = line(ApiKey::Heartbeat, false, |_, _, _, _| {
    Box::pin(async {
        Err(WireError::Reply {
            version: 4,
            reason: "a field too many".to_owned(),
        })
    })
});
static MALFORMED: Line = line(ApiKey::Heartbeat, false, |_, _, _, _| {
    Box::pin(async { Err(WireError::TrailingBytes(1)) })
});

fn call() -> Call {
    Call {
        version: 4,
        client_id: "c".into(),
        peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        listener: "PLAINTEXT".into(),
        connection: Arc::default(),
    }
}

/// Starts a request; its budget is of 10 bytes.
async fn start(
    pipeline: &mut Pipeline,
    budget: &Budget,
    line: &'static Line,
    version: i16,
    body: Bytes,
) {
    let memory = budget.try_take(10).unwrap();
    let work = (line.start)(Arc::clone(&pipeline.server), call(), 7, body.clone())
        .instrument(tracing::Span::none());
    let mut dispatch = Some(Dispatch {
        line,
        version,
        correlation_id: 7,
        body,
        work,
        bytes: 10,
        memory,
    });
    std::future::poll_fn(|cx| {
        if let Some(dispatch) = dispatch.take() {
            pipeline.start(dispatch, cx);
        }
        Poll::Ready(())
    })
    .await;
}

/// The next reply, waiting for it.
async fn next(pipeline: &mut Pipeline) -> Outcome {
    loop {
        if let Some(outcome) = pipeline.pop() {
            return outcome;
        }
        pipeline.advance().await;
    }
}

#[tokio::test]
async fn replies_leave_in_order_whoever_is_ready_first() {
    let mut pipeline = Pipeline::new(server(&[]).await);
    let budget = Budget::new(100);
    for line in [&SLOW, &QUICK, &LATER, &QUICK] {
        start(&mut pipeline, &budget, line, 4, Bytes::new()).await;
    }
    assert!(pipeline.pop().is_none());
    assert_eq!(
        (pipeline.len(), pipeline.bytes(), budget.free()),
        (4, 10, 90),
        "what is done, and what waits by its nature, gives its bytes back"
    );
    for text in ["slow", "quick", "later", "quick"] {
        assert_eq!(next(&mut pipeline).await, Ok(bytes(text)));
    }
    assert!(pipeline.is_empty());
    assert_eq!((pipeline.bytes(), budget.free()), (0, 100));
}

#[tokio::test]
async fn a_panic_is_answered_in_the_apis_own_layout_and_the_others_go_on() {
    let mut pipeline = Pipeline::new(server(&[]).await);
    let budget = Budget::new(100);
    let data = TopicProduceData::default()
        .with_partition_data(vec![PartitionProduceData::default().with_index(3)]);
    let mut body = Vec::new();
    ProduceRequest::default()
        .with_acks(1)
        .with_topic_data(vec![data])
        .encode(&mut body, 7)
        .unwrap();
    start(&mut pipeline, &budget, &PANICS_LATER, 7, body.into()).await;
    let mut heartbeat = Vec::new();
    HeartbeatRequest::default()
        .encode(&mut heartbeat, 4)
        .unwrap();
    start(&mut pipeline, &budget, &PANICS_NOW, 4, heartbeat.into()).await;
    start(&mut pipeline, &budget, &UNWRITABLE, 4, Bytes::new()).await;
    start(&mut pipeline, &budget, &QUICK, 4, Bytes::new()).await;

    let Ok(Reply::Bytes(produced)) = next(&mut pipeline).await else {
        panic!("a reply")
    };
    // correlation id, one topic without a name, one partition: 3, error −1
    assert_eq!(
        produced.segments.concat()[4..24],
        [
            0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 255, 255
        ]
    );
    for _ in 0..2 {
        let Ok(Reply::Bytes(beat)) = next(&mut pipeline).await else {
            panic!("a reply")
        };
        // header v1, throttle time, error −1, no tags
        assert_eq!(
            beat.segments.concat()[4..],
            [0, 0, 0, 7, 0, 0, 0, 0, 0, 255, 255, 0]
        );
    }
    assert_eq!(next(&mut pipeline).await, Ok(bytes("quick")));
    let failures = |key: ApiKey| {
        let place = crate::api::TABLE
            .iter()
            .position(|line| line.key == key)
            .unwrap();
        let text = rooms::metrics(&pipeline.server);
        let name = crate::api::TABLE[place].name;
        let start =
            format!("kop_server_REQUEST_FAILURE{{cluster=\"standalone\",request=\"{name}\"}}");
        text.lines()
            .find_map(|line| line.strip_prefix(&start).map(|n| n.trim().to_owned()))
            .unwrap()
    };
    assert_eq!(
        (failures(ApiKey::Produce), failures(ApiKey::Heartbeat)),
        ("1".to_owned(), "2".to_owned())
    );
}

#[tokio::test]
async fn an_unanswered_request_runs_out_of_time_and_a_waiting_one_does_not() {
    let mut pipeline = Pipeline::new(server(&[("requestTimeoutMs", "100")]).await);
    let budget = Budget::new(100);
    let mut heartbeat = Vec::new();
    HeartbeatRequest::default()
        .encode(&mut heartbeat, 4)
        .unwrap();
    start(&mut pipeline, &budget, &NEVER, 4, heartbeat.into()).await;
    start(&mut pipeline, &budget, &SLOW, 4, Bytes::new()).await;
    let started = Instant::now();
    let Ok(Reply::Bytes(beat)) = next(&mut pipeline).await else {
        panic!("a reply")
    };
    assert!(started.elapsed() >= Duration::from_millis(95));
    assert_eq!(
        beat.segments.concat()[4..],
        [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 7, 0],
        "REQUEST_TIMED_OUT"
    );
    assert_eq!(next(&mut pipeline).await, Ok(bytes("slow")));
    assert_eq!(budget.free(), 100);
}

#[tokio::test]
async fn a_malformed_request_is_an_error_of_the_connection() {
    let mut pipeline = Pipeline::new(server(&[]).await);
    let budget = Budget::new(100);
    start(&mut pipeline, &budget, &MALFORMED, 4, Bytes::new()).await;
    assert_eq!(next(&mut pipeline).await, Err(WireError::TrailingBytes(1)));
}

#[tokio::test]
async fn what_is_dropped_gives_everything_back() {
    let server = server(&[]).await;
    let mut pipeline = Pipeline::new(Arc::clone(&server));
    let budget = Budget::new(100);
    for line in [&NEVER, &QUICK, &NEVER] {
        start(&mut pipeline, &budget, line, 4, Bytes::new()).await;
    }
    assert!(rooms::metrics(&server).contains("REQUEST_QUEUE_SIZE{cluster=\"standalone\"} 2"));
    pipeline.clear();
    assert!(pipeline.is_empty());
    assert_eq!(budget.free(), 100);
    let text = rooms::metrics(&server);
    assert!(
        text.contains("REQUEST_QUEUE_SIZE{cluster=\"standalone\"} 0"),
        "{text}"
    );
    assert!(
        text.contains("REQUEST_BYTES_IN_FLIGHT{cluster=\"standalone\"} 0"),
        "{text}"
    );
}

#[tokio::test]
async fn whatever_waits_by_its_nature_lets_its_frame_go_and_can_still_be_refused() {
    let server = server(&[]).await;
    for line in crate::api::TABLE.iter().filter(|line| line.waits) {
        let mut pipeline = Pipeline::new(Arc::clone(&server));
        let budget = Budget::new(100);
        let waits = Line {
            start: |_, _, _, body| {
                Box::pin(async move {
                    drop(body);
                    tokio::task::yield_now().await;
                    panic!("a bug")
                })
            },
            ..*line
        };
        let waits: &'static Line = Box::leak(Box::new(waits));
        let frame = Bytes::from(vec![0; 10]);
        start(&mut pipeline, &budget, waits, line.max, frame.clone()).await;
        assert_eq!((pipeline.len(), pipeline.bytes()), (1, 0), "{}", line.name);
        assert_eq!(budget.free(), 100, "{}", line.name);
        assert!(frame.is_unique(), "{} keeps its frame", line.name);
        let refused = next(&mut pipeline).await;
        assert!(
            matches!(refused, Ok(Reply::Bytes(_))),
            "{}: {refused:?}",
            line.name
        );
    }
}
