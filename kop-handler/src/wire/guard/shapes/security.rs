//! Shapes of the requests of authentication, authorization and quotas, as Kafka 4.3.1 describes them.
//!
//! Generated from the message descriptions in kafka-clients; `tests/shapes.rs` holds this against them.

use super::super::shape::*;

pub(in super::super) static SHAPES: &[Shape] = &[
    shape(17, "SaslHandshake", 0, 1, NEVER).body(&[text("Mechanism")]),
    shape(29, "DescribeAcls", 1, 3, 2).body(&[
        fixed("ResourceTypeFilter", 1),
        text("ResourceNameFilter").nullable(0),
        fixed("PatternTypeFilter", 1).since(1),
        text("PrincipalFilter").nullable(0),
        text("HostFilter").nullable(0),
        fixed("Operation", 1),
        fixed("PermissionType", 1),
    ]),
    shape(30, "CreateAcls", 1, 3, 2).body(&[array(
        "Creations",
        &[
            fixed("ResourceType", 1),
            text("ResourceName"),
            fixed("ResourcePatternType", 1).since(1),
            text("Principal"),
            text("Host"),
            fixed("Operation", 1),
            fixed("PermissionType", 1),
        ],
    )]),
    shape(31, "DeleteAcls", 1, 3, 2).body(&[array(
        "Filters",
        &[
            fixed("ResourceTypeFilter", 1),
            text("ResourceNameFilter").nullable(0),
            fixed("PatternTypeFilter", 1).since(1),
            text("PrincipalFilter").nullable(0),
            text("HostFilter").nullable(0),
            fixed("Operation", 1),
            fixed("PermissionType", 1),
        ],
    )]),
    shape(36, "SaslAuthenticate", 0, 2, 2).body(&[bytes("AuthBytes")]),
    shape(38, "CreateDelegationToken", 1, 3, 2).body(&[
        text("OwnerPrincipalType").since(3).nullable(3),
        text("OwnerPrincipalName").since(3).nullable(3),
        array("Renewers", &[text("PrincipalType"), text("PrincipalName")]),
        fixed("MaxLifetimeMs", 8),
    ]),
    shape(39, "RenewDelegationToken", 1, 2, 2).body(&[bytes("Hmac"), fixed("RenewPeriodMs", 8)]),
    shape(40, "ExpireDelegationToken", 1, 2, 2)
        .body(&[bytes("Hmac"), fixed("ExpiryTimePeriodMs", 8)]),
    shape(41, "DescribeDelegationToken", 1, 3, 2).body(&[array(
        "Owners",
        &[text("PrincipalType"), text("PrincipalName")],
    )
    .nullable(0)]),
    shape(48, "DescribeClientQuotas", 0, 1, 1).body(&[
        array(
            "Components",
            &[
                text("EntityType"),
                fixed("MatchType", 1),
                text("Match").nullable(0),
            ],
        ),
        fixed("Strict", 1),
    ]),
    shape(49, "AlterClientQuotas", 0, 1, 1).body(&[
        array(
            "Entries",
            &[
                array(
                    "Entity",
                    &[text("EntityType"), text("EntityName").nullable(0)],
                ),
                array("Ops", &[text("Key"), fixed("Value", 8), fixed("Remove", 1)]),
            ],
        ),
        fixed("ValidateOnly", 1),
    ]),
    shape(50, "DescribeUserScramCredentials", 0, 0, 0)
        .body(&[array("Users", &[text("Name")]).nullable(0)]),
    shape(51, "AlterUserScramCredentials", 0, 0, 0).body(&[
        array("Deletions", &[text("Name"), fixed("Mechanism", 1)]),
        array(
            "Upsertions",
            &[
                text("Name"),
                fixed("Mechanism", 1),
                fixed("Iterations", 4),
                bytes("Salt"),
                bytes("SaltedPassword"),
            ],
        ),
    ]),
];
