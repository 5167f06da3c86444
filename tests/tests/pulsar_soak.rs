//! Long traffic with unloads inside one broker: nothing is lost, and nothing grows. And very many partitions.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kafka_protocol::messages::MetadataRequest;
use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::process::eventually;
use kop_tests::pulsar::admin::Admin;
use kop_tests::pulsar::release;
use kop_tests::raw::Raw;
use kop_tests::rd::{self, PATIENCE, Record};
use kop_tests::{or_skip, stat};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::Producer;

/// Seconds of traffic, in place of an hour.
const SECONDS: &str = "KOP_SOAK_SECONDS";
const HOUR: u64 = 3_600;
const PARTITIONS: i32 = 4;
/// How often the topic's bundles are unloaded.
const UNLOAD: Duration = Duration::from_secs(20);
/// Records queued per round of the producer, and its rest: some thousands a second.
const ROUND: usize = 50;
const REST: Duration = Duration::from_millis(10);
/// Room for what a JVM does by itself once it is warm: heap that was not touched yet, classes, compiled code.
const GROWTH: u64 = 128 << 20;
/// Direct buffers that a broker may hold more than after its first minutes.
const DIRECT_GROWTH: f64 = (64_u64 << 20) as f64;

fn broker() -> Result<Broker, String> {
    Ok(Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release()?)),
        ..Options::default()
    }))
}

/// What a broker holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident: u64,
    direct: f64,
    files: usize,
}

fn held(broker: &Broker) -> Held {
    let metrics = broker.admin().get("/metrics/").expect("metrics");
    let direct = metrics
        .lines()
        .filter(|line| line.starts_with("jvm_memory_direct_bytes_used"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    Held {
        resident: stat::memory(broker.pid()).expect("memory").resident,
        direct,
        files: stat::open_files(broker.pid()).expect("files"),
    }
}

fn unload(admin: Admin) {
    // Bundles that nobody owns just now are refused; that is no matter.
    let _ = admin.send("PUT", "/admin/v2/namespaces/public/default/unload", "");
}

/// A member that counts the records which it has read, and finds gaps.
struct Reader {
    member: BaseConsumer,
    next: BTreeMap<i32, i64>,
    read: usize,
}

impl Reader {
    /// Takes one record or error; false if there is none within the time.
    #[track_caller]
    fn take(&mut self, limit: Duration) -> bool {
        let record = match self.member.poll(limit) {
            Some(Ok(record)) => record,
            nothing => return nothing.is_some(),
        };
        let expected = self.next.entry(record.partition()).or_default();
        // A commit may be behind when a member comes back: records may come again, but none may be left out.
        assert!(record.offset() <= *expected, "a gap before {record:?}");
        if record.offset() == *expected {
            *expected += 1;
            self.read += 1;
        }
        true
    }
}

#[test]
#[ignore = "an hour; runs with --long"]
fn an_hour_of_traffic_with_unloads_loses_nothing_and_leaves_nothing_behind() {
    let broker = or_skip!(broker());
    let bootstrap = broker.bootstrap();
    let seconds = std::env::var(SECONDS).ok().and_then(|it| it.parse().ok());
    let whole = Duration::from_secs(seconds.unwrap_or(HOUR));
    rd::create_topic(&bootstrap, "soak", PARTITIONS);
    let producer = rd::producer(
        &bootstrap,
        &[("enable.idempotence", "true"), ("linger.ms", "5")],
    );
    let settings = [("group.id", "soak"), ("auto.offset.reset", "earliest")];
    let member: BaseConsumer = rd::config(&bootstrap, &settings)
        .create()
        .expect("a consumer");
    member.subscribe(&["soak"]).expect("subscribed");

    let begun = Instant::now();
    let (mut number, mut unloaded, mut warm) = (0, Instant::now(), None);
    let mut reader = Reader {
        member,
        next: BTreeMap::new(),
        read: 0,
    };
    while begun.elapsed() < whole {
        for _ in 0..ROUND {
            let partition = i32::try_from(number % PARTITIONS as usize).expect("small");
            rd::send(
                &producer,
                "soak",
                number,
                &Record::to(partition, [b'.'; 200]),
            );
            number += 1;
        }
        producer.poll(Duration::ZERO);
        while reader.take(Duration::ZERO) {}
        if unloaded.elapsed() > UNLOAD {
            unload(broker.admin());
            unloaded = Instant::now();
        }
        if warm.is_none() && begun.elapsed() > whole / 4 {
            warm = Some(held(&broker));
        }
        std::thread::sleep(REST);
    }
    producer.flush(PATIENCE).expect("everything is answered");
    producer.poll(Duration::ZERO);
    let refused = producer
        .context()
        .known()
        .into_values()
        .filter(Result::is_err);
    assert_eq!(refused.count(), 0, "records were refused");
    let deadline = Instant::now() + PATIENCE;
    while reader.read < number && Instant::now() < deadline {
        reader.take(Duration::from_millis(500));
    }
    assert_eq!(reader.read, number, "records read");
    let (warm, end) = (
        warm.expect("a quarter of the time has passed"),
        held(&broker),
    );
    println!("{number} records; warm {warm:?}, at the end {end:?}");
    assert!(end.resident < warm.resident + GROWTH, "{warm:?}, {end:?}");
    assert!(
        end.direct < warm.direct + DIRECT_GROWTH,
        "{warm:?}, {end:?}"
    );
    assert!(end.files < warm.files + 50, "{warm:?}, {end:?}");
}

#[test]
#[ignore = "minutes; runs with --long"]
fn metadata_of_ten_thousand_partitions_is_answered_within_a_tenth_of_a_second() {
    const TOPICS: u32 = 20;
    const EACH: u32 = 500;
    let broker = or_skip!(broker());
    let admin = broker.admin();
    for topic in 0..TOPICS {
        let name = format!("public/default/wide{topic}");
        admin.create_partitioned(&name, EACH).expect("created");
    }
    let mut raw = Raw::connect(broker.address());
    let request = MetadataRequest::default().with_topics(None);
    let mut ask = || {
        let begun = Instant::now();
        let reply = raw.call(12, &request);
        let partitions = reply.topics.iter().flat_map(|it| &it.partitions);
        let led = partitions.filter(|it| it.leader_id.0 >= 0).count();
        (led, begun.elapsed())
    };
    let all = (TOPICS * EACH) as usize;
    let first = eventually("a leader of each partition", PATIENCE * 5, || {
        let (led, took) = ask();
        (led >= all).then_some(took)
    });
    let warm = (0..5).map(|_| ask().1).min().expect("some");
    println!("first {first:?}, warm {warm:?}");
    assert!(warm < Duration::from_millis(100), "took {warm:?}");
}
