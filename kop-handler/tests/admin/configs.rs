//! Configurations of topics and of the broker.

use super::*;

#[tokio::test]
async fn every_topic_configuration_is_described_with_type_source_and_documentation() {
    let plugin = Plugin::start(&[("maxMessageSize", "2000000")]).await;
    let mut client = plugin.connect().await;
    create(
        &mut client,
        with_configs(new_topic("t", 1, 1), &[("cleanup.policy", Some("compact"))]),
    )
    .await;
    let result = describe(&mut client, TOPIC, "t").await;
    assert_eq!(result.configs.len(), 33);
    assert!(
        result
            .configs
            .iter()
            .all(|config| config.documentation.is_some()
                && config.config_type > 0
                && !config.read_only)
    );
    let policy = topic_config(&mut client, "t", "cleanup.policy").await;
    assert_eq!(
        (
            policy.value.as_deref(),
            policy.config_source,
            policy.config_type
        ),
        (Some("compact"), 1, 7)
    );
    let synonyms: Vec<(&str, Option<&str>, i8)> = policy
        .synonyms
        .iter()
        .map(|s| (s.name.as_str(), s.value.as_deref(), s.source))
        .collect();
    assert_eq!(
        synonyms,
        [
            ("cleanup.policy", Some("compact"), 1),
            ("log.cleanup.policy", Some("delete"), 5)
        ]
    );
    // What the operator set goes before Kafka's default.
    let size = topic_config(&mut client, "t", "max.message.bytes").await;
    assert_eq!(
        (size.value.as_deref(), size.config_source),
        (Some("2000000"), 4)
    );
    let unbuilt = topic_config(&mut client, "t", "flush.ms").await;
    assert!(
        unbuilt
            .documentation
            .unwrap()
            .contains("without effect here")
    );
    // Version 1 has neither types nor documentation; keys narrow the answer.
    let request = DescribeConfigsRequest::default().with_resources(vec![
        DescribeConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text("t"))
            .with_configuration_keys(Some(vec![text("segment.ms"), text("nope")])),
    ]);
    let reply = client.call(1, &request).await.results.remove(0);
    let found: Vec<&str> = reply
        .configs
        .iter()
        .map(|config| config.name.as_str())
        .collect();
    assert_eq!(found, ["segment.ms"]);
    assert_eq!(
        describe(&mut client, TOPIC, "nope").await.error_code,
        UNKNOWN_TOPIC_OR_PARTITION
    );
    assert_eq!(
        describe(&mut client, TOPIC, "a b").await.error_code,
        INVALID_TOPIC
    );
    assert_eq!(
        describe(&mut client, 3, "t").await.error_code,
        INVALID_REQUEST
    );
}

#[tokio::test]
async fn the_broker_describes_its_settings_under_kafkas_names_and_hides_secrets() {
    let plugin = Plugin::start(&[
        ("defaultNumPartitions", "7"),
        ("allowAutoTopicCreation", "false"),
    ])
    .await;
    let mut client = plugin.connect().await;
    let own = node_id(&mut client).await.to_string();
    let result = describe(&mut client, BROKER, &own).await;
    assert_eq!(result.error_code, 0);
    let config = |key: &str| {
        result
            .configs
            .iter()
            .find(|config| config.name.as_str() == key)
            .unwrap()
    };
    assert_eq!(
        (
            config("num.partitions").value.as_deref(),
            config("num.partitions").config_source
        ),
        (Some("7"), 4)
    );
    assert_eq!(
        config("auto.create.topics.enable").value.as_deref(),
        Some("false")
    );
    assert_eq!(
        (
            config("log.retention.bytes").value.as_deref(),
            config("log.retention.bytes").config_source
        ),
        (Some("-1"), 5)
    );
    assert_eq!(config("node.id").value.as_deref(), Some(own.as_str()));
    assert_eq!(
        config("advertised.listeners").value.as_deref(),
        Some(format!("PLAINTEXT://127.0.0.1:{}", plugin.address.port()).as_str())
    );
    let secret = config("ssl.keystore.password");
    assert_eq!(
        (
            secret.value.clone(),
            secret.is_sensitive,
            secret.config_type
        ),
        (None, true, 9)
    );
    assert!(result.configs.iter().all(|config| config.read_only));
    let mut sorted: Vec<&str> = result
        .configs
        .iter()
        .map(|config| config.name.as_str())
        .collect();
    sorted.dedup();
    assert_eq!(sorted.len(), result.configs.len(), "no name comes twice");
    let defaults = describe(&mut client, BROKER, "").await;
    assert_eq!((defaults.error_code, defaults.configs.len()), (0, 0));
    assert_eq!(
        describe(&mut client, BROKER, "99").await.error_code,
        INVALID_REQUEST
    );
    assert_eq!(
        describe(&mut client, BROKER, "x").await.error_code,
        INVALID_REQUEST
    );
    let logger = describe(&mut client, BROKER_LOGGER, &own).await;
    assert_eq!(logger.configs.first().unwrap().name.as_str(), "root");
}

#[tokio::test]
async fn single_configurations_are_set_taken_back_and_lists_grow_and_shrink() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 1, 1)).await;
    assert_eq!(
        alter(
            &mut client,
            TOPIC,
            "t",
            &[
                ("retention.ms", 0, Some("5")),
                ("cleanup.policy", 2, Some("compact"))
            ]
        )
        .await,
        (0, None)
    );
    assert_eq!(
        topic_config(&mut client, "t", "retention.ms")
            .await
            .value
            .as_deref(),
        Some("5")
    );
    assert_eq!(
        topic_config(&mut client, "t", "cleanup.policy")
            .await
            .value
            .as_deref(),
        Some("delete,compact")
    );
    assert_eq!(
        alter(
            &mut client,
            TOPIC,
            "t",
            &[
                ("retention.ms", 1, None),
                ("cleanup.policy", 3, Some("delete"))
            ]
        )
        .await,
        (0, None)
    );
    let retention = topic_config(&mut client, "t", "retention.ms").await;
    assert_eq!(
        (retention.value.as_deref(), retention.config_source),
        (Some("604800000"), 5)
    );
    assert_eq!(
        topic_config(&mut client, "t", "cleanup.policy")
            .await
            .value
            .as_deref(),
        Some("compact")
    );
    for (resource, operations, code, message) in [
        (
            "nope",
            vec![("retention.ms", 0, Some("5"))],
            UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            "",
            vec![("retention.ms", 0, Some("5"))],
            INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            "t",
            vec![("foo", 0, Some("5"))],
            INVALID_CONFIG,
            "Unknown topic config name: foo",
        ),
        (
            "t",
            vec![("retention.ms", 0, None)],
            INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            "t",
            vec![("retention.ms", 2, Some("5"))],
            INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            "t",
            vec![
                ("retention.ms", 0, Some("5")),
                ("retention.ms", 0, Some("6")),
            ],
            INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            "t",
            vec![("retention.ms", 7, Some("5"))],
            INVALID_REQUEST,
            "Unknown operation 7 on config retention.ms",
        ),
        (
            "t",
            vec![("retention.ms", 0, Some("6")), ("segment.ms", 0, Some("0"))],
            INVALID_CONFIG,
            "Invalid value 0 for configuration segment.ms",
        ),
    ] {
        let (got, said) = alter(&mut client, TOPIC, resource, &operations).await;
        let said = said.unwrap();
        assert_eq!(got, code, "{said}");
        assert!(said.starts_with(message), "{said}");
    }
    // A refused request changes nothing, not even in part.
    assert_eq!(
        topic_config(&mut client, "t", "retention.ms")
            .await
            .config_source,
        5
    );
}

#[tokio::test]
async fn alter_configs_replaces_all_and_validate_only_changes_nothing() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(
        &mut client,
        with_configs(new_topic("t", 1, 1), &[("segment.ms", Some("7"))]),
    )
    .await;
    let request = |validate| {
        let config = alter_configs_request::AlterableConfig::default()
            .with_name(text("retention.ms"))
            .with_value(Some(text("5")));
        let resource = alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text("t"))
            .with_configs(vec![config]);
        AlterConfigsRequest::default()
            .with_resources(vec![resource])
            .with_validate_only(validate)
    };
    assert_eq!(
        client
            .call(2, &request(true))
            .await
            .responses
            .remove(0)
            .error_code,
        0
    );
    assert_eq!(
        topic_config(&mut client, "t", "segment.ms")
            .await
            .config_source,
        1
    );
    assert_eq!(
        client
            .call(0, &request(false))
            .await
            .responses
            .remove(0)
            .error_code,
        0
    );
    assert_eq!(
        topic_config(&mut client, "t", "segment.ms")
            .await
            .config_source,
        5
    );
    assert_eq!(
        topic_config(&mut client, "t", "retention.ms")
            .await
            .value
            .as_deref(),
        Some("5")
    );
}

#[tokio::test]
async fn what_is_no_topic_cannot_be_altered_and_the_answer_says_why() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    let own = node_id(&mut client).await.to_string();
    let set = [("log.retention.ms", 0, Some("5"))];
    for (kind, resource, code, message) in [
        (
            BROKER,
            own.as_str(),
            INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.retention.ms]",
        ),
        (
            BROKER,
            "99",
            INVALID_REQUEST,
            "Unexpected broker id, expected",
        ),
        (
            BROKER_LOGGER,
            own.as_str(),
            INVALID_REQUEST,
            "Levels of the log",
        ),
        (
            16,
            "m",
            INVALID_REQUEST,
            "Client metrics are not collected here.",
        ),
        (
            32,
            "g",
            INVALID_CONFIG,
            "Groups have no configurations here",
        ),
        (
            5,
            "x",
            INVALID_REQUEST,
            "Unexpected resource type 5 for resource x",
        ),
    ] {
        let (got, said) = alter(&mut client, kind, resource, &set).await;
        let said = said.unwrap();
        assert_eq!(got, code, "{said}");
        assert!(said.starts_with(message), "{said}");
    }
}

#[tokio::test]
async fn an_altered_topic_behaves_differently_at_once() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(&mut client, new_topic("t", 1, 1)).await;
    assert_eq!(produce(&mut client, "t", batch(1_000, &["small"])).await, 0);
    assert_eq!(
        alter(
            &mut client,
            TOPIC,
            "t",
            &[("max.message.bytes", 0, Some("10"))]
        )
        .await,
        (0, None)
    );
    assert_eq!(
        produce(&mut client, "t", batch(1_000, &["small"])).await,
        10
    );
    assert_eq!(
        alter(&mut client, TOPIC, "t", &[("max.message.bytes", 1, None)]).await,
        (0, None)
    );
    assert_eq!(produce(&mut client, "t", batch(1_000, &["small"])).await, 0);
}

#[tokio::test]
async fn a_compacted_topic_refuses_records_without_a_key() {
    let plugin = Plugin::start(&[]).await;
    let mut client = plugin.connect().await;
    create(
        &mut client,
        with_configs(new_topic("t", 1, 1), &[("cleanup.policy", Some("compact"))]),
    )
    .await;
    assert_eq!(
        produce(&mut client, "t", batch(1_000, &["no key"])).await,
        87
    );
}
