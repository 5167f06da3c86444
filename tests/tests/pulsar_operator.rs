//! What an operator of a stock Pulsar does and sees: the file in `protocols/`, the guide's settings, a start; and with
//! a step left out, a start that stops with one line which names the key and the cure.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use kop_fetch::pulsar::Release;
use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::process::eventually;
use kop_tests::pulsar::{INDEX_INTERCEPTOR, TIME_INTERCEPTOR, release};
use kop_tests::rd::{self, PATIENCE};
use kop_tests::{or_skip, stat};

/// How long a start may take to end that cannot succeed.
const REFUSED: Duration = Duration::from_secs(60);
/// How long a clean stop may take: Pulsar's own share of it is 5 to 13 s.
const STOPPED: Duration = Duration::from_secs(30);

fn options(release: Release) -> Options {
    Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    }
}

/// Starts a broker that must not come up, and gives what it printed.
#[track_caller]
fn refused(options: Options) -> String {
    let begun = Instant::now();
    let problem = match Broker::try_with(options) {
        Ok(_) => panic!("the broker came up"),
        Err(problem) => problem,
    };
    assert!(
        problem.contains(" ended with ") && begun.elapsed() < REFUSED,
        "the start did not end by itself: {problem}"
    );
    problem
}

/// The one line of ours among what a broker printed that holds all of these.
#[track_caller]
fn line<'a>(printed: &'a str, words: &[&str]) -> &'a str {
    let mut lines = printed.lines();
    let found = lines.find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("no line with {words:?} in:\n{printed}"))
}

#[test]
fn the_guides_steps_give_a_broker_that_serves_kafka_clients_and_stops_in_time() {
    let release = or_skip!(release());
    let mut broker = Broker::with(options(release));
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "first", 3);
    rd::produce(&bootstrap, "first", &[], &rd::numbered(2, 0..50));
    assert_eq!(rd::read_all(&bootstrap, "first", 3).len(), 50);
    assert_eq!(
        broker.admin().partitions("public/default/first"),
        Ok(3),
        "the topic is one of Pulsar's own"
    );
    let begun = Instant::now();
    broker.stop().expect("it stops");
    assert!(begun.elapsed() < STOPPED, "took {:?}", begun.elapsed());
    let log = broker.log();
    assert!(!log.contains("panicked"), "a panic in the log:\n{log}");

    broker.restart();
    let records = rd::read_all(&bootstrap, "first", 3);
    assert_eq!(records.len(), 50, "records of before the restart");
    let after = rd::produce(&bootstrap, "first", &[], &rd::numbered(2, 50..51));
    assert_eq!(after, [(2, 50)], "offsets go on where they were");
}

#[test]
fn without_the_index_interceptor_the_start_stops_and_says_what_to_set() {
    let release = or_skip!(release());
    let key = "brokerEntryMetadataInterceptors";
    let printed = refused(options(release).set(key, TIME_INTERCEPTOR));
    line(&printed, &[key, INDEX_INTERCEPTOR]);
}

#[test]
fn a_port_that_is_taken_stops_the_start_and_is_named() {
    let release = or_skip!(release());
    let other = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    let listener = format!("PLAINTEXT://{address}");
    let printed = refused(options(release).set("kafkaListeners", &listener));
    line(&printed, &["kafkaListeners", &address]);
}

#[test]
fn a_value_that_cannot_be_stops_the_start_and_is_named() {
    let release = or_skip!(release());
    let printed = refused(options(release).set("entryFormat", "avro"));
    line(&printed, &["entryFormat", "avro"]);
}

#[test]
fn a_broker_with_idle_clients_uses_next_to_no_processor_time_for_us() {
    let release = or_skip!(release());
    let broker = Broker::with(options(release));
    let bootstrap = broker.bootstrap();
    rd::create_topic(&bootstrap, "idle", 8);
    let consumer: rdkafka::consumer::BaseConsumer = rd::config(&bootstrap, &[("group.id", "idle")])
        .create()
        .expect("a consumer");
    rdkafka::consumer::Consumer::subscribe(&consumer, &["idle"]).expect("subscribed");
    eventually("an assignment", PATIENCE, || {
        consumer.poll(Duration::from_millis(100));
        let assigned = rdkafka::consumer::Consumer::assignment(&consumer).ok()?;
        (assigned.count() == 8).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    let before = stat::processor_time(broker.pid()).expect("time");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        consumer.poll(Duration::from_millis(500));
    }
    let used = stat::processor_time(broker.pid()).expect("time") - before;
    assert!(used < Duration::from_secs(1), "{used:?} in 5 s");
}
