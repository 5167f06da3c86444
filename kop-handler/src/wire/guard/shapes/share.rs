//! Shapes of the requests of share groups, as Kafka 4.3.1 describes them.
//!
//! Generated from the message descriptions in kafka-clients; `tests/shapes.rs` holds this against them.

use super::super::shape::*;

pub(in super::super) static SHAPES: &[Shape] = &[
    shape(76, "ShareGroupHeartbeat", 1, 1, 0).body(&[
        text("GroupId"),
        text("MemberId"),
        fixed("MemberEpoch", 4),
        text("RackId").nullable(0),
        text_array("SubscribedTopicNames").nullable(0),
    ]),
    shape(77, "ShareGroupDescribe", 1, 1, 0).body(&[
        text_array("GroupIds"),
        fixed("IncludeAuthorizedOperations", 1),
    ]),
    shape(78, "ShareFetch", 1, 2, 0).body(&[
        text("GroupId").nullable(0),
        text("MemberId").nullable(0),
        fixed("ShareSessionEpoch", 4),
        fixed("MaxWaitMs", 4),
        fixed("MinBytes", 4),
        fixed("MaxBytes", 4),
        fixed("MaxRecords", 4).since(1),
        fixed("BatchSize", 4).since(1),
        fixed("ShareAcquireMode", 1).since(2),
        fixed("IsRenewAck", 1).since(2),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array(
                    "Partitions",
                    &[
                        fixed("PartitionIndex", 4),
                        fixed("PartitionMaxBytes", 4).until(0),
                        array(
                            "AcknowledgementBatches",
                            &[
                                fixed("FirstOffset", 8),
                                fixed("LastOffset", 8),
                                fixed_array("AcknowledgeTypes", 1),
                            ],
                        ),
                    ],
                ),
            ],
        ),
        array(
            "ForgottenTopicsData",
            &[fixed("TopicId", 16), fixed_array("Partitions", 4)],
        ),
    ]),
    shape(79, "ShareAcknowledge", 1, 2, 0).body(&[
        text("GroupId").nullable(0),
        text("MemberId").nullable(0),
        fixed("ShareSessionEpoch", 4),
        fixed("IsRenewAck", 1).since(2),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array(
                    "Partitions",
                    &[
                        fixed("PartitionIndex", 4),
                        array(
                            "AcknowledgementBatches",
                            &[
                                fixed("FirstOffset", 8),
                                fixed("LastOffset", 8),
                                fixed_array("AcknowledgeTypes", 1),
                            ],
                        ),
                    ],
                ),
            ],
        ),
    ]),
    shape(83, "InitializeShareGroupState", 0, 0, 0).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array(
                    "Partitions",
                    &[
                        fixed("Partition", 4),
                        fixed("StateEpoch", 4),
                        fixed("StartOffset", 8),
                    ],
                ),
            ],
        ),
    ]),
    shape(84, "ReadShareGroupState", 0, 0, 0).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array(
                    "Partitions",
                    &[fixed("Partition", 4), fixed("LeaderEpoch", 4)],
                ),
            ],
        ),
    ]),
    shape(85, "WriteShareGroupState", 0, 1, 0).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array(
                    "Partitions",
                    &[
                        fixed("Partition", 4),
                        fixed("StateEpoch", 4),
                        fixed("LeaderEpoch", 4),
                        fixed("StartOffset", 8),
                        fixed("DeliveryCompleteCount", 4).since(1),
                        array(
                            "StateBatches",
                            &[
                                fixed("FirstOffset", 8),
                                fixed("LastOffset", 8),
                                fixed("DeliveryState", 1),
                                fixed("DeliveryCount", 2),
                            ],
                        ),
                    ],
                ),
            ],
        ),
    ]),
    shape(86, "DeleteShareGroupState", 0, 0, 0).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array("Partitions", &[fixed("Partition", 4)]),
            ],
        ),
    ]),
    shape(87, "ReadShareGroupStateSummary", 0, 1, 0).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                fixed("TopicId", 16),
                array(
                    "Partitions",
                    &[fixed("Partition", 4), fixed("LeaderEpoch", 4)],
                ),
            ],
        ),
    ]),
    shape(90, "DescribeShareGroupOffsets", 0, 1, 0).body(&[array(
        "Groups",
        &[
            text("GroupId"),
            array("Topics", &[text("TopicName"), fixed_array("Partitions", 4)]).nullable(0),
        ],
    )]),
    shape(91, "AlterShareGroupOffsets", 0, 0, 0).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                text("TopicName"),
                array(
                    "Partitions",
                    &[fixed("PartitionIndex", 4), fixed("StartOffset", 8)],
                ),
            ],
        ),
    ]),
    shape(92, "DeleteShareGroupOffsets", 0, 0, 0)
        .body(&[text("GroupId"), array("Topics", &[text("TopicName")])]),
];
