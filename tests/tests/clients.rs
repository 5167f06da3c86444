//! Clients that others wrote, in their own languages: each creates a topic, produces with every codec, consumes in a
//! group of two that rebalances, commits, and starts again from its commit. The programs are under `tests/clients`.

use std::process::Command;
use std::time::Duration;

use kop_tests::broker::Broker;
use kop_tests::process::{Finished, run};
use kop_tests::{or_skip, tools};

/// The steps of the common scenario, in order.
const SCENARIO: [&str; 11] = [
    "create",
    "produce.none",
    "produce.gzip",
    "produce.snappy",
    "produce.lz4",
    "produce.zstd",
    "consume",
    "rebalance",
    "takeover",
    "commit",
    "restart",
];
/// What one program may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Codecs for which a client may have no package that can be installed here. It says why; nothing else may be left out.
const CODECS_THAT_NEED_A_PACKAGE: [&str; 3] = ["produce.snappy", "produce.lz4", "produce.zstd"];

/// Runs a client program and demands every step, except those of `optional` for which it gives a reason.
#[track_caller]
fn demand(mut command: Command, arguments: &[&str], steps: &[&str], optional: &[&str]) {
    command.args(arguments);
    let finished: Finished = run(command, None, LIMIT).expect_success("the client program");
    for step in steps {
        let done = finished
            .stdout
            .lines()
            .any(|line| line == format!("ok {step}"));
        let skipped = finished
            .stdout
            .lines()
            .find(|line| line.starts_with(&format!("skip {step}: ")));
        if let Some(reason) = skipped {
            // `cargo verify` shows lines that begin so.
            println!("left out: {}: {reason}", arguments.last().unwrap_or(&""));
        }
        assert!(
            done || (skipped.is_some() && optional.contains(step)),
            "the step {step} was not done:\n{}",
            finished.stdout
        );
    }
}

#[test]
fn the_java_client_runs_the_scenario_and_what_only_it_can_do() {
    let kafka = or_skip!(tools::kafka());
    let broker = Broker::start();
    let cooperative = ["consume", "rebalance", "takeover", "commit", "restart"]
        .map(|step| format!("{step}.cooperative"));
    let mut steps: Vec<&str> = SCENARIO.to_vec();
    steps.extend([
        "headers",
        "nulls",
        "idempotent",
        "static",
        "fenced",
        "remove",
    ]);
    steps.extend(cooperative.iter().map(String::as_str));
    steps.extend([
        "admin.cluster",
        "admin.configs",
        "admin.partitions",
        "admin.groups",
        "admin.delete",
    ]);
    demand(
        kafka.program("InteropClient"),
        &[&broker.bootstrap(), "java"],
        &steps,
        &[],
    );
}

#[test]
fn confluent_kafka_of_python_runs_the_scenario() {
    let python = or_skip!(tools::python());
    let broker = Broker::start();
    let mut steps = SCENARIO.to_vec();
    steps.push("headers");
    let arguments = ["scenario", &broker.bootstrap(), "python"];
    demand(python, &arguments, &steps, &[]);
}

#[test]
fn kafkajs_runs_the_scenario() {
    let node = or_skip!(tools::node());
    let broker = Broker::start();
    let arguments = ["scenario", &broker.bootstrap(), "node"];
    demand(node, &arguments, &SCENARIO, &CODECS_THAT_NEED_A_PACKAGE);
}

#[test]
fn franz_go_runs_the_scenario() {
    let go = or_skip!(tools::go());
    let broker = Broker::start();
    let arguments = ["scenario", &broker.bootstrap(), "go"];
    demand(go, &arguments, &SCENARIO, &[]);
}
