//! The operations that a client may carry out, as the bit fields of "authorized operations" (KIP-430).
//!
//! Until clients can authenticate, everybody may do everything: the fields then say what exists.

/// What clients get that did not ask.
pub(super) const NOT_ASKED: i32 = i32::MIN;

/// Bits of Kafka's `AclOperation` codes.
const fn bits(codes: &[u32]) -> i32 {
    let mut bits = 0;
    let mut i = 0;
    while i < codes.len() {
        #[expect(
            clippy::indexing_slicing,
            reason = "const evaluation, bounded by the loop"
        )]
        let code = codes[i];
        bits |= 1 << code;
        i += 1;
    }
    bits
}

const READ: u32 = 3;
const WRITE: u32 = 4;
const CREATE: u32 = 5;
const DELETE: u32 = 6;
const ALTER: u32 = 7;
const DESCRIBE: u32 = 8;
const CLUSTER_ACTION: u32 = 9;
const DESCRIBE_CONFIGS: u32 = 10;
const ALTER_CONFIGS: u32 = 11;
const IDEMPOTENT_WRITE: u32 = 12;

const TOPIC: i32 = bits(&[
    READ,
    WRITE,
    CREATE,
    DELETE,
    ALTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
]);
const CLUSTER: i32 = bits(&[
    CREATE,
    ALTER,
    DESCRIBE,
    CLUSTER_ACTION,
    DESCRIBE_CONFIGS,
    ALTER_CONFIGS,
    IDEMPOTENT_WRITE,
]);

/// What the client may do with a topic.
pub(super) const fn on_topic(asked: bool) -> i32 {
    if asked { TOPIC } else { NOT_ASKED }
}

/// What the client may do with the cluster.
pub(super) const fn on_cluster(asked: bool) -> i32 {
    if asked { CLUSTER } else { NOT_ASKED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_that_kafka_answers() {
        // Seen from a Kafka 4.3.1 broker without an authorizer.
        assert_eq!(on_topic(true), 3_576);
        assert_eq!(on_cluster(true), 8_096);
        assert_eq!(
            (on_topic(false), on_cluster(false)),
            (-2_147_483_648, -2_147_483_648)
        );
    }
}
