//! Every metric: name, type, unit, help and labels, in one list; how they are counted, and their text.
//!
//! Names and meanings are KoP's (prefix `kop_server_`), so that its dashboards find them, with the types that
//! Prometheus has for them: counters are counters, times are histograms in ms (KoP: summaries over a rolling window,
//! which cannot be added up over brokers), and each name has one `TYPE` line. Names carry no `_total`: the text is
//! Prometheus' own format, not OpenMetrics. Counting is a relaxed atomic addition; series of topics are bounded by
//! [`crate::config::Limits::max_metric_topics`]. It must not know what is counted.
//!
//! | KoP's metric | here |
//! |---|---|
//! | `BATCH_COUNT_PER_MEMORYRECORDS` | absent: a partition's share of a Produce is one batch, always |
//! | `KOP_EVENT_QUEUE_SIZE`, `KOP_EVENT_*LATENCY` | absent: events are handled when they come, there is no queue |
//! | `REQUEST_QUEUED_LATENCY`, `MESSAGE_QUEUED_LATENCY` | absent: a request starts in the moment in which it is read |
//! | `*_MESSAGE_CONVERSIONS*`, `PRODUCE_ENCODE`, `FETCH_DECODE` | absent: stored batches are clients' own, nothing is converted |
//! | `PREPARE_METADATA` | contained in `MESSAGE_READ` |
//! | `RESPONSE_BLOCKED_LATENCY`, `REQUEST_PARSE_LATENCY` | absent: see `RESPONSE_BLOCKED_TIMES`; parsing is part of `REQUEST_LATENCY` |
//! | label `success` of latencies | absent: failures are counted by `REQUEST_FAILURE` |
//! | label `group` of `*_OUT` | absent: a Fetch does not say for which group it is |

mod primitives;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::RwLock;

pub(crate) use primitives::{Counter, Gauge, Histogram};

/// A metric's entry in the list.
#[derive(Clone, Copy, Debug)]
pub struct MetricInfo {
    /// Full name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// One line, with the unit.
    pub help: &'static str,
    /// Labels beside `cluster`, which all have.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    (
        of the plugin { $($field:ident: $type:ident = $name:literal, $help:literal;)+ }
        by request { $($rfield:ident: $rtype:ident = $rname:literal, $rhelp:literal, [$($label:literal),+];)+ }
        by partition { $($pfield:ident: $ptype:ident = $pname:literal, $phelp:literal;)+ }
    ) => {
        /// All metrics of the plugin.
        #[derive(Debug)]
        pub(crate) struct Metrics {
            cluster: String,
            max_topics: usize,
            apis: Vec<ApiMetrics>,
            topics: RwLock<HashMap<Arc<str>, HashMap<i32, Arc<PartitionMetrics>>>>,
            /// Where partitions of topics beyond the bound are counted.
            other: Arc<PartitionMetrics>,
            $(#[doc = $help] pub(crate) $field: $type,)+
        }

        /// Metrics of one API.
        #[derive(Debug, Default)]
        pub(crate) struct ApiMetrics {
            name: &'static str,
            $(#[doc = $rhelp] pub(crate) $rfield: $rtype,)+
        }

        /// Metrics of one partition.
        #[derive(Debug, Default)]
        pub(crate) struct PartitionMetrics {
            $(#[doc = $phelp] pub(crate) $pfield: $ptype,)+
        }

        /// The list.
        pub const METRICS: &[MetricInfo] = &[
            $(MetricInfo { name: $name, kind: $type::KIND, help: $help, labels: &[] },)+
            $(MetricInfo { name: $rname, kind: $rtype::KIND, help: $rhelp, labels: &[$($label),+] },)+
            $(MetricInfo { name: $pname, kind: $ptype::KIND, help: $phelp, labels: &["topic", "partition"] },)+
        ];

        impl Metrics {
            /// All at zero. `apis` are the names that the label `request` takes, in the order of [`Self::api`].
            pub(crate) fn new(cluster: &str, max_topics: usize, apis: impl Iterator<Item = &'static str>) -> Self {
                Self {
                    cluster: escape(cluster),
                    max_topics,
                    apis: apis.map(|name| ApiMetrics { name, ..ApiMetrics::default() }).collect(),
                    topics: RwLock::default(),
                    other: Arc::default(),
                    $($field: $type::default(),)+
                }
            }

            /// Prometheus' text format, version 0.0.4.
            pub(crate) fn render(&self) -> String {
                let mut out = String::with_capacity(16 * 1024);
                let cluster = format!("cluster=\"{}\"", self.cluster);
                $(
                    head(&mut out, $name, $type::KIND, $help);
                    self.$field.write(&mut out, $name, &cluster);
                )+
                $(
                    head(&mut out, $rname, $rtype::KIND, $rhelp);
                    for api in &self.apis {
                        api.$rfield.write(&mut out, $rname, &format!("{cluster},request=\"{}\"", api.name));
                    }
                )+
                let series = self.series();
                $(
                    head(&mut out, $pname, $ptype::KIND, $phelp);
                    for (labels, partition) in &series {
                        partition.$pfield.write(&mut out, $pname, &format!("{cluster},{labels}"));
                    }
                )+
                out
            }
        }
    };
}

metrics! {
    of the plugin {
        alive_channels: Gauge = "kop_server_ALIVE_CHANNEL_COUNT", "Connections that are open.";
        active_channels: Gauge = "kop_server_ACTIVE_CHANNEL_COUNT", "Connections that have sent a request.";
        request_queue_size: Gauge = "kop_server_REQUEST_QUEUE_SIZE", "Requests that are read and not answered yet.";
        request_bytes_in_flight: Gauge = "kop_server_REQUEST_BYTES_IN_FLIGHT", "Bytes of requests that are not answered yet.";
        connections_refused: Counter = "kop_server_CONNECTION_REFUSED", "Connections closed because too many were open.";
        requests_refused: Counter = "kop_server_REQUEST_REFUSED", "Requests that closed their connection: malformed, too large, not served.";
        network_bytes_in: Counter = "kop_server_NETWORK_TOTAL_BYTES_IN", "Bytes received from clients.";
        network_bytes_out: Counter = "kop_server_NETWORK_TOTAL_BYTES_OUT", "Bytes sent to clients.";
        response_blocked_times: Counter = "kop_server_RESPONSE_BLOCKED_TIMES", "Replies that were ready before an earlier one of their connection.";
        waiting_fetches_triggered: Counter = "kop_server_WAITING_FETCHES_TRIGGERED", "Fetches that waited and were woken by new records.";
        fetch_sessions: Gauge = "kop_server_FETCH_SESSION_COUNT", "Incremental fetch sessions that are kept.";
        groups: Gauge = "kop_server_GROUP_COUNT", "Groups that this broker coordinates and has loaded.";
        group_members: Gauge = "kop_server_GROUP_MEMBER_COUNT", "Members of those groups.";
        group_offsets: Gauge = "kop_server_GROUP_OFFSET_COUNT", "Committed offsets of those groups.";
        pending_topic_latency: Histogram = "kop_server_PENDING_TOPIC_LATENCY", "Time in ms until the partitions of a Produce were open.";
        message_publish: Histogram = "kop_server_MESSAGE_PUBLISH", "Time in ms from handing the batches of a Produce to the host until they were durable.";
        message_read: Histogram = "kop_server_MESSAGE_READ", "Time in ms that a Fetch spent on one read of its partitions.";
    }
    by request {
        requests: Counter = "kop_server_REQUEST_COUNT", "Requests answered.", ["request"];
        failures: Counter = "kop_server_REQUEST_FAILURE", "Requests that ran into a bug or out of time.", ["request"];
        latency: Histogram = "kop_server_REQUEST_LATENCY", "Time in ms from the reading of a request until its reply was ready.", ["request"];
    }
    by partition {
        bytes_in: Counter = "kop_server_BYTES_IN", "Bytes of record batches appended.";
        messages_in: Counter = "kop_server_MESSAGE_IN", "Records appended.";
        bytes_out: Counter = "kop_server_BYTES_OUT", "Bytes of record batches fetched.";
        messages_out: Counter = "kop_server_MESSAGE_OUT", "Records fetched.";
        entries_out: Counter = "kop_server_ENTRIES_OUT", "Record batches fetched.";
    }
}

impl Metrics {
    /// Metrics of an API, by its place in the list given to [`Self::new`].
    pub(crate) fn api(&self, place: usize) -> Option<&ApiMetrics> {
        self.apis.get(place)
    }

    /// Metrics of a partition; of all that are beyond the bound together if the topic is.
    pub(crate) fn partition(&self, topic: &str, partition: i32) -> Arc<PartitionMetrics> {
        if let Some(found) = self
            .topics
            .read()
            .get(topic)
            .and_then(|partitions| partitions.get(&partition))
        {
            return Arc::clone(found);
        }
        let mut topics = self.topics.write();
        if topics.len() >= self.max_topics && !topics.contains_key(topic) {
            return Arc::clone(&self.other);
        }
        let partitions = topics.entry(topic.into()).or_default();
        Arc::clone(partitions.entry(partition).or_default())
    }

    /// Forgets the series of a topic that is gone.
    pub(crate) fn forget_topic(&self, topic: &str) {
        self.topics.write().remove(topic);
    }

    fn series(&self) -> Vec<(String, Arc<PartitionMetrics>)> {
        let topics = self.topics.read();
        let mut series: Vec<(String, Arc<PartitionMetrics>)> = topics
            .iter()
            .flat_map(|(topic, partitions)| {
                let topic = escape(topic);
                partitions.iter().map(move |(partition, metrics)| {
                    (
                        format!("topic=\"{topic}\",partition=\"{partition}\""),
                        Arc::clone(metrics),
                    )
                })
            })
            .collect();
        if topics.len() >= self.max_topics {
            series.push((
                "topic=\"_other\",partition=\"-1\"".to_owned(),
                Arc::clone(&self.other),
            ));
        }
        series.sort_by(|(a, _), (b, _)| a.cmp(b));
        series
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A label's value with its special characters escaped.
fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn metrics() -> Metrics {
        Metrics::new("c\"1", 2, ["Produce", "Fetch"].into_iter())
    }

    #[test]
    fn every_name_has_one_type_line_and_appears_in_the_list() {
        let text = metrics().render();
        for metric in METRICS {
            let line = format!("# TYPE {} {}", metric.name, metric.kind);
            assert_eq!(text.lines().filter(|l| **l == line).count(), 1, "{line}");
        }
        assert_eq!(
            text.lines().filter(|l| l.starts_with("# TYPE")).count(),
            METRICS.len()
        );
    }

    #[test]
    fn values_carry_their_labels() {
        let metrics = metrics();
        metrics.network_bytes_in.add(5);
        metrics.alive_channels.add(2);
        metrics.alive_channels.add(-1);
        if let Some(api) = metrics.api(1) {
            api.latency.observe(Duration::from_micros(1500));
        }
        metrics.partition("t", 3).messages_in.add(7);
        let text = metrics.render();
        for line in [
            "kop_server_NETWORK_TOTAL_BYTES_IN{cluster=\"c\\\"1\"} 5",
            "kop_server_ALIVE_CHANNEL_COUNT{cluster=\"c\\\"1\"} 1",
            "kop_server_REQUEST_LATENCY_bucket{cluster=\"c\\\"1\",request=\"Fetch\",le=\"1\"} 0",
            "kop_server_REQUEST_LATENCY_bucket{cluster=\"c\\\"1\",request=\"Fetch\",le=\"2.5\"} 1",
            "kop_server_REQUEST_LATENCY_bucket{cluster=\"c\\\"1\",request=\"Fetch\",le=\"+Inf\"} 1",
            "kop_server_REQUEST_LATENCY_sum{cluster=\"c\\\"1\",request=\"Fetch\"} 1.5",
            "kop_server_REQUEST_LATENCY_count{cluster=\"c\\\"1\",request=\"Fetch\"} 1",
            "kop_server_MESSAGE_IN{cluster=\"c\\\"1\",topic=\"t\",partition=\"3\"} 7",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "{line} is missing in\n{text}"
            );
        }
    }

    #[test]
    fn topics_beyond_the_bound_share_one_series() {
        let metrics = metrics();
        for topic in ["a", "b", "c", "d"] {
            metrics.partition(topic, 0).bytes_in.add(1);
        }
        let text = metrics.render();
        assert!(
            text.contains("BYTES_IN{cluster=\"c\\\"1\",topic=\"_other\",partition=\"-1\"} 2"),
            "{text}"
        );
        metrics.forget_topic("a");
        assert!(!metrics.render().contains("topic=\"a\""));
        metrics.partition("c", 0).bytes_in.add(9);
        assert!(metrics.render().contains("topic=\"c\",partition=\"0\"} 9"));
    }
}
