//! Shapes of the requests of administration, as Kafka 4.3.1 describes them.
//!
//! Generated from the message descriptions in kafka-clients; `tests/shapes.rs` holds this against them.

use super::super::shape::*;

pub(in super::super) static SHAPES: &[Shape] = &[
    shape(19, "CreateTopics", 2, 7, 5).body(&[
        array(
            "Topics",
            &[
                text("Name"),
                fixed("NumPartitions", 4),
                fixed("ReplicationFactor", 2),
                array(
                    "Assignments",
                    &[fixed("PartitionIndex", 4), fixed_array("BrokerIds", 4)],
                ),
                array("Configs", &[text("Name"), text("Value").nullable(0)]),
            ],
        ),
        fixed("timeoutMs", 4),
        fixed("validateOnly", 1).since(1),
    ]),
    shape(20, "DeleteTopics", 1, 6, 4).body(&[
        array(
            "Topics",
            &[
                text("Name").since(6).nullable(6),
                fixed("TopicId", 16).since(6),
            ],
        )
        .since(6),
        text_array("TopicNames").until(5),
        fixed("TimeoutMs", 4),
    ]),
    shape(32, "DescribeConfigs", 1, 4, 4).body(&[
        array(
            "Resources",
            &[
                fixed("ResourceType", 1),
                text("ResourceName"),
                text_array("ConfigurationKeys").nullable(0),
            ],
        ),
        fixed("IncludeSynonyms", 1).since(1),
        fixed("IncludeDocumentation", 1).since(3),
    ]),
    shape(33, "AlterConfigs", 0, 2, 2).body(&[
        array(
            "Resources",
            &[
                fixed("ResourceType", 1),
                text("ResourceName"),
                array("Configs", &[text("Name"), text("Value").nullable(0)]),
            ],
        ),
        fixed("ValidateOnly", 1),
    ]),
    shape(34, "AlterReplicaLogDirs", 1, 2, 2).body(&[array(
        "Dirs",
        &[
            text("Path"),
            array("Topics", &[text("Name"), fixed_array("Partitions", 4)]),
        ],
    )]),
    shape(35, "DescribeLogDirs", 1, 5, 2).body(&[array(
        "Topics",
        &[text("Topic"), fixed_array("Partitions", 4)],
    )
    .nullable(0)]),
    shape(37, "CreatePartitions", 0, 3, 2).body(&[
        array(
            "Topics",
            &[
                text("Name"),
                fixed("Count", 4),
                array("Assignments", &[fixed_array("BrokerIds", 4)]).nullable(0),
            ],
        ),
        fixed("TimeoutMs", 4),
        fixed("ValidateOnly", 1),
    ]),
    shape(43, "ElectLeaders", 0, 2, 2).body(&[
        fixed("ElectionType", 1).since(1),
        array(
            "TopicPartitions",
            &[text("Topic"), fixed_array("Partitions", 4)],
        )
        .nullable(0),
        fixed("TimeoutMs", 4),
    ]),
    shape(44, "IncrementalAlterConfigs", 0, 1, 1).body(&[
        array(
            "Resources",
            &[
                fixed("ResourceType", 1),
                text("ResourceName"),
                array(
                    "Configs",
                    &[
                        text("Name"),
                        fixed("ConfigOperation", 1),
                        text("Value").nullable(0),
                    ],
                ),
            ],
        ),
        fixed("ValidateOnly", 1),
    ]),
    shape(45, "AlterPartitionReassignments", 0, 1, 0).body(&[
        fixed("TimeoutMs", 4),
        fixed("AllowReplicationFactorChange", 1).since(1),
        array(
            "Topics",
            &[
                text("Name"),
                array(
                    "Partitions",
                    &[
                        fixed("PartitionIndex", 4),
                        fixed_array("Replicas", 4).nullable(0),
                    ],
                ),
            ],
        ),
    ]),
    shape(46, "ListPartitionReassignments", 0, 0, 0).body(&[
        fixed("TimeoutMs", 4),
        array(
            "Topics",
            &[text("Name"), fixed_array("PartitionIndexes", 4)],
        )
        .nullable(0),
    ]),
    shape(57, "UpdateFeatures", 0, 2, 0).body(&[
        fixed("timeoutMs", 4),
        array(
            "FeatureUpdates",
            &[
                text("Feature"),
                fixed("MaxVersionLevel", 2),
                fixed("AllowDowngrade", 1).until(0),
                fixed("UpgradeType", 1).since(1),
            ],
        ),
        fixed("ValidateOnly", 1).since(1),
    ]),
    shape(60, "DescribeCluster", 0, 2, 0).body(&[
        fixed("IncludeClusterAuthorizedOperations", 1),
        fixed("EndpointType", 1).since(1),
        fixed("IncludeFencedBrokers", 1).since(2),
    ]),
    shape(74, "ListConfigResources", 0, 1, 0).body(&[fixed_array("ResourceTypes", 1).since(1)]),
];
