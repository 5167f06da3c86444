//! Topics on a host that is like a Pulsar broker: it gives up data by policies of its own.

use handler_api::capability;
use host_shim::sim::{Faults, SimHost};

use super::configs::Overrides;
use super::fixture::topics;
use crate::error::Fault;

const T: &str = "persistent://public/default/t";
const WEEK_MS: i64 = 604_800_000;

fn pulsar() -> SimHost {
    let sim = SimHost::new(1);
    sim.set_capabilities(capability::HOST_RETENTION);
    sim
}

fn overrides(configs: &[(&str, &str)]) -> Overrides {
    let mut overrides = Overrides::default();
    for (name, value) in configs {
        overrides.set(name, value).unwrap();
    }
    overrides
}

#[tokio::test]
async fn a_topic_of_kafkas_clients_is_kept_as_long_as_it_is_configured_for() {
    for (configs, kept) in [
        (&[][..], (WEEK_MS, -1)),
        (&[("retention.ms", "60000")], (60_000, -1)),
        (&[("retention.ms", "-1"), ("retention.bytes", "5")], (-1, 5)),
        (
            &[("cleanup.policy", "compact"), ("retention.ms", "5")],
            (-1, -1),
        ),
        (
            &[("cleanup.policy", "compact,delete"), ("retention.ms", "5")],
            (5, -1),
        ),
    ] {
        let sim = pulsar();
        let topics = topics(&sim, &[]);
        topics.create("t", 1, &overrides(configs)).await.unwrap();
        assert_eq!(sim.retention(T), Some(kept), "{configs:?}");
    }
}

#[tokio::test]
async fn an_internal_topic_is_kept_as_its_namespace_is() {
    let sim = pulsar();
    let topics = topics(&sim, &[]);
    let made = topics
        .ensure_internal("__consumer_offsets", 1, &Overrides::default())
        .await
        .unwrap();
    assert_eq!(sim.retention(&made.full_name), None);
}

#[tokio::test]
async fn an_alteration_of_retention_reaches_the_host() {
    let sim = pulsar();
    let topics = topics(&sim, &[]);
    let topic = topics.create("t", 1, &Overrides::default()).await.unwrap();
    let set = async |name: &'static str, value: &'static str| {
        let alter = |old: &Overrides| {
            let mut new = old.clone();
            new.set(name, value)?;
            Ok(new)
        };
        topics.alter(&topic, alter).await.unwrap();
        sim.retention(T).unwrap()
    };
    assert_eq!(set("retention.ms", "7000").await, (7_000, -1));
    assert_eq!(set("retention.bytes", "9").await, (7_000, 9));
    assert_eq!(set("max.message.bytes", "9").await, (7_000, 9));
    topics
        .alter(&topic, |_| Ok(Overrides::default()))
        .await
        .unwrap();
    assert_eq!(sim.retention(T), Some((WEEK_MS, -1)));
}

#[tokio::test]
async fn a_topic_is_created_although_the_host_knows_no_policies_of_topics() {
    let sim = pulsar();
    sim.set_topic_policies(false);
    let topics = topics(&sim, &[]);
    topics.create("t", 1, &Overrides::default()).await.unwrap();
    assert_eq!(sim.retention(T), None);
}

#[tokio::test]
async fn our_namespaces_are_made_and_keep_what_lies_in_them() {
    let sim = pulsar();
    let settings = [("kafkaNamespace", "kafka")];
    topics(&sim, &settings)
        .ensure_namespaces((-1, -1), 1_000)
        .await;
    assert_eq!(sim.namespace_retention("public/__kafka"), Some((-1, -1)));
    assert_eq!(sim.namespace_retention("public/kafka"), Some((WEEK_MS, -1)));
    // One that was there is its owner's, except that coordinators need theirs.
    topics(&sim, &[])
        .ensure_namespaces((-1, 1 << 20), 1_000)
        .await;
    assert_eq!(sim.namespace_retention("public/default"), Some((0, 0)));
    assert_eq!(
        sim.namespace_retention("public/__kafka"),
        Some((-1, 1 << 20))
    );
}

#[tokio::test]
async fn compaction_is_refused_where_ledgers_cannot_be_replaced() {
    let topics_of = |sim: SimHost| topics(&sim, &[]);
    for (policies, legal) in [
        ("delete", true),
        ("compact", false),
        ("delete,compact", false),
    ] {
        let configs = overrides(&[("cleanup.policy", policies)]);
        assert_eq!(topics_of(pulsar()).check_storage(&configs).is_ok(), legal);
        assert!(topics_of(SimHost::new(1)).check_storage(&configs).is_ok());
    }
}

#[tokio::test]
async fn a_lookup_that_is_not_answered_ends_in_time() {
    let sim = pulsar();
    let topics = topics(&sim, &[("brokerLookupTimeoutMs", "20")]);
    let topic = topics.create("t", 1, &Overrides::default()).await.unwrap();
    // From now on nobody completes what is under way.
    sim.set_faults(Faults::slow());
    let fault = topics
        .topic_leaders(&[topic], "PLAINTEXT")
        .await
        .unwrap_err();
    assert!(matches!(fault, Fault::TimedOut(_)), "{fault:?}");
    assert!(fault.to_string().contains("brokerLookupTimeoutMs"));
}
