//! Shapes of the requests of transactions and idempotent producers, as Kafka 4.3.1 describes them.
//!
//! Generated from the message descriptions in kafka-clients; `tests/shapes.rs` holds this against them.

use super::super::shape::*;

pub(in super::super) static SHAPES: &[Shape] = &[
    shape(22, "InitProducerId", 0, 6, 2).body(&[
        text("TransactionalId").nullable(0),
        fixed("TransactionTimeoutMs", 4),
        fixed("ProducerId", 8).since(3),
        fixed("ProducerEpoch", 2).since(3),
        fixed("Enable2Pc", 1).since(6),
        fixed("KeepPreparedTxn", 1).since(6),
    ]),
    shape(24, "AddPartitionsToTxn", 0, 5, 3).body(&[
        array(
            "Transactions",
            &[
                text("TransactionalId").since(4),
                fixed("ProducerId", 8).since(4),
                fixed("ProducerEpoch", 2).since(4),
                fixed("VerifyOnly", 1).since(4),
                array("Topics", &[text("Name"), fixed_array("Partitions", 4)]).since(4),
            ],
        )
        .since(4),
        text("V3AndBelowTransactionalId").until(3),
        fixed("V3AndBelowProducerId", 8).until(3),
        fixed("V3AndBelowProducerEpoch", 2).until(3),
        array(
            "V3AndBelowTopics",
            &[text("Name"), fixed_array("Partitions", 4)],
        )
        .until(3),
    ]),
    shape(25, "AddOffsetsToTxn", 0, 4, 3).body(&[
        text("TransactionalId"),
        fixed("ProducerId", 8),
        fixed("ProducerEpoch", 2),
        text("GroupId"),
    ]),
    shape(26, "EndTxn", 0, 5, 3).body(&[
        text("TransactionalId"),
        fixed("ProducerId", 8),
        fixed("ProducerEpoch", 2),
        fixed("Committed", 1),
    ]),
    shape(27, "WriteTxnMarkers", 1, 2, 1).body(&[array(
        "Markers",
        &[
            fixed("ProducerId", 8),
            fixed("ProducerEpoch", 2),
            fixed("TransactionResult", 1),
            array(
                "Topics",
                &[text("Name"), fixed_array("PartitionIndexes", 4)],
            ),
            fixed("CoordinatorEpoch", 4),
            fixed("TransactionVersion", 1).since(2),
        ],
    )]),
    shape(28, "TxnOffsetCommit", 0, 5, 3).body(&[
        text("TransactionalId"),
        text("GroupId"),
        fixed("ProducerId", 8),
        fixed("ProducerEpoch", 2),
        fixed("GenerationId", 4).since(3),
        text("MemberId").since(3),
        text("GroupInstanceId").since(3).nullable(3),
        array(
            "Topics",
            &[
                text("Name"),
                array(
                    "Partitions",
                    &[
                        fixed("PartitionIndex", 4),
                        fixed("CommittedOffset", 8),
                        fixed("CommittedLeaderEpoch", 4).since(2),
                        text("CommittedMetadata").nullable(0),
                    ],
                ),
            ],
        ),
    ]),
    shape(61, "DescribeProducers", 0, 0, 0).body(&[array(
        "Topics",
        &[text("Name"), fixed_array("PartitionIndexes", 4)],
    )]),
    shape(65, "DescribeTransactions", 0, 0, 0).body(&[text_array("TransactionalIds")]),
    shape(66, "ListTransactions", 0, 2, 0).body(&[
        text_array("StateFilters"),
        fixed_array("ProducerIdFilters", 8),
        fixed("DurationFilter", 8).since(1),
        text("TransactionalIdPattern").since(2).nullable(2),
    ]),
];
