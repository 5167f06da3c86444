//! Shapes of the requests of consumer groups, and of what consumers put into JoinGroup, as Kafka 4.3.1 describes them.
//!
//! Generated from the message descriptions in kafka-clients; `tests/shapes.rs` holds this against them.

use super::super::shape::*;

pub(in super::super) static SHAPES: &[Shape] = &[
    shape(8, "OffsetCommit", 2, 10, 8).body(&[
        text("GroupId"),
        fixed("GenerationIdOrMemberEpoch", 4).since(1),
        text("MemberId").since(1),
        text("GroupInstanceId").since(7).nullable(7),
        fixed("RetentionTimeMs", 8).since(2).until(4),
        array(
            "Topics",
            &[
                text("Name").until(9),
                fixed("TopicId", 16).since(10),
                array(
                    "Partitions",
                    &[
                        fixed("PartitionIndex", 4),
                        fixed("CommittedOffset", 8),
                        fixed("CommittedLeaderEpoch", 4).since(6),
                        text("CommittedMetadata").nullable(0),
                    ],
                ),
            ],
        ),
    ]),
    shape(9, "OffsetFetch", 1, 10, 6).body(&[
        text("GroupId").until(7),
        array(
            "Topics",
            &[
                text("Name").until(7),
                fixed_array("PartitionIndexes", 4).until(7),
            ],
        )
        .until(7)
        .nullable(2),
        array(
            "Groups",
            &[
                text("GroupId").since(8),
                text("MemberId").since(9).nullable(9),
                fixed("MemberEpoch", 4).since(9),
                array(
                    "Topics",
                    &[
                        text("Name").since(8).until(9),
                        fixed("TopicId", 16).since(10),
                        fixed_array("PartitionIndexes", 4).since(8),
                    ],
                )
                .since(8)
                .nullable(8),
            ],
        )
        .since(8),
        fixed("RequireStable", 1).since(7),
    ]),
    shape(10, "FindCoordinator", 0, 6, 3).body(&[
        text("Key").until(3),
        fixed("KeyType", 1).since(1),
        text_array("CoordinatorKeys").since(4),
    ]),
    shape(11, "JoinGroup", 0, 9, 6).body(&[
        text("GroupId"),
        fixed("SessionTimeoutMs", 4),
        fixed("RebalanceTimeoutMs", 4).since(1),
        text("MemberId"),
        text("GroupInstanceId").since(5).nullable(5),
        text("ProtocolType"),
        array("Protocols", &[text("Name"), bytes("Metadata")]),
        text("Reason").since(8).nullable(8),
    ]),
    shape(12, "Heartbeat", 0, 4, 4).body(&[
        text("GroupId"),
        fixed("GenerationId", 4),
        text("MemberId"),
        text("GroupInstanceId").since(3).nullable(3),
    ]),
    shape(13, "LeaveGroup", 0, 5, 4).body(&[
        text("GroupId"),
        text("MemberId").until(2),
        array(
            "Members",
            &[
                text("MemberId").since(3),
                text("GroupInstanceId").since(3).nullable(3),
                text("Reason").since(5).nullable(5),
            ],
        )
        .since(3),
    ]),
    shape(14, "SyncGroup", 0, 5, 4).body(&[
        text("GroupId"),
        fixed("GenerationId", 4),
        text("MemberId"),
        text("GroupInstanceId").since(3).nullable(3),
        text("ProtocolType").since(5).nullable(5),
        text("ProtocolName").since(5).nullable(5),
        array("Assignments", &[text("MemberId"), bytes("Assignment")]),
    ]),
    shape(15, "DescribeGroups", 0, 6, 5).body(&[
        text_array("Groups"),
        fixed("IncludeAuthorizedOperations", 1).since(3),
    ]),
    shape(16, "ListGroups", 0, 5, 3).body(&[
        text_array("StatesFilter").since(4),
        text_array("TypesFilter").since(5),
    ]),
    shape(42, "DeleteGroups", 0, 2, 2).body(&[text_array("GroupsNames")]),
    shape(47, "OffsetDelete", 0, 0, NEVER).body(&[
        text("GroupId"),
        array(
            "Topics",
            &[
                text("Name"),
                array("Partitions", &[fixed("PartitionIndex", 4)]),
            ],
        ),
    ]),
    shape(68, "ConsumerGroupHeartbeat", 0, 1, 0).body(&[
        text("GroupId"),
        text("MemberId"),
        fixed("MemberEpoch", 4),
        text("InstanceId").nullable(0),
        text("RackId").nullable(0),
        fixed("RebalanceTimeoutMs", 4),
        text_array("SubscribedTopicNames").nullable(0),
        text("SubscribedTopicRegex").since(1).nullable(1),
        text("ServerAssignor").nullable(0),
        array(
            "TopicPartitions",
            &[fixed("TopicId", 16), fixed_array("Partitions", 4)],
        )
        .nullable(0),
    ]),
    shape(69, "ConsumerGroupDescribe", 0, 1, 0).body(&[
        text_array("GroupIds"),
        fixed("IncludeAuthorizedOperations", 1),
    ]),
    shape(-1, "ConsumerProtocolSubscription", 0, 3, NEVER).body(&[
        text_array("Topics"),
        bytes("UserData").nullable(0),
        array(
            "OwnedPartitions",
            &[
                text("Topic").since(1),
                fixed_array("Partitions", 4).since(1),
            ],
        )
        .since(1),
        fixed("GenerationId", 4).since(2),
        text("RackId").since(3).nullable(3),
    ]),
    shape(-1, "ConsumerProtocolAssignment", 0, 3, NEVER).body(&[
        array(
            "AssignedPartitions",
            &[text("Topic"), fixed_array("Partitions", 4)],
        ),
        bytes("UserData").nullable(0),
    ]),
];
