//! A host that loads the probe from a directory, has it do everything, and prints what came of it.

mod services;

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use handler_api::control;
use host_shim::events::EventSink;
use host_shim::loader;
use host_shim::sim::SimHost;
use probe_handler::{Ask, Question};

fn main() -> std::process::ExitCode {
    match futures_util::future::FutureExt::now_or_never(run()) {
        Some(Ok(())) => std::process::ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
        None => {
            eprintln!("an answer did not come at once");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or("usage: probe-host DIRECTORY")?;
    let plugin = loader::load(&directory, &["probe".to_owned()])?.remove(0);
    println!(
        "host {} plugin {}",
        handler_api::ABI_VERSION,
        plugin.abi_version
    );
    let handler = Arc::new(plugin.handler);
    handler.initialize(&std::collections::HashMap::new())?;
    let data = handler.protocol_data_to_advertise();
    let sim = SimHost::new(1);
    let sink: Arc<dyn EventSink> = handler.clone();
    let services = services::offer(sim.attach(&data, Some(sink)));
    handler.start(services).await?;
    for task in ["do it all", "unknown operation", "ping"] {
        let question = Question {
            task: task.to_owned(),
            ..Question::default()
        };
        println!("{task}: {}", handler.control::<Ask>(&question).await?.text);
    }
    // An event that this version may or may not define.
    handler.raw_event(0x7e01, control::encode(&control::Nothing {}));
    let question = Question {
        task: "events".to_owned(),
        ..Question::default()
    };
    let events = handler.control::<Ask>(&question).await?.numbers;
    println!("event: {}", events.contains(&0x7e01));
    let _: Bytes = handler.metrics();
    handler.close().await?;
    Ok(())
}
