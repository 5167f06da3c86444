//! Topics are Pulsar's: what `pulsar-admin` creates, expands, truncates and deletes, Kafka clients see at once, and the
//! other way round.

use std::time::{Duration, Instant};

use kop_fetch::pulsar::Release;
use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::or_skip;
use kop_tests::process::eventually;
use kop_tests::pulsar::release;
use kop_tests::rd::{self, PATIENCE};
use rdkafka::admin::{NewPartitions, ResourceSpecifier};
use rdkafka::consumer::{BaseConsumer, Consumer};

/// How long "at once" may take on a machine that is busy with other tests.
const AT_ONCE: Duration = Duration::from_secs(5);

fn broker(release: Release) -> Broker {
    // The options of the default, but for a test that may run where the others do not.
    Broker::with(Options {
        flavour: Some(Flavour::Pulsar(release)),
        ..Options::default()
    })
}

/// How many partitions a Kafka client is told that a topic has; `None` if there is no such topic.
fn seen(broker: &Broker, topic: &str) -> Option<usize> {
    let consumer: BaseConsumer = rd::config(&broker.bootstrap(), &[]).create().ok()?;
    let metadata = consumer.fetch_metadata(None, PATIENCE).ok()?;
    let found = metadata.topics().iter().find(|it| it.name() == topic)?;
    found.error().is_none().then(|| found.partitions().len())
}

#[track_caller]
fn is_seen_at_once(broker: &Broker, topic: &str, partitions: Option<usize>) {
    let begun = Instant::now();
    eventually(&format!("{topic} with {partitions:?}"), AT_ONCE, || {
        (seen(broker, topic) == partitions).then_some(())
    });
    println!("{topic}: {partitions:?} after {:?}", begun.elapsed());
}

#[test]
fn what_pulsar_admin_does_to_a_topic_kafka_clients_see_at_once() {
    let broker = broker(or_skip!(release()));
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    admin
        .create_partitioned("public/default/theirs", 2)
        .expect("created");
    is_seen_at_once(&broker, "theirs", Some(2));
    rd::produce(&bootstrap, "theirs", &[], &rd::numbered(1, 0..10));

    admin.expand("public/default/theirs", 5).expect("expanded");
    is_seen_at_once(&broker, "theirs", Some(5));
    let placed = rd::produce(&bootstrap, "theirs", &[], &rd::numbered(4, 0..10));
    assert_eq!(placed.last(), Some(&(4, 9)));
    assert_eq!(rd::read_all(&bootstrap, "theirs", 5).len(), 20);

    admin
        .delete_partitioned("public/default/theirs")
        .expect("deleted");
    is_seen_at_once(&broker, "theirs", None);
    // The name is free: a topic that is made anew begins anew.
    admin
        .create_partitioned("public/default/theirs", 1)
        .expect("created");
    is_seen_at_once(&broker, "theirs", Some(1));
    let placed = rd::produce(&bootstrap, "theirs", &[], &rd::numbered(0, 0..3));
    assert_eq!(placed, [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn what_kafka_clients_do_to_a_topic_pulsar_admin_shows() {
    let broker = broker(or_skip!(release()));
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    rd::create_topic(&bootstrap, "ours", 2);
    assert_eq!(admin.partitions("public/default/ours"), Ok(2));
    let listed = admin.json("/admin/v2/persistent/public/default/partitioned");
    let listed = listed.expect("a list").to_string();
    assert!(
        listed.contains("persistent://public/default/ours\""),
        "{listed}"
    );

    let kafka = rd::admin(&bootstrap);
    let more = NewPartitions::new("ours", 6);
    let grown = rd::block_on(kafka.create_partitions([&more], &rd::admin_options()));
    grown.expect("an answer")[0].as_ref().expect("grown");
    assert_eq!(admin.partitions("public/default/ours"), Ok(6));

    let gone = rd::block_on(kafka.delete_topics(&["ours"], &rd::admin_options()));
    gone.expect("an answer")[0].as_ref().expect("deleted");
    let answer = admin.send(
        "GET",
        "/admin/v2/persistent/public/default/ours/partitions",
        "",
    );
    let answer = answer.expect("an answer");
    assert!(
        answer.status == 404 || answer.body.contains("\"partitions\":0"),
        "{answer:?}"
    );
}

#[test]
fn a_topics_configs_are_kept_with_the_topic_in_pulsar() {
    let broker = broker(or_skip!(release()));
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    rd::create_topic_with(&bootstrap, "kept", 1, &[("retention.ms", "3600000")]);
    let kafka = rd::admin(&bootstrap);
    let topic = ResourceSpecifier::Topic("kept");
    let described = rd::block_on(kafka.describe_configs([&topic], &rd::admin_options()));
    let described = described.expect("an answer").remove(0).expect("configs");
    let retention = described.get("retention.ms").expect("a value");
    assert_eq!(retention.value.as_deref(), Some("3600000"));
    // Pulsar itself knows how long to keep the data: nobody's subscription does.
    let retention = eventually("a retention policy", PATIENCE, || {
        let path = "/admin/v2/persistent/public/default/kept/retention";
        let policy = admin.json(path).ok()?;
        policy["retentionTimeInMinutes"].as_i64()
    });
    assert_eq!(retention, 60);
}

#[test]
fn data_that_pulsar_has_truncated_is_gone_for_kafka_clients_and_offsets_go_on() {
    let broker = broker(or_skip!(release()));
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    rd::create_topic(&bootstrap, "cut", 1);
    rd::produce(&bootstrap, "cut", &[], &rd::numbered(0, 0..50));
    let topic = "public/default/cut-partition-0";
    // Only whole ledgers are dropped: a reload closes the one that is written to.
    admin
        .must("PUT", &format!("/admin/v2/persistent/{topic}/unload"), "")
        .expect("unloaded");
    let placed = rd::produce(&bootstrap, "cut", &[], &rd::numbered(0, 50..60));
    assert_eq!(placed.first(), Some(&(0, 50)), "offsets go on");
    admin
        .must(
            "DELETE",
            &format!("/admin/v2/persistent/{topic}/truncate"),
            "",
        )
        .expect("truncated");
    let consumer: BaseConsumer = rd::config(&bootstrap, &[]).create().expect("a consumer");
    eventually("the new start", PATIENCE, || {
        let (low, high) = consumer.fetch_watermarks("cut", 0, PATIENCE).ok()?;
        (low == 50 && high == 60).then_some(())
    });
    let offsets: Vec<i64> = rd::read_all(&bootstrap, "cut", 1)
        .into_iter()
        .map(|(_, offset, ..)| offset)
        .collect();
    assert_eq!(offsets, (50..60).collect::<Vec<_>>());
}

#[test]
fn the_namespace_of_committed_offsets_keeps_its_data_and_the_log_says_so() {
    let broker = broker(or_skip!(release()));
    let namespace = "/admin/v2/namespaces/public/__kafka";
    let retention = broker.admin().json(&format!("{namespace}/retention"));
    let retention = retention.expect("a policy");
    let minutes = retention["retentionTimeInMinutes"].as_i64();
    // Commits are kept for three days (KoP's offsetsRetentionMinutes) and written again before their entries go.
    assert!(
        minutes.is_some_and(|it| !(0..2 * 4_320).contains(&it)),
        "{retention}"
    );
    assert_eq!(retention["retentionSizeInMB"], -1, "{retention}");
    let ttl = broker.admin().json(&format!("{namespace}/messageTTL"));
    assert_eq!(ttl.expect("a policy"), 259_200);
    let log = broker.log();
    let mut lines = log.lines();
    assert!(
        lines.any(|line| line.contains("public/__kafka") && line.contains("keeps data like this")),
        "{log}"
    );
}

#[test]
fn topics_of_another_tenant_are_reached_by_their_full_names() {
    let broker = Broker::with(
        Options {
            flavour: Some(Flavour::Pulsar(or_skip!(release()))),
            ..Options::default()
        }
        .set("kopAllowedNamespaces", "public/default,other/ns"),
    );
    let (admin, bootstrap) = (broker.admin(), broker.bootstrap());
    let tenant = r#"{"allowedClusters": ["standalone"]}"#;
    admin
        .must("PUT", "/admin/v2/tenants/other", tenant)
        .expect("created");
    admin
        .must("PUT", "/admin/v2/namespaces/other/ns", "")
        .expect("created");
    admin
        .create_partitioned("other/ns/theirs", 3)
        .expect("created");
    for name in ["persistent://other/ns/theirs", "persistent://other/ns/ours"] {
        if name.ends_with("ours") {
            rd::create_topic(&bootstrap, name, 3);
            assert_eq!(admin.partitions("other/ns/ours"), Ok(3));
        }
        is_seen_at_once(&broker, name, Some(3));
        rd::produce(&bootstrap, name, &[], &rd::numbered(2, 0..20));
        assert_eq!(rd::read_all(&bootstrap, name, 3).len(), 20, "{name}");
    }
    // The short name is another topic's.
    rd::create_topic(&bootstrap, "theirs", 1);
    assert_eq!(rd::read_all(&bootstrap, "theirs", 1).len(), 0);
}
