//! The contract's facts inside a real Pulsar broker: a plugin that runs them lies in `protocols/`, where it takes the
//! place of the NAR's own.

use std::fs;
use std::time::Duration;

use kop_fetch::process::Service;
use kop_fetch::pulsar::Release;
use kop_tests::broker::free_port;
use kop_tests::or_skip;
use kop_tests::pulsar::standalone::{self, Ports};
use kop_tests::pulsar::{jvm, release};

/// How long the broker and all facts may take together.
const ALL: Duration = Duration::from_secs(600);

const TOKENS: &str = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken";
const CLIENT_TOKENS: &str = "org.apache.pulsar.client.impl.auth.AuthenticationToken";
/// A key for tokens, and a token of the role `superuser` made with it.
const KEY: &str = "data:;base64,YSBzZWNyZXQgdGhhdCBvbmx5IHRlc3RzIGtub3csIDMyKw==";
const SUPERUSER: &str =
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzdXBlcnVzZXIifQ.EZycWV5Ty9aHNxMjbIwUlKGvpHY8CPR0OUHEt1632A8";

/// A broker with the plugin that runs the facts, and its results' file.
struct Host {
    home: tempfile::TempDir,
    service: Service,
}

impl Host {
    fn start(release: Release, set: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let test = std::env::current_exe().expect("the running test");
        let plugin = test.with_file_name("libcontract_plugin.so");
        let protocols = home.path().join("protocols");
        fs::create_dir_all(&protocols).expect("protocols/");
        fs::copy(&plugin, protocols.join("libkop_handler.so"))
            .unwrap_or_else(|error| panic!("{}: {error}", plugin.display()));
        let ports = Ports {
            kafka: free_port(),
            web: free_port(),
            pulsar: free_port(),
            bookie: free_port(),
            zookeeper: free_port(),
        };
        let mut settings = standalone::settings(release, ports);
        let results = home.path().join("results").display().to_string();
        settings.set("contractResults", &results);
        // Rolling over must not delete what was rolled over.
        settings.set("defaultRetentionTimeInMinutes", "-1");
        settings.set("defaultRetentionSizeInMB", "-1");
        for (key, value) in set {
            settings.set(key, value);
        }
        let data = home.path().join("data");
        let command = standalone::command(release, &settings, ports, home.path(), &data);
        let log = home.path().join("broker.log");
        let service = jvm::start("Pulsar", command.expect("a command"), &log);
        let service = service.expect("a broker");
        Self { home, service }
    }

    /// The results, once the last fact has been run.
    fn results(&mut self) -> String {
        let file = self.home.path().join("results");
        let told = |_: &str| {
            let told = fs::read_to_string(&file).ok()?;
            told.ends_with("end\n").then_some(told)
        };
        let told = self.service.wait_for(ALL, told);
        told.unwrap_or_else(|problem| panic!("{problem}; {:?}", fs::read_to_string(&file)))
    }
}

/// Runs the facts whose names hold one of the words of `KOP_TEST_FACTS`, all if it is not set.
#[test]
fn every_fact_of_the_contract_holds_inside_a_broker() {
    let release = or_skip!(release());
    let words = std::env::var("KOP_TEST_FACTS").unwrap_or_default();
    let mut host = Host::start(release, &[("contractFacts", words.as_str())]);
    let told = host.results();
    let facts: Vec<&str> = told.lines().filter(|line| *line != "end").collect();
    let of = |kind: &str| facts.iter().filter(|line| line.contains(kind)).count();
    for fact in facts.iter().filter(|line| line.ends_with(" skipped")) {
        println!("SKIPPED {fact}: this host does not claim to offer what it needs");
    }
    let (held, skipped) = (of(" ok"), of(" skipped"));
    println!("{held} facts hold, {skipped} are skipped");
    assert_eq!(held + skipped, facts.len(), "{told}");
    assert!(held > skipped * 9, "too much is skipped:\n{told}");
    let log = host.service.output();
    assert!(!log.contains("panicked at"), "a panic in the log:\n{log}");
}

/// Clients must authenticate, and so must the broker's own admin client, through which topics are made.
#[test]
fn the_broker_decides_who_a_client_is_and_what_it_may_do() {
    let release = or_skip!(release());
    let client = format!("token:{SUPERUSER}");
    let mut host = Host::start(
        release,
        &[
            ("authenticationEnabled", "true"),
            ("authorizationEnabled", "true"),
            ("authenticationProviders", TOKENS),
            ("tokenSecretKey", KEY),
            ("superUserRoles", "superuser"),
            ("brokerClientAuthenticationPlugin", CLIENT_TOKENS),
            ("brokerClientAuthenticationParameters", &client),
            ("contractToken", SUPERUSER),
            ("contractFacts", "credentials permissions topic namespaces"),
        ],
    );
    let told = host.results();
    assert!(
        told.contains("credentials_are_checked_where_they_are_asked_for ok\n"),
        "{told}"
    );
    let facts = told.lines().filter(|line| *line != "end");
    let failed: Vec<&str> = facts.filter(|line| !line.ends_with(" ok")).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_plugin_that_cannot_start_stops_the_broker_with_one_line() {
    let release = or_skip!(release());
    let mut host = Host::start(release, &[("contractStart", "refused")]);
    let status = host
        .service
        .wait(Duration::from_secs(60))
        .expect("it ends by itself");
    assert!(!status.success(), "{status}");
    let log = host.service.output();
    // Pulsar itself prints its whole configuration.
    let mut lines = log
        .lines()
        .filter(|line| line.contains("contractStart=refused") && !line.contains("configs="));
    let line = lines
        .next()
        .unwrap_or_else(|| panic!("nothing says why:\n{log}"));
    assert!(
        line.contains("ERROR") && line.contains("remove it"),
        "{line}"
    );
    assert_eq!(lines.next(), None, "said twice");
}
