//! `/metrics` of the running broker: well-formed to its last line, with KoP's names, and it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use kop_handler::metrics::METRICS;
use kop_tests::broker::{Broker, is_pulsar, is_reference};
use kop_tests::process::eventually;
use kop_tests::rd::{self, PATIENCE};

/// Names of KoP that its dashboards read, and their types here (KoP: summaries where there are histograms).
const KOP: [(&str, &str); 18] = [
    ("ALIVE_CHANNEL_COUNT", "gauge"),
    ("ACTIVE_CHANNEL_COUNT", "gauge"),
    ("REQUEST_QUEUE_SIZE", "gauge"),
    ("RESPONSE_BLOCKED_TIMES", "counter"),
    ("NETWORK_TOTAL_BYTES_IN", "counter"),
    ("NETWORK_TOTAL_BYTES_OUT", "counter"),
    ("WAITING_FETCHES_TRIGGERED", "counter"),
    ("BYTES_IN", "counter"),
    ("MESSAGE_IN", "counter"),
    ("BYTES_OUT", "counter"),
    ("MESSAGE_OUT", "counter"),
    ("ENTRIES_OUT", "counter"),
    ("REQUEST_LATENCY", "histogram"),
    ("PENDING_TOPIC_LATENCY", "histogram"),
    ("MESSAGE_PUBLISH", "histogram"),
    ("MESSAGE_READ", "histogram"),
    ("REQUEST_COUNT", "counter"),
    ("REQUEST_FAILURE", "counter"),
];

/// The text as a scraper gets it.
#[track_caller]
fn fetch(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).expect("the web port is open");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout can be set");
    // Pulsar's own page, of which ours are a part.
    let path = if is_pulsar() { "/metrics/" } else { "/metrics" };
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1);
    assert_eq!(status, Some("200"), "{head}");
    assert!(body.ends_with('\n'), "the last line is cut off");
    if is_pulsar() {
        assert!(body.contains("pulsar_"), "Pulsar's own are gone");
        let ours = body.lines().filter(|line| line.contains("kop_server_"));
        return ours.map(|line| format!("{line}\n")).collect();
    }
    let format = "content-type: text/plain; version=0.0.4";
    assert!(head.to_lowercase().contains(format), "{head}");
    body.to_owned()
}

/// One metric: its type, and the value of each of its series by name and labels.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    series: BTreeMap<String, f64>,
}

/// Reads the text as Prometheus does, and panics where it would complain, or where a dashboard would be misled.
#[track_caller]
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect("a name and words");
            assert!(!words.trim().is_empty(), "{line}");
            assert!(helped.insert(name.to_owned()), "two HELP lines: {line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert!(
                ["counter", "gauge", "histogram", "summary"].contains(&kind),
                "{line}"
            );
            assert!(helped.contains(name), "no HELP line before: {line}");
            let family = Family {
                kind: kind.to_owned(),
                ..Family::default()
            };
            let before = families.insert(name.to_owned(), family);
            assert!(before.is_none(), "two TYPE lines: {line}");
            name.clone_into(&mut current);
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let name = series.split('{').next().unwrap_or_default();
            let family = families
                .get_mut(&current)
                .unwrap_or_else(|| panic!("no TYPE line before: {line}"));
            let suffix = name
                .strip_prefix(&*current)
                .unwrap_or_else(|| panic!("among those of {current}: {line}"));
            let suffixes: &[&str] = match &*family.kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{} has {line}", family.kind);
            assert!(family.kind == "gauge" || value >= 0.0, "{line}");
            let ours = line.starts_with("kop_server_");
            let cluster = if is_pulsar() { "standalone" } else { "test" };
            assert!(
                !ours || line.contains(&format!("cluster=\"{cluster}\"")),
                "no cluster: {line}"
            );
            let before = family.series.insert(series.to_owned(), value);
            assert!(before.is_none(), "twice: {line}");
        }
    }
    let typed: BTreeSet<String> = families.keys().cloned().collect();
    assert_eq!(helped, typed, "a HELP line and a TYPE line for each");
    families
}

/// The sum over the series of a metric whose labels contain `labels`.
#[track_caller]
fn sum(families: &BTreeMap<String, Family>, series: &str, labels: &str) -> f64 {
    let full = format!("kop_server_{series}{{");
    let all = families.values().flat_map(|family| &family.series);
    let found: Vec<f64> = all
        .filter(|(name, _)| name.starts_with(&full) && name.contains(labels))
        .map(|(_, value)| *value)
        .collect();
    assert!(!found.is_empty(), "no series {series} with {labels}");
    found.iter().sum()
}

#[test]
fn the_metrics_of_the_running_broker_are_well_formed_kops_and_count() {
    if is_reference() {
        // Kafka has its metrics elsewhere.
        return;
    }
    let broker = Broker::start();
    let bootstrap = broker.bootstrap();
    let scrape = || parse(&fetch(broker.web_address()));

    let idle = scrape();
    for (name, kind) in KOP {
        let family = idle.get(&format!("kop_server_{name}"));
        let family = family.unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.kind, kind, "{name}");
    }
    // Nothing is offered that the list does not describe, and the other way round.
    let listed: BTreeMap<&str, &str> = METRICS.iter().map(|m| (m.name, m.kind)).collect();
    let offered = idle
        .iter()
        .filter(|(name, _)| name.starts_with("kop_server_"))
        .map(|(name, family)| (&**name, &*family.kind));
    assert_eq!(offered.collect::<BTreeMap<_, _>>(), listed);

    rd::create_topic(&bootstrap, "counted", 2);
    rd::produce(&bootstrap, "counted", &[], &rd::numbered(1, 0..100));
    let produced = scrape();
    rd::produce(&bootstrap, "counted", &[], &rd::numbered(1, 100..150));
    assert_eq!(rd::read_all(&bootstrap, "counted", 2).len(), 150);
    let read = scrape();

    let of_topic = "topic=\"counted\",partition=\"1\"";
    assert_eq!(sum(&produced, "MESSAGE_IN", of_topic), 100.0);
    assert_eq!(sum(&read, "MESSAGE_IN", of_topic), 150.0);
    assert_eq!(sum(&read, "MESSAGE_OUT", of_topic), 150.0);
    for metric in ["BYTES_IN", "BYTES_OUT", "ENTRIES_OUT"] {
        assert!(sum(&read, metric, of_topic) >= 1.0, "{metric}");
    }
    for request in ["Produce", "Fetch", "Metadata", "ApiVersions"] {
        let label = format!("request=\"{request}\"");
        let count = sum(&read, "REQUEST_COUNT", &label);
        assert!(count > 0.0, "{request}");
        assert_eq!(
            sum(&read, "REQUEST_LATENCY_count", &label),
            count,
            "{request}"
        );
        assert_eq!(sum(&read, "REQUEST_FAILURE", &label), 0.0, "{request}");
    }
    if !is_pulsar() {
        the_store_counts(&idle, &produced, &read);
    }
    for metric in ["MESSAGE_PUBLISH_count", "MESSAGE_READ_count"] {
        assert!(sum(&read, metric, "") > 0.0, "{metric}");
    }

    // What counts never goes down; what was done in between went up.
    for (name, family) in produced.iter().filter(|(_, f)| f.kind != "gauge") {
        for (series, before) in &family.series {
            let after = read.get(name).and_then(|family| family.series.get(series));
            assert!(
                after.is_some_and(|after| after >= before),
                "{series}: {before}, then {after:?}"
            );
        }
    }
    for metric in ["NETWORK_TOTAL_BYTES_IN", "NETWORK_TOTAL_BYTES_OUT"] {
        assert!(
            sum(&idle, metric, "") < sum(&produced, metric, ""),
            "{metric}"
        );
        assert!(
            sum(&produced, metric, "") < sum(&read, metric, ""),
            "{metric}"
        );
    }

    // Buckets are cumulative, and the last one holds all.
    for (name, family) in read.iter().filter(|(_, f)| f.kind == "histogram") {
        for (series, count) in &family.series {
            let Some(labels) = series.strip_prefix(&format!("{name}_count{{")) else {
                continue;
            };
            let labels = labels.trim_end_matches('}');
            let all = format!("{name}_bucket{{{labels},le=\"+Inf\"}}");
            assert_eq!(family.series.get(&all), Some(count), "{all}");
            let buckets = format!("{name}_bucket{{{labels},le=");
            for (bucket, value) in &family.series {
                assert!(!bucket.starts_with(&buckets) || value <= count, "{bucket}");
            }
        }
    }

    // The clients are gone.
    eventually("no connection is open", PATIENCE, || {
        (sum(&scrape(), "ALIVE_CHANNEL_COUNT", "") == 0.0).then_some(())
    });
}

type Scraped = BTreeMap<String, Family>;

/// What the embedded store counts follows what the clients do: a batch is an entry.
#[track_caller]
fn the_store_counts(idle: &Scraped, produced: &Scraped, read: &Scraped) {
    let store = |scraped: &Scraped, name: &str| {
        let name = format!("kop_store_{name}");
        let family = scraped.get(&name).unwrap_or_else(|| panic!("no {name}"));
        family.series.get(&name).copied().expect("no labels")
    };
    for counter in ["appended_entries_total", "appended_bytes_total"] {
        assert!(store(idle, counter) < store(produced, counter));
        assert!(store(produced, counter) < store(read, counter));
    }
    for counter in ["read_entries_total", "read_bytes_total"] {
        assert!(store(produced, counter) < store(read, counter));
    }
    assert_eq!(store(read, "append_failures_total"), 0.0);
    assert!(store(read, "open_managed_ledgers") >= 2.0);
}
