use std::collections::HashSet;
use std::sync::Arc;

use handler_api::Owner;
use handler_api::control::Nothing;
use handler_api::topics::{
    CreateTopic, DescribeTopics, EnsureNamespace, ListBrokers, Namespace, Topic as HostTopic,
    TopicNames,
};
use host_shim::sim::{Faults, SimHost};
use uuid::Uuid;

use super::configs::Overrides;
use super::fixture::topics;
use super::names::CONSUMER_OFFSETS;
use super::nodes::node_id;
use super::*;
use crate::error::Fault;
use crate::log::Directory;

const T: &str = "persistent://public/default/t";

async fn id_property(sim: &SimHost, full_name: &str) -> Option<String> {
    let names = TopicNames {
        names: vec![full_name.to_owned()],
    };
    let answer = sim.host().control::<DescribeTopics>(&names).await.unwrap();
    answer.topics.first()?.properties.get(ID_PROPERTY).cloned()
}

fn listed(topics: &[Arc<Topic>]) -> Vec<&str> {
    topics.iter().map(|topic| topic.name.as_str()).collect()
}

#[tokio::test]
async fn a_created_topic_has_its_partitions_an_id_and_is_found_by_both() {
    let sim = SimHost::new(1);
    let topics = topics(&sim, &[]);
    let created = topics.create("t", 3, &Overrides::default()).await.unwrap();
    assert_eq!((created.name.as_str(), created.partitions()), ("t", 3));
    assert_eq!(created.partition(2).unwrap(), format!("{T}-partition-2"));
    assert_eq!(created.partition(3), None);
    assert_eq!(created.partition(-1), None);
    assert_eq!(topics.by_name("t").await.unwrap(), created);
    assert_eq!(topics.by_name("public/default/t").await.unwrap(), created);
    assert_eq!(topics.by_id(created.id).await.unwrap(), created);
    assert_eq!(id_property(&sim, T).await.unwrap(), created.id.to_string());
}

#[tokio::test]
async fn an_id_outlives_the_view_and_a_topic_made_anew_has_another() {
    let sim = SimHost::new(1);
    let first = topics(&sim, &[])
        .create("t", 1, &Overrides::default())
        .await
        .unwrap();
    let view = topics(&sim, &[]);
    let seen = view.by_name("t").await.unwrap();
    assert_eq!(seen.id, first.id);
    view.delete(&seen).await.unwrap();
    assert!(matches!(
        view.by_name("t").await,
        Err(Fault::UnknownTopicOrPartition(_))
    ));
    assert!(matches!(
        view.by_id(first.id).await,
        Err(Fault::UnknownTopicId(_))
    ));
    let again = view.create("t", 1, &Overrides::default()).await.unwrap();
    assert_ne!(again.id, first.id);
    assert!(matches!(
        view.by_id(first.id).await,
        Err(Fault::UnknownTopicId(_))
    ));
}

#[tokio::test]
async fn a_topic_made_elsewhere_gets_one_id_whoever_sees_it_first() {
    let sim = SimHost::new(1);
    sim.create_topic(T, 2);
    assert_eq!(id_property(&sim, T).await, None);
    let (a, b) = (topics(&sim, &[]), topics(&sim, &[]));
    let (a, b) = tokio::join!(a.by_name("t"), b.by_name("t"));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.id, b.id);
    assert_eq!(id_property(&sim, T).await.unwrap(), a.id.to_string());
    assert_eq!(a.partitions(), 2);
}

#[tokio::test]
async fn two_brokers_that_see_a_topic_at_once_agree_on_its_id() {
    for seed in 0..20 {
        let sim = SimHost::with_faults(seed, Faults::slow());
        sim.create_topic(T, 1);
        let (a, b) = (topics(&sim, &[]), topics(&sim, &[]));
        let both = async { tokio::join!(a.by_name("t"), b.by_name("t")) };
        let (a, b) = tokio::select! {
            () = sim.drive() => unreachable!("it drives for ever"),
            both = both => both,
        };
        assert_eq!(a.unwrap().id, b.unwrap().id, "seed {seed}");
    }
}

#[tokio::test]
async fn a_broken_id_is_replaced() {
    let sim = SimHost::new(1);
    let request = HostTopic {
        name: T.to_owned(),
        partitions: 1,
        properties: [(ID_PROPERTY.to_owned(), "not an id".to_owned())].into(),
        ..HostTopic::default()
    };
    sim.host().control::<CreateTopic>(&request).await.unwrap();
    let topic = topics(&sim, &[]).by_name("t").await.unwrap();
    assert_eq!(id_property(&sim, T).await.unwrap(), topic.id.to_string());
}

#[tokio::test]
async fn a_non_partitioned_topic_is_one_partition_that_cannot_grow() {
    let sim = SimHost::new(1);
    sim.create_topic(T, 0);
    let topics = topics(&sim, &[]);
    let topic = topics.by_name("t").await.unwrap();
    assert!(!topic.is_partitioned());
    assert_eq!(topic.partitions(), 1);
    assert_eq!(topic.partition(0).as_deref(), Some(T));
    assert_eq!(topic.partition(1), None);
    assert!(matches!(
        topics.grow(&topic, 2).await,
        Err(Fault::InvalidPartitions(_))
    ));
}

#[tokio::test]
async fn changes_by_others_are_seen_when_the_host_tells_them() {
    let sim = SimHost::new(1);
    let (ours, theirs) = (topics(&sim, &[]), topics(&sim, &[]));
    assert_eq!(listed(&ours.list().await.unwrap()), Vec::<&str>::new());
    assert!(ours.by_name("t").await.is_err());
    let made = theirs.create("t", 1, &Overrides::default()).await.unwrap();
    assert_eq!(ours.by_name("t").await.unwrap().id, made.id);
    assert_eq!(listed(&ours.list().await.unwrap()), ["t"]);
    theirs.grow(&made, 4).await.unwrap();
    assert_eq!(ours.by_name("t").await.unwrap().partitions(), 4);
    assert_eq!(ours.list().await.unwrap().first().unwrap().partitions(), 4);
    theirs.delete(&made).await.unwrap();
    assert_eq!(ours.cached("t"), None);
    assert_eq!(ours.cached_by_id(made.id), None);
    assert_eq!(listed(&ours.list().await.unwrap()), Vec::<&str>::new());
}

#[tokio::test]
async fn what_was_read_before_an_event_does_not_overwrite_what_came_after() {
    let sim = SimHost::new(3);
    let (ours, theirs) = (topics(&sim, &[]), topics(&sim, &[]));
    let made = theirs.create("t", 1, &Overrides::default()).await.unwrap();
    sim.set_faults(Faults {
        delay: 5,
        ..Faults::none()
    });
    let reading = tokio::spawn({
        let ours = Arc::clone(&ours);
        async move { ours.by_name("t").await }
    });
    tokio::task::yield_now().await;
    // The answer with one partition is on its way when the topic grows.
    let growing = tokio::spawn(async move { theirs.grow(&made, 2).await });
    tokio::task::yield_now().await;
    sim.settle();
    for _ in 0..100 {
        tokio::task::yield_now().await;
        sim.settle();
    }
    reading.await.unwrap().unwrap();
    growing.await.unwrap().unwrap();
    sim.set_faults(Faults::none());
    assert_eq!(ours.by_name("t").await.unwrap().partitions(), 2);
}

#[tokio::test]
async fn only_allowed_namespaces_and_internal_topics_are_listed() {
    let sim = SimHost::new(1);
    for name in [
        "public/default/a",
        "public/other/b",
        "acme/x/c",
        "acme/y/d",
        "public/__kafka/__consumer_offsets",
        "public/__kafka/other",
        "public/default/__change_events",
    ] {
        sim.create_topic(&format!("persistent://{name}"), 1);
    }
    let list = |setting: &'static str| {
        let topics = topics(&sim, &[("kopAllowedNamespaces", setting)]);
        async move { listed(&topics.list().await.unwrap()).join(" ") }
    };
    assert_eq!(list("").await, "__consumer_offsets a");
    assert_eq!(
        list("${tenant}/default,acme/*,nobody/*").await,
        "__consumer_offsets a persistent://acme/x/c persistent://acme/y/d"
    );
    assert_eq!(
        list("public/other").await,
        "__consumer_offsets persistent://public/other/b"
    );
    // A topic that is not listed is served all the same to who names it.
    let topics = topics(&sim, &[]);
    assert_eq!(
        topics.by_name("acme/x/c").await.unwrap().name,
        "persistent://acme/x/c"
    );
    assert_eq!(
        listed(&topics.list().await.unwrap()),
        ["__consumer_offsets", "a"]
    );
}

#[tokio::test]
async fn many_names_are_answered_in_their_order() {
    let sim = SimHost::new(1);
    sim.create_topic("persistent://public/default/a", 1);
    sim.create_topic("persistent://public/default/b", 2);
    let topics = topics(&sim, &[]);
    topics.by_name("b").await.unwrap();
    let found = topics.by_names(&["b", "missing", "a b", "a", "b"]).await;
    let partitions = |index: usize| found[index].as_ref().unwrap().partitions();
    assert_eq!((partitions(0), partitions(3), partitions(4)), (2, 1, 2));
    assert!(matches!(found[1], Err(Fault::UnknownTopicOrPartition(_))));
    assert!(matches!(found[2], Err(Fault::InvalidTopic(_))));
}

#[tokio::test]
async fn a_topic_that_exists_or_collides_is_not_created() {
    let sim = SimHost::new(1);
    let topics = topics(&sim, &[]);
    topics
        .create("a.b", 1, &Overrides::default())
        .await
        .unwrap();
    let fault = topics
        .create("a.b", 1, &Overrides::default())
        .await
        .unwrap_err();
    assert_eq!(
        fault,
        Fault::TopicExists("Topic 'a.b' already exists.".into())
    );
    let fault = topics
        .create("a_b", 1, &Overrides::default())
        .await
        .unwrap_err();
    assert_eq!(
        fault,
        Fault::InvalidTopic("Topic 'a_b' collides with existing topic: a.b".into())
    );
    topics
        .create("a-b", 1, &Overrides::default())
        .await
        .unwrap();
    assert_eq!(listed(&topics.list().await.unwrap()), ["a-b", "a.b"]);
}

#[tokio::test]
async fn only_the_configured_namespaces_are_made_on_the_way() {
    let sim = SimHost::new(1);
    let topics = topics(
        &sim,
        &[("kafkaTenant", "acme"), ("kafkaNamespace", "kafka")],
    );
    let made = topics.create("t", 1, &Overrides::default()).await.unwrap();
    assert_eq!(made.full_name, "persistent://acme/kafka/t");
    assert!(
        topics
            .create("other/ns/t", 1, &Overrides::default())
            .await
            .is_err()
    );
    let request = Namespace {
        namespace: "other/ns".into(),
    };
    sim.host()
        .control::<EnsureNamespace>(&request)
        .await
        .unwrap();
    topics
        .create("other/ns/t", 1, &Overrides::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn auto_creation_happens_once_and_is_visible_when_it_ended() {
    let sim = SimHost::new(1);
    let topics = topics(
        &sim,
        &[
            ("defaultNumPartitions", "6"),
            ("allowAutoTopicCreationType", "non-partitioned"),
        ],
    );
    for _ in 0..50 {
        assert_eq!(topics.auto_create("t"), AutoCreation::Started);
    }
    topics.created("t").await;
    let topic = topics.by_name("t").await.unwrap();
    assert_eq!(topic.partitions(), 6);
    assert!(topic.is_partitioned());
    assert_eq!(topics.creating.lock().len(), 0);
}

#[tokio::test]
async fn auto_creation_is_refused_where_it_may_not_be() {
    let sim = SimHost::new(1);
    let off = topics(&sim, &[("allowAutoTopicCreation", "false")]);
    assert!(matches!(
        off.auto_create("t"),
        AutoCreation::Refused(Fault::UnknownTopicOrPartition(_))
    ));
    let on = topics(&sim, &[]);
    assert!(matches!(
        on.auto_create("a b"),
        AutoCreation::Refused(Fault::InvalidTopic(_))
    ));
    assert!(matches!(
        on.auto_create(CONSUMER_OFFSETS),
        AutoCreation::Refused(Fault::UnknownTopicOrPartition(_))
    ));
    assert!(on.by_name("t").await.is_err());
}

#[tokio::test]
async fn an_internal_topic_is_made_once_in_its_namespace() {
    let sim = SimHost::new(1);
    let topics = topics(&sim, &[]);
    let mut overrides = Overrides::default();
    overrides.set("cleanup.policy", "compact").unwrap();
    let made = topics
        .ensure_internal(CONSUMER_OFFSETS, 50, &overrides)
        .await
        .unwrap();
    assert!(made.internal);
    assert_eq!(
        made.full_name,
        "persistent://public/__kafka/__consumer_offsets"
    );
    let again = topics
        .ensure_internal(CONSUMER_OFFSETS, 7, &overrides)
        .await
        .unwrap();
    assert_eq!((again.partitions(), again.id), (50, made.id));
}

#[tokio::test]
async fn a_missing_internal_topic_is_left_to_the_operator_if_we_may_not_manage_it() {
    let sim = SimHost::new(1);
    let ensure = async |settings: &[(&str, &str)]| {
        topics(&sim, settings)
            .ensure_internal(CONSUMER_OFFSETS, 50, &Overrides::default())
            .await
    };
    let forbidden = [("kafkaManageSystemNamespaces", "false")];
    let refused = ensure(&forbidden).await.unwrap_err();
    assert!(
        refused.to_string().contains("kafkaManageSystemNamespaces"),
        "{refused}"
    );
    let made = ensure(&[]).await.unwrap();
    assert_eq!(
        ensure(&forbidden).await.unwrap().id,
        made.id,
        "one that exists is used"
    );
}

#[tokio::test]
async fn an_altered_topic_keeps_its_configuration_for_every_view() {
    let sim = SimHost::new(1);
    let (ours, theirs) = (topics(&sim, &[]), topics(&sim, &[]));
    let topic = ours.create("t", 1, &Overrides::default()).await.unwrap();
    theirs.by_name("t").await.unwrap();
    let altered = ours
        .alter(&topic, |old| {
            let mut new = old.clone();
            new.set("retention.ms", "5")?;
            Ok(new)
        })
        .await
        .unwrap();
    assert_eq!(altered.overrides.get("retention.ms"), Some("5"));
    assert_eq!(altered.id, topic.id);
    let seen = theirs.by_name("t").await.unwrap();
    assert_eq!(seen.overrides.get("retention.ms"), Some("5"));
    let settings = theirs.settings(&seen.partition(0).unwrap()).await.unwrap();
    assert_eq!(settings.retention_ms, 5);
    let back = ours
        .alter(&altered, |_| Ok(Overrides::default()))
        .await
        .unwrap();
    assert_eq!(back.overrides, Overrides::default());
}

#[tokio::test]
async fn concurrent_changes_of_one_list_are_both_kept() {
    for seed in 0..20 {
        let sim = SimHost::with_faults(
            seed,
            Faults {
                delay: 10,
                ..Faults::none()
            },
        );
        let (a, b) = (topics(&sim, &[]), topics(&sim, &[]));
        let append = |topics: Arc<Topics>, item: &'static str| async move {
            let topic = topics.by_name("t").await?;
            let defaults = topics.defaults().clone();
            topics
                .alter(&topic, |old| {
                    let mut new = old.clone();
                    new.append("leader.replication.throttled.replicas", item, &defaults)?;
                    Ok(new)
                })
                .await
        };
        let work = async {
            a.create("t", 1, &Overrides::default()).await.unwrap();
            let (one, two) =
                tokio::join!(append(Arc::clone(&a), "0:1"), append(Arc::clone(&b), "1:2"));
            one.unwrap();
            two.unwrap();
            a.by_name("t").await.unwrap()
        };
        let topic = tokio::select! {
            () = sim.drive() => unreachable!("it drives for ever"),
            topic = work => topic,
        };
        let list: HashSet<&str> = topic
            .overrides
            .get("leader.replication.throttled.replicas")
            .unwrap()
            .split(',')
            .collect();
        assert_eq!(list, HashSet::from(["0:1", "1:2"]), "seed {seed}");
    }
}

#[tokio::test]
async fn leaders_are_the_owners_and_follow_them() {
    let sim = SimHost::new(1);
    let topics = topics(&sim, &[]);
    let topic = topics.create("t", 2, &Overrides::default()).await.unwrap();
    let all = [Arc::clone(&topic)];
    let own = node_id("localhost", 9092);
    let leaders = topics.topic_leaders(&all, "PLAINTEXT").await.unwrap();
    assert_eq!(
        (leaders[0].of(0), leaders[0].of(1), leaders[0].of(2)),
        (Some(own), Some(own), None)
    );
    let outside = topics.topic_leaders(&all, "OUTSIDE").await.unwrap();
    assert_eq!(outside[0].of(0), Some(node_id("broker.example.com", 19092)));

    let other = Owner {
        local: false,
        broker: "other:8080".into(),
        protocol_data: "PLAINTEXT://other:9092".into(),
    };
    sim.set_owner(&topic.partition(1).unwrap(), Some(other));
    let leaders = topics.topic_leaders(&all, "PLAINTEXT").await.unwrap();
    assert_eq!(
        (leaders[0].of(0), leaders[0].of(1)),
        (Some(own), Some(node_id("other", 9092)))
    );
    let names: Vec<String> = topic.partition_names().collect();
    assert_eq!(topics.are_local(&names).await.unwrap(), [true, false]);
    assert_eq!(
        topics.partitions().await.unwrap(),
        [topic.partition(0).unwrap()]
    );

    sim.set_owner(&topic.partition(1).unwrap(), None);
    let leaders = topics.topic_leaders(&all, "PLAINTEXT").await.unwrap();
    assert_eq!(leaders[0].of(1), Some(own));
}

#[tokio::test]
async fn the_local_broker_is_among_the_brokers_under_its_own_address() {
    let sim = SimHost::new(1);
    let topics = topics(&sim, &[]);
    let brokers = topics.brokers("OUTSIDE").await.unwrap();
    assert_eq!(brokers, [nodes::Node::new("broker.example.com", 19092)]);
    let cluster = sim
        .host()
        .control::<ListBrokers>(&Nothing {})
        .await
        .unwrap();
    assert_eq!(cluster.brokers.len(), 1);
}

#[tokio::test]
async fn ten_thousand_topics_are_listed_and_found_by_id() {
    let sim = SimHost::new(1);
    for index in 0..10_000 {
        sim.create_topic(&format!("{T}{index:05}"), 1);
    }
    let topics = topics(&sim, &[]);
    let list = topics.list().await.unwrap();
    assert_eq!(list.len(), 10_000);
    let ids: HashSet<Uuid> = list.iter().map(|topic| topic.id).collect();
    assert_eq!(ids.len(), 10_000);
    let last = list.last().unwrap();
    assert_eq!(topics.cached_by_id(last.id).as_ref(), Some(last));
    // One change costs one question, not another listing.
    topics.delete(last).await.unwrap();
    assert_eq!(topics.list().await.unwrap().len(), 9_999);
}

#[test]
fn no_id_starts_with_a_dash_in_kafkas_text() {
    let topics = topics(&SimHost::new(1), &[]);
    for _ in 0..2_000 {
        assert_ne!(topics.new_id().as_bytes()[0] >> 2, 62);
    }
}

/// Golden: what is persisted may be added to, never changed.
#[test]
fn the_properties_of_a_topic_are_as_they_always_were() {
    let golden = include_str!("testdata/properties-v1.txt");
    let stored: HashMap<String, String> = golden
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let mut overrides = Overrides::default();
    for (name, value) in [
        ("cleanup.policy", "compact, delete"),
        ("min.cleanable.dirty.ratio", "1e-1"),
        ("preallocate", "TRUE"),
        ("retention.ms", " 60000"),
    ] {
        overrides.set(name, value).unwrap();
    }
    let id = Uuid::parse_str("63cbe1e4-5932-4dd7-844c-3cd7f43c661c").unwrap();
    assert_eq!(topic::properties(id, &overrides), stored);
    let host = HostTopic {
        name: T.to_owned(),
        found: true,
        partitions: 1,
        properties: stored,
        created_ms: 5,
    };
    let names = Names::new("public", "default", "public", "__kafka");
    let read = Topic::from_host(&names, &host).unwrap().unwrap();
    assert_eq!((read.id, read.overrides), (id, overrides));
}
