//! Shapes of what clients send to write, read and find data, as Kafka 4.3.1 describes them.
//!
//! Generated from the message descriptions in kafka-clients; `tests/shapes.rs` holds this against them.

use super::super::shape::*;

pub(in super::super) static SHAPES: &[Shape] = &[
    shape(0, "Produce", 3, 13, 9).body(&[
        text("TransactionalId").since(3).nullable(3),
        fixed("Acks", 2),
        fixed("TimeoutMs", 4),
        array(
            "TopicData",
            &[
                text("Name").until(12),
                fixed("TopicId", 16).since(13),
                array(
                    "PartitionData",
                    &[fixed("Index", 4), bytes("Records").nullable(0)],
                ),
            ],
        ),
    ]),
    shape(1, "Fetch", 4, 18, 12).body(&[
        text("ClusterId").since(12).nullable(12).tag(0),
        fixed("ReplicaId", 4).until(14),
        nested(
            "ReplicaState",
            &[
                fixed("ReplicaId", 4).since(15),
                fixed("ReplicaEpoch", 8).since(15),
            ],
        )
        .since(15)
        .tag(1),
        fixed("MaxWaitMs", 4),
        fixed("MinBytes", 4),
        fixed("MaxBytes", 4).since(3),
        fixed("IsolationLevel", 1).since(4),
        fixed("SessionId", 4).since(7),
        fixed("SessionEpoch", 4).since(7),
        array(
            "Topics",
            &[
                text("Topic").until(12),
                fixed("TopicId", 16).since(13),
                array(
                    "Partitions",
                    &[
                        fixed("Partition", 4),
                        fixed("CurrentLeaderEpoch", 4).since(9),
                        fixed("FetchOffset", 8),
                        fixed("LastFetchedEpoch", 4).since(12),
                        fixed("LogStartOffset", 8).since(5),
                        fixed("PartitionMaxBytes", 4),
                        fixed("ReplicaDirectoryId", 16).since(17).tag(0),
                        fixed("HighWatermark", 8).since(18).tag(1),
                    ],
                ),
            ],
        ),
        array(
            "ForgottenTopicsData",
            &[
                text("Topic").since(7).until(12),
                fixed("TopicId", 16).since(13),
                fixed_array("Partitions", 4).since(7),
            ],
        )
        .since(7),
        text("RackId").since(11),
    ]),
    shape(2, "ListOffsets", 1, 11, 6).body(&[
        fixed("ReplicaId", 4),
        fixed("IsolationLevel", 1).since(2),
        array(
            "Topics",
            &[
                text("Name"),
                array(
                    "Partitions",
                    &[
                        fixed("PartitionIndex", 4),
                        fixed("CurrentLeaderEpoch", 4).since(4),
                        fixed("Timestamp", 8),
                    ],
                ),
            ],
        ),
        fixed("TimeoutMs", 4).since(10),
    ]),
    shape(3, "Metadata", 0, 13, 9).body(&[
        array(
            "Topics",
            &[fixed("TopicId", 16).since(10), text("Name").nullable(10)],
        )
        .nullable(1),
        fixed("AllowAutoTopicCreation", 1).since(4),
        fixed("IncludeClusterAuthorizedOperations", 1)
            .since(8)
            .until(10),
        fixed("IncludeTopicAuthorizedOperations", 1).since(8),
    ]),
    shape(18, "ApiVersions", 0, 4, 3).body(&[
        text("ClientSoftwareName").since(3),
        text("ClientSoftwareVersion").since(3),
    ]),
    shape(21, "DeleteRecords", 0, 2, 2).body(&[
        array(
            "Topics",
            &[
                text("Name"),
                array(
                    "Partitions",
                    &[fixed("PartitionIndex", 4), fixed("Offset", 8)],
                ),
            ],
        ),
        fixed("TimeoutMs", 4),
    ]),
    shape(23, "OffsetForLeaderEpoch", 2, 4, 4).body(&[
        fixed("ReplicaId", 4).since(3),
        array(
            "Topics",
            &[
                text("Topic"),
                array(
                    "Partitions",
                    &[
                        fixed("Partition", 4),
                        fixed("CurrentLeaderEpoch", 4).since(2),
                        fixed("LeaderEpoch", 4),
                    ],
                ),
            ],
        ),
    ]),
    shape(75, "DescribeTopicPartitions", 0, 0, 0).body(&[
        array("Topics", &[text("Name")]),
        fixed("ResponsePartitionLimit", 4),
        nested("Cursor", &[text("TopicName"), fixed("PartitionIndex", 4)]).nullable(0),
    ]),
];
