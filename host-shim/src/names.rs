//! Pulsar's names: `persistent://tenant/namespace/topic` and its partitions. It must not know what they hold.

/// What separates a topic's name from the number of its partition.
const PARTITION_SUFFIX: &str = "-partition-";

/// Parts of a full topic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicParts<'a> {
    /// `tenant/namespace`.
    pub namespace: &'a str,
    /// The name in its namespace, a partition's suffix included.
    pub local: &'a str,
}

/// Takes a full name apart; `None` if it is not one.
#[must_use]
pub fn parse_topic(name: &str) -> Option<TopicParts<'_>> {
    let rest = name.strip_prefix("persistent://")?;
    let mut slashes = rest.match_indices('/');
    let (tenant_end, _) = slashes.next()?;
    let (namespace_end, _) = slashes.next()?;
    let namespace = rest.get(..namespace_end)?;
    let local = rest.get(namespace_end + 1..)?;
    let named = tenant_end > 0 && namespace_end > tenant_end + 1 && !local.is_empty();
    named.then_some(TopicParts { namespace, local })
}

/// Whether this is `tenant/namespace`.
#[must_use]
pub fn is_namespace(name: &str) -> bool {
    matches!(name.split_once('/'), Some((tenant, namespace))
        if !tenant.is_empty() && !namespace.is_empty() && !namespace.contains('/'))
}

/// Topic and partition of a partition's full name; `None` if it has no such suffix.
#[must_use]
pub fn split_partition(name: &str) -> Option<(&str, u32)> {
    let (topic, number) = name.rsplit_once(PARTITION_SUFFIX)?;
    let canonical = number == "0" || !number.starts_with(['0', '+', '-']);
    if topic.is_empty() || !canonical {
        return None;
    }
    number.parse().ok().map(|number| (topic, number))
}

/// Full name of a partition.
#[must_use]
pub fn partition_name(topic: &str, partition: u32) -> String {
    format!("{topic}{PARTITION_SUFFIX}{partition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_has_tenant_namespace_and_topic() {
        let parts = parse_topic("persistent://public/default/a/b").unwrap();
        assert_eq!((parts.namespace, parts.local), ("public/default", "a/b"));
        for wrong in [
            "a",
            "persistent://",
            "persistent://a/b",
            "persistent://a/b/",
            "persistent:///b/c",
            "persistent://a//c",
            "non-persistent://a/b/c",
        ] {
            assert_eq!(parse_topic(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_partition_is_a_canonical_number_at_the_end() {
        let name = partition_name("persistent://a/b/t-partition-1", 20);
        assert_eq!(
            split_partition(&name),
            Some(("persistent://a/b/t-partition-1", 20))
        );
        for wrong in [
            "t",
            "t-partition-",
            "t-partition-01",
            "t-partition-+1",
            "t-partition--1",
            "t-partition-99999999999",
        ] {
            assert_eq!(split_partition(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_namespace_has_two_parts() {
        assert!(is_namespace("public/default"));
        for wrong in ["public", "public/", "/default", "a/b/c", ""] {
            assert!(!is_namespace(wrong), "{wrong}");
        }
    }
}
