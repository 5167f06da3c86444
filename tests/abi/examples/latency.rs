//! What a call across the boundary costs: prints nanoseconds, asserts nothing.
//!
//! `cargo run --release -p abi-tests --example latency`

use std::sync::Arc;
use std::time::Instant;

use handler_api::Handler;
use host_shim::events::EventSink;
use host_shim::loader;
use host_shim::sim::SimHost;
use probe_handler::{Ask, Question};

const ROUNDS: usize = 5;
const CALLS: u64 = 200_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Beside this example's directory: cargo builds the plugin with it.
    let example = std::env::current_exe()?;
    let built = example.ancestors().nth(2).ok_or("no target directory")?;
    let directory = tempfile::tempdir()?;
    let file = "libprobe_handler.so";
    std::fs::copy(built.join("deps").join(file), directory.path().join(file))?;
    let plugin = loader::load(directory.path(), &["probe".to_owned()])?.remove(0);
    let handler = Arc::new(plugin.handler);
    let sim = SimHost::new(1);
    let sink: Arc<dyn EventSink> = handler.clone();
    handler.start(sim.attach("", Some(sink))).await?;

    for (name, task) in [
        ("plugin → host, watch (synchronous)", "time watch"),
        (
            "plugin → host, append of 1 KB, answered at once",
            "time append",
        ),
    ] {
        let mut best = u64::MAX;
        for _ in 0..ROUNDS {
            best = best.min(ask(&handler, task, CALLS).await?.numbers[0]);
        }
        println!("{name}: {best} ns");
    }
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            ask(&handler, "nothing", 0).await?;
        }
        best = best.min(start.elapsed().as_nanos() as u64 / CALLS);
    }
    println!("host → plugin → host, control call: {best} ns");
    Ok(())
}

async fn ask(
    handler: &Handler,
    task: &str,
    times: u64,
) -> Result<probe_handler::Said, handler_api::ApiError> {
    let question = Question {
        task: task.to_owned(),
        times,
    };
    handler.control::<Ask>(&question).await
}
