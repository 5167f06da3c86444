//! Kafka's topic names and Pulsar's, both ways.
//!
//! A short name lives in the configured tenant and namespace (`kafkaTenant`, `kafkaNamespace`), Kafka's internal topics
//! in `kafkaMetadataTenant`/`kafkaMetadataNamespace`; `tenant/namespace/topic` and `persistent://tenant/namespace/topic`
//! name any other. It must not know whether a topic exists.

use crate::error::Fault;

/// Longest name of a topic in bytes (Kafka's `Topic.MAX_NAME_LENGTH`).
const MAX_NAME_LENGTH: usize = 249;
/// The scheme of every topic that Kafka clients see.
const SCHEME: &str = "persistent://";
/// What Pulsar puts between a partitioned topic's name and a partition's number.
const PARTITION_SUFFIX: &str = "-partition-";

/// Committed offsets and groups.
pub const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// States of transactions.
pub const TRANSACTION_STATE: &str = "__transaction_state";
/// States of share groups.
pub const SHARE_GROUP_STATE: &str = "__share_group_state";

/// Kafka's internal topics, by Kafka's name.
const INTERNAL: [&str; 3] = [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE];

/// Topics of Pulsar itself, which no Kafka client has use for. A name that ends in `*` stands for all with this start.
const PULSAR_SYSTEM: [&str; 5] = [
    "__change_events",
    "__transaction_buffer_snapshot*",
    "__transaction_pending_ack*",
    "__transaction_log_*",
    "transaction_coordinator_assign",
];

/// How names are made: the four settings of KoP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    user: String,
    metadata: String,
}

impl Names {
    /// Names in these tenants and namespaces.
    #[must_use]
    pub fn new(
        tenant: &str,
        namespace: &str,
        metadata_tenant: &str,
        metadata_namespace: &str,
    ) -> Self {
        Self {
            user: format!("{tenant}/{namespace}"),
            metadata: format!("{metadata_tenant}/{metadata_namespace}"),
        }
    }

    /// The namespace of short names, `tenant/namespace`.
    #[must_use]
    pub fn user_namespace(&self) -> &str {
        &self.user
    }

    /// The namespace of Kafka's internal topics, `tenant/namespace`.
    #[must_use]
    pub fn metadata_namespace(&self) -> &str {
        &self.metadata
    }

    /// The full Pulsar name of the topic that a Kafka client calls `name`. [`Fault::InvalidTopic`] with Kafka's own
    /// text if it cannot be one.
    pub fn full_name(&self, name: &str) -> Result<String, Fault> {
        if let Some(rest) = name.strip_prefix(SCHEME) {
            return long_name(name, rest);
        }
        if name.contains('/') {
            return long_name(name, name);
        }
        check_short(name)?;
        let namespace = if INTERNAL.contains(&name) {
            &self.metadata
        } else {
            &self.user
        };
        Ok(format!("{SCHEME}{namespace}/{name}"))
    }

    /// What Kafka clients see a topic as, given its full Pulsar name: the short name where it has one, else the full
    /// name itself. `None` for what is not shown at all: Pulsar's own system topics, and topics that are not persistent.
    #[must_use]
    pub fn kafka_name(&self, full_name: &str) -> Option<String> {
        let rest = full_name.strip_prefix(SCHEME)?;
        let (namespace, local) = rest.rsplit_once('/')?;
        if is_pulsar_system(local) {
            return None;
        }
        let internal = INTERNAL.contains(&local);
        let short =
            (namespace == self.metadata && internal) || (namespace == self.user && !internal);
        Some(if short && check_short(local).is_ok() {
            local.to_owned()
        } else {
            full_name.to_owned()
        })
    }

    /// Whether this full name is one of Kafka's internal topics, which clients may read but not write, create or delete.
    #[must_use]
    pub fn is_internal(&self, full_name: &str) -> bool {
        full_name
            .strip_prefix(SCHEME)
            .and_then(|rest| rest.rsplit_once('/'))
            .is_some_and(|(namespace, local)| {
                namespace == self.metadata && INTERNAL.contains(&local)
            })
    }
}

/// The namespace of a full name, `tenant/namespace`.
#[must_use]
pub fn namespace_of(full_name: &str) -> Option<&str> {
    Some(full_name.strip_prefix(SCHEME)?.rsplit_once('/')?.0)
}

/// The full name of partition `index` of a partitioned topic.
#[must_use]
pub fn partition_name(full_name: &str, index: u32) -> String {
    format!("{full_name}{PARTITION_SUFFIX}{index}")
}

/// The topic and the partition's number that a full partition name stands for; `None` for a name without the suffix.
#[must_use]
pub fn split_partition(partition: &str) -> Option<(&str, u32)> {
    let (topic, index) = partition.rsplit_once(PARTITION_SUFFIX)?;
    if topic.is_empty() || index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((topic, index.parse().ok()?))
}

/// The name with the two characters that Kafka's metrics cannot tell apart made one: names that are equal then collide.
#[must_use]
pub fn unify_collisions(name: &str) -> String {
    name.replace('.', "_")
}

/// Whether a name can collide with another one.
#[must_use]
pub fn can_collide(name: &str) -> bool {
    name.contains(['.', '_'])
}

fn invalid(reason: &str) -> Fault {
    Fault::InvalidTopic(format!("Topic name is invalid: {reason}"))
}

fn check_short(name: &str) -> Result<(), Fault> {
    match name {
        "" => Err(invalid("the empty string is not allowed")),
        "." | ".." => Err(invalid(&format!("'{name}' is not allowed"))),
        _ if name.len() > MAX_NAME_LENGTH => Err(invalid(&format!(
            "the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
        ))),
        _ if !name.bytes().all(is_kafka_char) => Err(invalid(&format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ))),
        _ => check_suffix(name),
    }
}

fn check_suffix(name: &str) -> Result<(), Fault> {
    if split_partition(name).is_some() {
        return Err(invalid(&format!(
            "'{name}' ends like a partition of a Pulsar topic"
        )));
    }
    Ok(())
}

fn is_kafka_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Pulsar's `NamedEntity`: what tenants and namespaces may consist of.
fn is_pulsar_char(byte: u8) -> bool {
    is_kafka_char(byte) || matches!(byte, b'=' | b':')
}

fn long_name(name: &str, rest: &str) -> Result<String, Fault> {
    let bad = |reason: &str| Err(invalid(&format!("'{name}' {reason}")));
    let mut parts = rest.split('/');
    let (Some(tenant), Some(namespace), Some(local), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return bad("is neither a short name nor tenant/namespace/topic");
    };
    for part in [tenant, namespace] {
        if part.is_empty() || part.len() > MAX_NAME_LENGTH || !part.bytes().all(is_pulsar_char) {
            return bad("has a tenant or namespace that Pulsar does not allow");
        }
    }
    if local.is_empty() || local.len() > MAX_NAME_LENGTH || local.chars().any(char::is_control) {
        return bad("has a topic part that is empty, too long or not printable");
    }
    check_suffix(local)?;
    Ok(format!("{SCHEME}{tenant}/{namespace}/{local}"))
}

fn is_pulsar_system(local: &str) -> bool {
    PULSAR_SYSTEM
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => local.starts_with(start),
            None => local == *pattern,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new("public", "default", "public", "__kafka")
    }

    #[test]
    fn names_map_both_ways() {
        for (kafka, full) in [
            ("orders", "persistent://public/default/orders"),
            ("a.b_c-D9", "persistent://public/default/a.b_c-D9"),
            (
                "__consumer_offsets",
                "persistent://public/__kafka/__consumer_offsets",
            ),
            (
                "__transaction_state",
                "persistent://public/__kafka/__transaction_state",
            ),
            ("persistent://t/n/x", "persistent://t/n/x"),
        ] {
            assert_eq!(names().full_name(kafka), Ok(full.to_owned()));
            assert_eq!(names().kafka_name(full).as_deref(), Some(kafka));
        }
        assert_eq!(
            names().full_name("t/n/x"),
            names().full_name("persistent://t/n/x")
        );
        assert_eq!(
            names().full_name("persistent://public/default/orders"),
            names().full_name("orders")
        );
    }

    #[test]
    fn the_four_settings_decide_where_short_names_live() {
        let names = Names::new("acme", "kafka", "ops", "meta");
        assert_eq!(names.full_name("x"), Ok("persistent://acme/kafka/x".into()));
        assert_eq!(
            names.full_name(CONSUMER_OFFSETS),
            Ok("persistent://ops/meta/__consumer_offsets".into())
        );
        assert_eq!(
            names.kafka_name("persistent://public/default/x").as_deref(),
            Some("persistent://public/default/x")
        );
    }

    #[test]
    fn a_bad_name_is_refused_with_kafkas_text() {
        let long = "x".repeat(250);
        let too_long = format!("the length of '{long}' is longer than the max allowed length 249");
        for (name, reason) in [
            ("", "the empty string is not allowed"),
            (".", "'.' is not allowed"),
            ("..", "'..' is not allowed"),
            (
                "a b",
                "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
            (
                "ü",
                "'ü' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
            (long.as_str(), too_long.as_str()),
        ] {
            let fault = names().full_name(name).expect_err(name);
            assert!(matches!(fault, Fault::InvalidTopic(_)));
            assert_eq!(
                fault.to_string(),
                format!("Topic name is invalid: {reason}")
            );
        }
        assert!(names().full_name(&"x".repeat(249)).is_ok());
    }

    #[test]
    fn a_name_that_pulsar_could_not_hold_is_refused() {
        for name in [
            "a/b",
            "a/b/c/d",
            "/b/c",
            "a//c",
            "a/b/",
            "a b/c/d",
            "persistent://a/b",
            "non-persistent://a/b/c",
            "t/n/x\u{7}",
            "orders-partition-0",
            "t/n/orders-partition-12",
        ] {
            assert!(
                matches!(names().full_name(name), Err(Fault::InvalidTopic(_))),
                "{name}"
            );
        }
        assert!(names().full_name("orders-partition-x").is_ok());
        assert!(names().full_name("-partition-0").is_ok());
    }

    #[test]
    fn pulsars_own_topics_are_not_shown() {
        for local in [
            "__change_events",
            "__transaction_buffer_snapshot",
            "__transaction_buffer_snapshot_indexes",
            "transaction_coordinator_assign",
        ] {
            let full = format!("persistent://public/default/{local}");
            assert_eq!(names().kafka_name(&full), None, "{local}");
        }
        assert_eq!(
            names().kafka_name("non-persistent://public/default/x"),
            None
        );
        assert_eq!(names().kafka_name("x"), None);
    }

    #[test]
    fn only_the_metadata_namespace_holds_internal_topics() {
        assert!(names().is_internal("persistent://public/__kafka/__consumer_offsets"));
        assert!(!names().is_internal("persistent://public/default/__consumer_offsets"));
        assert!(!names().is_internal("persistent://public/__kafka/orders"));
        // A user's topic of that name is not mistaken for the internal one.
        assert_eq!(
            names()
                .kafka_name("persistent://public/default/__consumer_offsets")
                .as_deref(),
            Some("persistent://public/default/__consumer_offsets")
        );
    }

    #[test]
    fn partition_names_split_into_what_made_them() {
        let name = partition_name("persistent://t/n/x", 17);
        assert_eq!(name, "persistent://t/n/x-partition-17");
        assert_eq!(split_partition(&name), Some(("persistent://t/n/x", 17)));
        for name in [
            "x",
            "x-partition-",
            "x-partition-+1",
            "x-partition-99999999999",
            "-partition-1",
        ] {
            assert_eq!(split_partition(name), None, "{name}");
        }
    }

    #[test]
    fn dot_and_underscore_collide() {
        assert_eq!(unify_collisions("a.b"), unify_collisions("a_b"));
        assert!(can_collide("a.b") && can_collide("a_b") && !can_collide("a-b"));
    }
}
