//! A protocol handler in one page: it answers every line with that line.
//!
//! Not much of a protocol, but a whole plugin: settings of its own, its own runtime and socket, the host's log, metrics,
//! an orderly end. Built as `libecho_handler.so` it loads beside Kafka:
//!
//! ```text
//! cargo build --release -p echo-handler && cp target/release/libecho_handler.so protocols/
//! cargo standalone --set messagingProtocols=kafka,echo --set echoListener=127.0.0.1:7007
//! echo hello | nc -q1 127.0.0.1 7007
//! ```
//!
//! It must not know its host.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use handler_api::{
    ApiError, ErrorCode, Handle, Host, Level, ListenerInfo, Position, ProtocolHandler, Reply,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The plugin's only setting: the address to listen on.
const LISTENER: &str = "echoListener";
const DEFAULT_LISTENER: &str = "127.0.0.1:7007";
/// Longest line that is answered, in bytes; a longer one ends the connection.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Connections served at once; further ones wait.
const MAX_CONNECTIONS: usize = 100;

/// The handler. See the crate's own page.
#[derive(Default)]
pub struct Echo {
    configured: OnceLock<SocketAddr>,
    lines: Arc<AtomicU64>,
    serving: Mutex<Option<Serving>>,
}

/// What exists between start and close.
struct Serving {
    runtime: Runtime,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    acceptor: JoinHandle<()>,
}

handler_api::export_handler!(Echo::default());

impl ProtocolHandler for Echo {
    fn protocol_name(&self) -> String {
        "echo".to_owned()
    }

    fn initialize(&self, configuration: HashMap<String, String>) -> Result<(), ApiError> {
        let text = configuration
            .get(LISTENER)
            .map_or(DEFAULT_LISTENER, String::as_str);
        let address = text.parse().map_err(|_| {
            ApiError::new(
                ErrorCode::InvalidConfiguration,
                format!(
                    "{LISTENER}={text}: give an address and a port, such as {DEFAULT_LISTENER}"
                ),
            )
        })?;
        self.configured.get_or_init(|| address);
        Ok(())
    }

    fn protocol_data_to_advertise(&self) -> String {
        let address = self.configured.get();
        address.map_or_else(String::new, |address| format!("echo://{address}"))
    }

    fn start(&self, host: Host) -> Reply<()> {
        let Some(address) = self.configured.get() else {
            let text = "echo was not initialised";
            return Reply::err(ApiError::new(ErrorCode::InvalidConfiguration, text));
        };
        let serving = serve(*address, host, Arc::clone(&self.lines)).map_err(|error| {
            ApiError::new(
                ErrorCode::InvalidConfiguration,
                format!("{LISTENER}={address}: {error}; choose another address"),
            )
        });
        serving
            .map(|serving| *self.serving() = Some(serving))
            .into()
    }

    fn listeners(&self) -> Vec<ListenerInfo> {
        let serving = self.serving();
        let listener = serving.as_ref().map(|serving| ListenerInfo {
            name: "echo".into(),
            address: serving.address.to_string().into(),
        });
        listener.into_iter().collect()
    }

    fn end_moved(&self, _handle: Handle, _position: Position, _index: i64) {}

    fn event(&self, _op: u32, _payload: Bytes) {}

    fn metrics(&self) -> Bytes {
        let lines = self.lines.load(Ordering::Relaxed);
        let text = "# HELP echo_lines_total Lines answered.\n# TYPE echo_lines_total counter\n";
        format!("{text}echo_lines_total {lines}\n").into()
    }

    fn close(&self) -> Reply<()> {
        let Some(serving) = self.serving().take() else {
            return Reply::ok(());
        };
        serving.stop.send_replace(true);
        Reply::pending(async move {
            // A task of our own runtime, awaited on the host's thread: that may be.
            let ended = serving.acceptor.await;
            serving.runtime.shutdown_background();
            ended.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
        })
    }
}

impl Echo {
    fn serving(&self) -> std::sync::MutexGuard<'_, Option<Serving>> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Binds at once, so that a taken port is known when `start` returns, and serves on a runtime of its own.
fn serve(address: SocketAddr, host: Host, lines: Arc<AtomicU64>) -> io::Result<Serving> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("echo")
        .enable_all()
        .build()?;
    let listener = {
        // Sockets of tokio are made under the runtime that will drive them.
        let _guard = runtime.enter();
        TcpListener::from_std(listener)?
    };
    let (stop, stopped) = watch::channel(false);
    let acceptor = runtime.spawn(accept(listener, host, lines, stopped));
    Ok(Serving {
        runtime,
        address,
        stop,
        acceptor,
    })
}

async fn accept(
    listener: TcpListener,
    host: Host,
    lines: Arc<AtomicU64>,
    mut stopped: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, socket, peer) = tokio::select! {
            (slot, accepted) = next => match (slot, accepted) {
                (Ok(slot), Ok((socket, peer))) => (slot, socket, peer),
                (_, Err(error)) => {
                    host.log(Level::Warn, module_path!(), &format!("accept: {error}"));
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
                (Err(_), _) => break,
            },
            _ = stopped.changed() => break,
            // Ended connections are taken off the list.
            Some(_) = connections.join_next() => continue,
        };
        let (host, lines) = (host.clone(), Arc::clone(&lines));
        let mut stopped = stopped.clone();
        connections.spawn(async move {
            let ended = tokio::select! {
                ended = echo(socket, &lines) => ended,
                _ = stopped.changed() => Ok(()),
            };
            if let Err(error) = ended {
                host.log(Level::Debug, module_path!(), &format!("{peer}: {error}"));
            }
            drop(slot);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn echo(mut socket: TcpStream, lines: &AtomicU64) -> io::Result<()> {
    let (input, mut output) = socket.split();
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut input).take(MAX_LINE_BYTES);
        limited.read_until(b'\n', &mut line).await?;
        if line.last() != Some(&b'\n') {
            // The client has ended, or its line never does.
            return Ok(());
        }
        lines.fetch_add(1, Ordering::Relaxed);
        output.write_all(&line).await?;
    }
}
