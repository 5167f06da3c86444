//! What must be set right in the broker itself for Kafka's clients not to lose data, as far as its settings show it.
//!
//! A broker of one process keeps these promises by itself, and so its host is not asked; a Pulsar broker does not start
//! with a plugin whose prerequisites are refused. It must not know which host it is.

use std::collections::HashMap;

use super::given;

const INTERCEPTORS: &str = "brokerEntryMetadataInterceptors";
const INDEX: &str = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor";
const INACTIVE: &str = "brokerDeleteInactiveTopicsEnabled";

/// Prerequisites that are set wrong: one line each, with the key and the cure. A key that is not set is left to the host,
/// which knows its own defaults.
pub(super) fn broken(pairs: &HashMap<String, String>) -> Vec<String> {
    let mut broken = Vec::new();
    if let Some(value) = given(pairs, INTERCEPTORS)
        && !value.split(',').any(|class| class.trim() == INDEX)
    {
        broken.push(format!(
            "{INTERCEPTORS}={value}: Kafka's offsets are the indexes that {INDEX} gives to entries: add it"
        ));
    }
    if given(pairs, INACTIVE).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        broken.push(format!(
            "{INACTIVE}=true: Kafka's consumers leave no subscription, so that the broker would delete their topics as unused: set it to false"
        ));
    }
    broken
}
