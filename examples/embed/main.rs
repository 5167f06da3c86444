//! A broker of your own that speaks Kafka: a Rust program with services of its own ([`memory`]) loads the Kafka plugin
//! through `host-shim` and serves.
//!
//! ```text
//! cargo build --release -p kop-handler
//! cargo run --release -p kop-examples --example embed -- target/release 127.0.0.1:19092
//! ```
//!
//! The first argument is the directory in which `libkop_handler.so` lies, the second where Kafka clients connect. What
//! they write is kept in memory until the program ends by Ctrl-C.

mod memory;

use std::error::Error;
use std::sync::Arc;

use host_shim::config::HostConfig;
use host_shim::host::BrokerHost;
use host_shim::logging;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| "protocols".to_owned());
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:9092".to_owned());

    // 1. Settings: as text, since plugins bring keys of their own.
    let config = HostConfig::of([
        ("messagingProtocols", "kafka"),
        ("protocolHandlerDirectory", &directory),
        ("kafkaListeners", &format!("PLAINTEXT://{address}")),
        ("webServicePort", "0"),
        ("bindAddress", "127.0.0.1"),
    ])?;
    logging::to_stderr(&config.log_level);

    // 2. The plugins are found, checked, loaded, and given the settings.
    let host = BrokerHost::builder(config).prepare()?;

    // 3. They start on whatever implements the services.
    let broker = host.start(Arc::new(memory::Memory::default())).await?;
    println!("accepting connections: {}", broker.summary());

    tokio::signal::ctrl_c().await?;
    broker.stop().await;
    Ok(())
}
