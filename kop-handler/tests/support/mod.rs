//! The plugin in this process, on the simulated host, and a client that speaks raw Kafka to it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program has its own copy of this module and uses a part of it"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics has failed"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use handler_api::{Handler, HostServices, capability};
use host_shim::events::EventSink;
use host_shim::sim::SimHost;
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kop_handler::plugin::KafkaHandler;
use kop_handler::wire::batch::{BatchBuilder, NewRecord};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A plugin that serves.
pub struct Plugin {
    pub sim: SimHost,
    pub handler: Arc<Handler>,
    pub address: SocketAddr,
}

impl Plugin {
    /// Starts a plugin with some settings on a fresh simulated host, whose only broker it is in.
    pub async fn start(settings: &[(&str, &str)]) -> Self {
        let sim = SimHost::new(1);
        sim.set_capabilities(
            capability::SINGLE_BROKER | capability::REPLACE_LEDGER | capability::TRIM_TO_ENTRY,
        );
        Self::start_on(sim, settings).await
    }

    /// Starts a plugin on a host.
    pub async fn start_on(sim: SimHost, settings: &[(&str, &str)]) -> Self {
        Self::start_over(sim, settings, |services| services).await
    }

    /// Starts a plugin on a host whose services are changed on their way.
    pub async fn start_over(
        sim: SimHost,
        settings: &[(&str, &str)],
        change: impl FnOnce(Arc<dyn HostServices>) -> Arc<dyn HostServices>,
    ) -> Self {
        let mut configuration: HashMap<String, String> = [
            ("kafkaListeners", "PLAINTEXT://127.0.0.1:0"),
            ("groupInitialRebalanceDelayMs", "0"),
            ("entryFormat", "kafka"),
        ]
        .into_iter()
        .chain(settings.iter().copied())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
        configuration
            .entry("clusterName".to_owned())
            .or_insert_with(|| "test".to_owned());
        let handler = Arc::new(Handler::of(KafkaHandler::new()));
        handler.initialize(&configuration).unwrap();
        let sink: Arc<dyn EventSink> = Arc::clone(&handler) as Arc<dyn EventSink>;
        let services = sim.attach(&handler.protocol_data_to_advertise(), Some(sink));
        handler.start(change(services)).await.unwrap();
        let address = handler
            .listeners()
            .first()
            .unwrap()
            .address
            .parse()
            .unwrap();
        Self {
            sim,
            handler,
            address,
        }
    }

    /// A new connection.
    pub async fn connect(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One number of the metrics' text, by the start of its line.
    pub fn metric(&self, start: &str) -> f64 {
        let text = String::from_utf8(self.handler.metrics().to_vec()).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no {start} in\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A raw connection.
pub struct Client {
    pub stream: TcpStream,
    next: i32,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, next: 1 }
    }

    /// A client on a stream that is open.
    pub fn over(stream: TcpStream) -> Self {
        Self { stream, next: 1 }
    }

    /// Sends a request and waits for its reply.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request).await;
        let (got, response) = self.receive::<R>(version).await;
        assert_eq!(got, id, "replies come in the order of requests");
        response
    }

    /// Sends a request; gives its correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let id = self.next;
        self.next += 1;
        let frame = frame(version, id, request);
        self.stream.write_all(&frame).await.unwrap();
        id
    }

    /// The next reply, which must be to a request of this kind.
    pub async fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let mut bytes = self.receive_bytes().await.expect("a reply");
        let header =
            ResponseHeader::decode(&mut bytes, R::Response::header_version(version)).unwrap();
        let response = R::Response::decode(&mut bytes, version).unwrap();
        assert!(bytes.is_empty(), "bytes after the reply");
        (header.correlation_id, response)
    }

    /// The next frame, or `None` if the connection was closed.
    pub async fn receive_bytes(&mut self) -> Option<Bytes> {
        let read = async {
            let length = self.stream.read_i32().await.ok()?;
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut bytes).await.ok()?;
            Some(Bytes::from(bytes))
        };
        tokio::time::timeout(PATIENCE, read)
            .await
            .expect("a reply or a close in time")
    }

    /// Sends bytes as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        // The peer may have closed already: that is what the test then sees.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Whether nothing comes for a while.
    pub async fn is_silent(&mut self, time: Duration) -> bool {
        let mut byte = [0; 1];
        tokio::time::timeout(time, self.stream.peek(&mut byte))
            .await
            .is_err()
    }

    /// Waits until the peer closes without sending anything more.
    pub async fn expect_close(&mut self) {
        assert_eq!(self.receive_bytes().await, None, "a close, not a reply");
    }
}

/// A whole request: length, header, body.
pub fn frame<R: Request>(version: i16, correlation_id: i32, request: &R) -> Bytes {
    let mut body = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_static_str("raw")))
        .encode(&mut body, R::header_version(version))
        .unwrap();
    request.encode(&mut body, version).unwrap();
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(body.len()).unwrap());
    frame.put_slice(&body);
    frame.freeze()
}

/// A batch of records with these values, timestamps counting from `timestamp`.
pub fn batch(timestamp: i64, values: &[&str]) -> Bytes {
    fill(BatchBuilder::new(timestamp), timestamp, values)
}

/// A batch of an idempotent producer.
pub fn producer_batch(id: i64, epoch: i16, sequence: i32, values: &[&str]) -> Bytes {
    fill(
        BatchBuilder::new(1_000).producer(id, epoch, sequence),
        1_000,
        values,
    )
}

fn fill(mut builder: BatchBuilder, timestamp: i64, values: &[&str]) -> Bytes {
    for (n, value) in values.iter().enumerate() {
        builder
            .push(NewRecord::new(
                timestamp + n as i64,
                None,
                Some(value.as_bytes()),
            ))
            .unwrap();
    }
    builder.build().unwrap()
}
