//! The contract's facts inside a real Pulsar broker: a plugin that runs them lies in `protocols/`, where it takes the
//! place of the NAR's own.

use std::fs;
use std::time::Duration;

use kop_fetch::process::Service;
use kop_tests::broker::free_port;
use kop_tests::or_skip;
use kop_tests::pulsar::standalone::{self, Ports};
use kop_tests::pulsar::{jvm, release};

/// How long the broker and all facts may take together.
const ALL: Duration = Duration::from_secs(600);

/// Runs the facts whose names hold one of the words of `KOP_TEST_FACTS`, all if it is not set.
fn outcomes(service: &mut Service, results: &std::path::Path) -> String {
    let told = |_: &str| {
        let told = fs::read_to_string(results).ok()?;
        told.ends_with("end\n").then_some(told)
    };
    service
        .wait_for(ALL, told)
        .unwrap_or_else(|problem| panic!("{problem}; {:?}", fs::read_to_string(results)))
}

#[test]
fn every_fact_of_the_contract_holds_inside_a_broker() {
    let release = or_skip!(release());
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
    let results = home.path().join("results");
    let mut settings = standalone::settings(release, ports);
    settings.set("contractResults", &results.display().to_string());
    if let Ok(words) = std::env::var("KOP_TEST_FACTS") {
        settings.set("contractFacts", &words);
    }
    // Rolling over must not delete what was rolled over.
    settings.set("defaultRetentionTimeInMinutes", "-1");
    settings.set("defaultRetentionSizeInMB", "-1");
    let data = home.path().join("data");
    let command = standalone::command(release, &settings, ports, home.path(), &data);
    let log = home.path().join("broker.log");
    let command = command.expect("a command");
    let mut service = jvm::start("Pulsar", command, &log).expect("a broker");
    let told = outcomes(&mut service, &results);
    let facts: Vec<&str> = told.lines().filter(|line| *line != "end").collect();
    let failed: Vec<&&str> = facts
        .iter()
        .filter(|line| line.contains(" failed: "))
        .collect();
    let skipped = facts.iter().filter(|line| line.ends_with(" skipped"));
    for fact in skipped.clone() {
        println!("SKIPPED {fact}: this host does not claim to offer what it needs");
    }
    println!("{} facts, {} skipped", facts.len(), skipped.clone().count());
    assert!(failed.is_empty(), "{failed:#?}");
    let held = facts.iter().filter(|line| line.ends_with(" ok")).count();
    assert_eq!(held + skipped.count(), facts.len(), "{told}");
    assert!(held * 10 > facts.len() * 9, "too much was skipped:\n{told}");
    assert!(
        !service.output().contains("panicked at"),
        "{}",
        service.output()
    );
}
