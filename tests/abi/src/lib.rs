//! A plugin that does on its side of the boundary what a test asks it to, and says what it saw.
//!
//! Questions come through the plugin's own control call ([`Ask`]). Built as `libprobe_handler.so`.

mod ping;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use handler_api::ledger::{OpenLedgers, Opened};
use handler_api::metadata::{GetValue, Path, PutRequest, PutValue};
use handler_api::topics::{CreateTopic, Topic, TopicNames};
use handler_api::{
    ApiError, AppendRequest, ErrorCode, Handle, Host, Level, ListenerInfo, Operation, Position,
    ProtocolHandler, ReadRequest, Reply, SharedBytes, control,
};
use prost::Message;

/// The probe's only operation.
#[derive(Debug)]
pub struct Ask;

impl Operation for Ask {
    const OP: u32 = 0x7f01;
    const NAME: &'static str = "Ask";
    type Request = Question;
    type Answer = Said;
}

/// What to do.
#[derive(Clone, PartialEq, Message)]
pub struct Question {
    /// Name of the task; see [`Probe::call`].
    #[prost(string, tag = "1")]
    pub task: String,
    /// How often, where that makes sense.
    #[prost(uint64, tag = "2")]
    pub times: u64,
}

/// What came of it.
#[derive(Clone, PartialEq, Message)]
pub struct Said {
    /// For people, and for comparisons.
    #[prost(string, tag = "1")]
    pub text: String,
    /// Numbers: addresses, nanoseconds.
    #[prost(uint64, repeated, tag = "2")]
    pub numbers: Vec<u64>,
}

/// An operation that no host knows.
#[derive(Debug)]
pub struct NobodyKnows;

impl Operation for NobodyKnows {
    const OP: u32 = 0x7f7f;
    const NAME: &'static str = "NobodyKnows";
    type Request = control::Nothing;
    type Answer = control::Nothing;
}

/// The topic that the probe works on.
pub const TOPIC: &str = "persistent://public/default/probe";
/// Its only partition.
pub const PARTITION: &str = "persistent://public/default/probe-partition-0";

/// The plugin.
#[derive(Default)]
pub struct Probe {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    host: OnceLock<Host>,
    ends: Mutex<Vec<i64>>,
    events: Mutex<Vec<u32>>,
    panics: AtomicU64,
    never_closes: AtomicBool,
}

handler_api::export_handler!(Probe::default());

impl Drop for Probe {
    fn drop(&mut self) {
        if self.inner.panics.load(Ordering::Relaxed) > 0 {
            panic!("the probe's destructor panics as asked");
        }
    }
}

impl ProtocolHandler for Probe {
    fn protocol_name(&self) -> String {
        "probe".to_owned()
    }

    fn initialize(&self, configuration: HashMap<String, String>) -> Result<(), ApiError> {
        let close = configuration.get("probeClose");
        let never = close.is_some_and(|value| value == "never");
        self.inner.never_closes.store(never, Ordering::Relaxed);
        match configuration.get("probeInitialize").map(String::as_str) {
            Some("panic") => panic!("initialize panics as asked"),
            Some(value) => Err(ApiError::new(
                ErrorCode::InvalidConfiguration,
                format!("probeInitialize={value}: give panic, or nothing"),
            )),
            None => Ok(()),
        }
    }

    fn protocol_data_to_advertise(&self) -> String {
        "probe://".to_owned()
    }

    fn start(&self, host: Host) -> Reply<()> {
        host.log(Level::Info, module_path!(), "the probe starts");
        let _ = self.inner.host.set(host);
        Reply::ok(())
    }

    fn listeners(&self) -> Vec<ListenerInfo> {
        Vec::new()
    }

    fn end_moved(&self, _handle: Handle, _position: Position, index: i64) {
        self.inner.ends.lock().unwrap().push(index);
        if self.inner.panics.load(Ordering::Relaxed) > 0 {
            panic!("end_moved panics as asked");
        }
    }

    fn event(&self, op: u32, _payload: Bytes) {
        self.inner.events.lock().unwrap().push(op);
        if self.inner.panics.load(Ordering::Relaxed) > 0 {
            panic!("event panics as asked");
        }
    }

    fn metrics(&self) -> Bytes {
        if self.inner.panics.load(Ordering::Relaxed) > 0 {
            panic!("metrics panics as asked");
        }
        Bytes::from_static(b"# TYPE probe_up gauge\nprobe_up 1\n")
    }

    fn call(&self, op: u32, version: u32, request: Bytes) -> Reply<Bytes> {
        let question = match control::request::<Ask>(op, version, &request) {
            Some(Ok(question)) => question,
            Some(Err(error)) => return Reply::err(error),
            None => return Reply::err(control::unsupported(op, version)),
        };
        if question.task == "panic now" {
            panic!("the probe panics as asked");
        }
        let inner = Arc::clone(&self.inner);
        Reply::pending(async move {
            let said = inner.work(question).await?;
            Ok(control::encode(&said))
        })
    }

    fn close(&self) -> Reply<()> {
        if self.inner.never_closes.load(Ordering::Relaxed) {
            return Reply::pending(std::future::pending());
        }
        Reply::ok(())
    }
}

impl Inner {
    fn host(&self) -> Result<Host, ApiError> {
        let host = self.host.get().cloned();
        host.ok_or_else(|| ApiError::new(ErrorCode::NotReady, "not started"))
    }

    async fn work(&self, question: Question) -> Result<Said, ApiError> {
        let host = self.host()?;
        let mut said = Said::default();
        match question.task.as_str() {
            "panic later" => panic!("the probe panics later, as asked"),
            "panic everywhere" => self.panics.store(1, Ordering::Relaxed),
            "do it all" => said.text = self.do_it_all(&host).await?,
            "unknown operation" => {
                let answer = host.control::<NobodyKnows>(&control::Nothing {}).await;
                said.text = format!("{:?}", answer.map_err(|error| error.kind()));
            }
            "ping" => said.text = ping::ping(&host).await,
            "events" => {
                let events = self.events.lock().unwrap();
                said.numbers = events.iter().map(|op| u64::from(*op)).collect();
            }
            "append" => {
                let bytes = Bytes::from(b"made by the plugin".to_vec());
                said.numbers.push(bytes.as_ptr() as u64);
                let handle = open(&host).await?;
                append(&host, handle, bytes).await?;
            }
            "read" => {
                let handle = open(&host).await?;
                for bytes in read(&host, handle, 0).await? {
                    said.numbers.push(bytes.as_ptr() as u64);
                }
            }
            "time append" => {
                let handle = open(&host).await?;
                let bytes = Bytes::from(vec![0; 1024]);
                let start = Instant::now();
                for _ in 0..question.times {
                    append(&host, handle, bytes.clone()).await?;
                }
                let nanoseconds = start.elapsed().as_nanos() as u64;
                said.numbers.push(nanoseconds / question.times.max(1));
            }
            "time watch" => {
                let handle = open(&host).await?;
                let start = Instant::now();
                for _ in 0..question.times {
                    host.watch(handle, i64::MAX)?;
                }
                let nanoseconds = start.elapsed().as_nanos() as u64;
                said.numbers.push(nanoseconds / question.times.max(1));
            }
            "nothing" => {}
            other => return Err(ApiError::new(ErrorCode::InvalidArgument, other)),
        }
        Ok(said)
    }

    /// Uses every service once. The text is `done` if each did what it should.
    async fn do_it_all(&self, host: &Host) -> Result<String, ApiError> {
        let handle = open(host).await?;
        let end = host.watch(handle, i64::MAX)?;
        host.watch(handle, end)?;
        let appended = append(host, handle, Bytes::from_static(b"one")).await?;
        let found = host.find(handle, appended.index).await?;
        let read_back = read(host, handle, appended.index).await?;
        let owner = host.lookup(vec![PARTITION.to_owned()]).await?.remove(0)?;
        let path = Path {
            path: "/probe".to_owned(),
        };
        let put = PutRequest {
            path: path.path.clone(),
            value: Bytes::from_static(b"value"),
            expected_version: None,
        };
        let version = host.control::<PutValue>(&put).await?.version;
        let value = host.control::<GetValue>(&path).await?;
        let dead = Handle {
            id: u64::MAX,
            generation: 1,
        };
        let refused = host.find(dead, 0).await.map_err(|error| error.kind());
        let woken = self.ends.lock().unwrap().contains(&appended.index);
        let checks = [
            ("index", appended.index == end + 1),
            ("find", found == appended.position),
            ("read", read_back == [Bytes::from_static(b"one")]),
            (
                "owner",
                owner.local && owner.protocol_data.as_str() == "probe://",
            ),
            (
                "value",
                value.version == version && value.value == put.value,
            ),
            ("dead handle", refused == Err(ErrorCode::HandleClosed)),
            ("end_moved", woken),
        ];
        let failed: Vec<&str> = checks
            .iter()
            .filter(|(_, good)| !good)
            .map(|(name, _)| *name)
            .collect();
        Ok(match failed.as_slice() {
            [] => "done".to_owned(),
            failed => format!("wrong: {}", failed.join(", ")),
        })
    }
}

async fn open(host: &Host) -> Result<Handle, ApiError> {
    let topic = Topic {
        name: TOPIC.to_owned(),
        partitions: 1,
        ..Topic::default()
    };
    match host.control::<CreateTopic>(&topic).await {
        Err(error) if error.kind() != ErrorCode::Conflict => return Err(error),
        _ => {}
    }
    let names = TopicNames {
        names: vec![PARTITION.to_owned()],
    };
    let Opened { handle, fault, .. } = host.control::<OpenLedgers>(&names).await?.ledgers.remove(0);
    match (handle, fault) {
        (Some(handle), _) => Ok(handle.into()),
        (None, Some(fault)) => Err(fault.into()),
        (None, None) => Err(ApiError::new(
            ErrorCode::Internal,
            "neither handle nor fault",
        )),
    }
}

async fn append(
    host: &Host,
    handle: Handle,
    bytes: Bytes,
) -> Result<handler_api::Appended, ApiError> {
    let request = AppendRequest {
        handle,
        messages: 1,
        flags: 0,
        segments: vec![SharedBytes::from(bytes)].into(),
    };
    host.append(vec![request]).await?.remove(0)
}

async fn read(host: &Host, handle: Handle, index: i64) -> Result<Vec<Bytes>, ApiError> {
    let request = ReadRequest {
        handle,
        index,
        position: Position::UNKNOWN,
        max_entries: 100,
        flags: 0,
        max_bytes: 1 << 20,
    };
    let answer = host.read(vec![request], 1 << 20).await?.remove(0)?;
    let segments = answer.entries.into_iter().flat_map(|entry| entry.segments);
    Ok(segments.map(|segment| segment.bytes.into()).collect())
}
