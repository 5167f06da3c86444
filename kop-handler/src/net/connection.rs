//! One connection: bytes → requests → dispatch → replies in order. One task does it all; a request that waits keeps
//! neither the reader nor later requests waiting.
//!
//! ```text
//!   socket ─▶ framer ─▶ budget ─▶ table ─▶ pipeline ─▶ output ─▶ socket
//!               │          │                  │           │
//!               └──────────┴── no read while one of them is full
//! ```
//!
//! A large frame takes its bytes from the budget as they arrive, see `budget`. Whatever cannot be served (malformed,
//! too large, an unknown key or version) closes the connection without a reply, once the requests before it are
//! answered. It must not know what a request means.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use kafka_protocol::messages::ApiKey;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::time::{Instant, Sleep};
use tracing::Instrument;

use super::Shared;
use super::budget::Memory;
use super::output::Output;
use super::pipeline::{Dispatch, Pipeline};
use crate::api::{self, Call, Connection, Line, Reply};
use crate::wire::WireError;
use crate::wire::framer::{FrameError, FrameLimits, Framer};
use crate::wire::request::RequestHead;

/// Where a connection came from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) id: u64,
    pub(super) peer: SocketAddr,
    pub(super) listener: Arc<str>,
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the peer closed it")]
    PeerClosed,
    #[error("the peer closed it inside a frame")]
    CutShort,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it was silent for connectionMaxIdleMs")]
    Idle,
    #[error("a frame took too long to arrive")]
    SlowFrame,
    #[error("the peer does not take its replies")]
    SlowReader,
    #[error("the plugin closes")]
    Closing,
    #[error("an unanswerable request")]
    Refused,
    #[error("a Produce with acks=0 failed")]
    SilentFailure,
}

/// What a silent connection comes to in time.
#[derive(Debug)]
enum Due {
    End(End),
    /// It gives its front buffer back.
    Rest,
}

/// A request that closes its connection.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("API key {0} is not served")]
    Key(i16),
    #[error("version {version} of {api} is not served")]
    Version { api: &'static str, version: i16 },
}

/// Memory for a frame, being waited for.
type Waiting = Pin<Box<dyn Future<Output = Option<Memory>> + Send>>;

struct State {
    shared: Arc<Shared>,
    origin: Origin,
    connection: Arc<Connection>,
    client_id: Arc<str>,
    framer: Framer,
    /// Memory for the frame that is being read.
    reserved: Memory,
    waiting: Option<Waiting>,
    pipeline: Pipeline,
    output: Output,
    /// Set when nothing is read any more; the connection ends when what is in flight is answered.
    ending: Option<End>,
    active: bool,
    last_activity: Instant,
    /// Since when the reader waits for the rest of a frame.
    frame_since: Option<Instant>,
    last_write: Instant,
}

/// Serves a connection to its end.
pub(super) async fn run(shared: Arc<Shared>, origin: Origin, stream: TcpStream) {
    let metrics = &shared.server.metrics;
    metrics.alive_channels.add(1);
    let span = tracing::debug_span!("connection", id = origin.id, peer = %origin.peer, listener = %origin.listener);
    let mut state = State::new(Arc::clone(&shared), origin);
    let end = state.serve(stream).instrument(span.clone()).await;
    if state.active {
        metrics.active_channels.add(-1);
    }
    metrics.alive_channels.add(-1);
    let software = state.connection.software.lock().clone().unwrap_or_default();
    let _entered = span.entered();
    tracing::debug!(
        client = %state.client_id, software = software.name, version = software.version, reason = %end,
        "connection closed"
    );
}

impl State {
    fn new(shared: Arc<Shared>, origin: Origin) -> Self {
        let now = Instant::now();
        Self {
            connection: Arc::default(),
            client_id: "".into(),
            framer: Framer::new(FrameLimits {
                produce: shared.server.limits.max_produce_frame,
                other: shared.server.limits.max_frame,
                front: shared.server.limits.front_buffer,
            }),
            reserved: Memory::default(),
            waiting: None,
            pipeline: Pipeline::new(Arc::clone(&shared.server)),
            output: Output::default(),
            ending: None,
            active: false,
            last_activity: now,
            frame_since: None,
            last_write: now,
            shared,
            origin,
        }
    }

    async fn serve(&mut self, mut stream: TcpStream) -> End {
        let (mut reader, mut writer) = stream.split();
        let mut closing = self.shared.server.closing.subscribe();
        let mut timer = pin!(tokio::time::sleep(Duration::from_secs(3600)));
        let max_slices = self.shared.server.limits.max_write_slices;
        loop {
            std::future::poll_fn(|cx| {
                self.pump(cx);
                Poll::Ready(())
            })
            .await;
            self.collect();
            if let Some(end) = self.finished() {
                return end;
            }
            self.arm(timer.as_mut());
            let may_read = self.may_dispatch();
            let room = self.goal().map_or(usize::MAX, |goal| {
                goal.saturating_sub(self.framer.received())
            });
            let may_advance = !self.pipeline.is_empty();
            tokio::select! {
                // Reading comes last: a peer that always sends would keep everything below it waiting.
                biased;
                _ = closing.wait_for(|closing| *closing), if self.ending.is_none() => self.ending = Some(End::Closing),
                written = self.output.write_to(&mut writer, max_slices), if !self.output.is_empty() => match written {
                    Ok(written) => self.wrote(written),
                    Err(error) => return error.into(),
                },
                () = self.pipeline.advance(), if may_advance => {}
                memory = async { match self.waiting.as_mut() { Some(waiting) => waiting.await, None => None } }, if self.waiting.is_some() => {
                    self.waiting = None;
                    self.reserved.add(memory.unwrap_or_default());
                }
                () = timer.as_mut() => if let Some(end) = self.overdue(Instant::now()) { return end },
                read = receive(&mut reader, &mut self.framer, room), if may_read => match read {
                    Ok(0) if self.framer.is_between_frames() => return End::PeerClosed,
                    Ok(0) => return End::CutShort,
                    Ok(read) => self.read(read),
                    Err(error) => return error.into(),
                },
            }
        }
    }

    fn read(&mut self, bytes: usize) {
        self.shared
            .server
            .metrics
            .network_bytes_in
            .add(bytes as u64);
        self.last_activity = Instant::now();
    }

    fn wrote(&mut self, bytes: usize) {
        self.shared
            .server
            .metrics
            .network_bytes_out
            .add(bytes as u64);
        self.output.advance(bytes);
        self.last_write = Instant::now();
        self.last_activity = self.last_write;
    }

    /// Whether one more request may be started.
    fn may_dispatch(&self) -> bool {
        let limits = &self.shared.server.limits;
        self.ending.is_none()
            && self.waiting.is_none()
            && self.pipeline.len() < limits.max_in_flight_per_connection
            && self.pipeline.bytes() < limits.max_bytes_in_flight_per_connection
            && self.output.len() < limits.max_reply_bytes_per_connection
    }

    /// How much of the large frame that is being read may be in memory before more of the budget is taken: the front
    /// buffer, then twice what has arrived, so that a peer makes us hold no more than twice what it sends.
    fn goal(&self) -> Option<usize> {
        let front = self.shared.server.limits.front_buffer;
        let length = self.framer.pending().filter(|length| *length > front)?;
        Some(length.min(front.max(2 * self.framer.received())))
    }

    /// Cuts frames and starts their requests, as far as the bounds allow.
    fn pump(&mut self, cx: &mut Context<'_>) {
        while self.may_dispatch() {
            match self.framer.next_frame() {
                Ok(Some(frame)) => {
                    // Whatever stands behind it has a time of its own.
                    self.frame_since = None;
                    if let Err(refusal) = self.dispatch(frame, cx) {
                        self.refuse(&refusal);
                    }
                }
                Ok(None) => {
                    self.reserve();
                    return;
                }
                Err(error) => self.refuse(&error.into()),
            }
        }
    }

    /// Takes what the frame that is being read needs next from the budget, or waits for it: nothing is read meanwhile.
    fn reserve(&mut self) {
        let front = self.shared.server.limits.front_buffer;
        let Some(goal) = self.goal().filter(|goal| *goal > front) else {
            return;
        };
        if self.reserved.covers(goal) {
            return;
        }
        let more = goal - self.reserved.bytes();
        match self.shared.budget.try_take(more) {
            Some(memory) => self.reserved.add(memory),
            None => self.waiting = Some(Box::pin(self.shared.budget.take(more))),
        }
    }

    fn dispatch(&mut self, frame: Bytes, cx: &mut Context<'_>) -> Result<(), Refusal> {
        let bytes = frame.len();
        let line = served(&frame)?;
        let head = RequestHead::parse(frame)?;
        let client_id = head.client_id.as_deref().unwrap_or_default();
        if *client_id != *self.client_id {
            self.client_id = client_id.into();
        }
        if !line.serves(head.version) {
            if line.key == ApiKey::ApiVersions {
                self.reserved = Memory::default();
                let reply = api::security::api_versions::unsupported_version(head.correlation_id)?;
                self.pipeline.answered(line, reply);
                return Ok(());
            }
            return Err(Refusal::Version {
                api: line.name,
                version: head.version,
            });
        }
        let mut memory = std::mem::take(&mut self.reserved);
        if !memory.covers(bytes) {
            // It came whole with the frames before it.
            memory.add(self.shared.budget.try_take(bytes).unwrap_or_default());
        }
        if !self.active {
            self.active = true;
            self.shared.server.metrics.active_channels.add(1);
        }
        let call = Call {
            version: head.version,
            client_id: Arc::clone(&self.client_id),
            peer: self.origin.peer,
            listener: Arc::clone(&self.origin.listener),
            connection: Arc::clone(&self.connection),
        };
        let server = Arc::clone(&self.shared.server);
        let span = tracing::debug_span!(
            "request",
            api = line.name,
            version = head.version,
            correlation_id = head.correlation_id
        );
        let work =
            (line.start)(server, call, head.correlation_id, head.body.clone()).instrument(span);
        self.pipeline.start(
            Dispatch {
                line,
                version: head.version,
                correlation_id: head.correlation_id,
                body: head.body,
                work,
                bytes,
                memory,
            },
            cx,
        );
        Ok(())
    }

    /// Closes the connection because of a request, after the earlier ones are answered.
    fn refuse(&mut self, refusal: &Refusal) {
        let server = &self.shared.server;
        server.metrics.requests_refused.add(1);
        if let Some(dropped) = self.shared.refusals.admit(Instant::now()) {
            tracing::warn!(
                peer = %self.origin.peer, client = %self.client_id, reason = %refusal, dropped,
                "a request is refused and its connection closed"
            );
        }
        self.reserved = Memory::default();
        self.ending = Some(End::Refused);
    }

    /// Moves finished replies, in order, to the output.
    fn collect(&mut self) {
        let was_empty = self.output.is_empty();
        while let Some(outcome) = self.pipeline.pop() {
            match outcome {
                Ok(Reply::Bytes(reply)) => self.output.push(reply),
                Ok(Reply::Silent) => {}
                Ok(Reply::Close) => {
                    self.ending = Some(End::SilentFailure);
                    self.pipeline.clear();
                }
                Err(error) => {
                    self.refuse(&error.into());
                    self.pipeline.clear();
                }
            }
        }
        if was_empty && !self.output.is_empty() {
            self.last_write = Instant::now();
        }
    }

    /// The end, once nothing is left to do before it.
    fn finished(&mut self) -> Option<End> {
        if self.pipeline.is_empty() && self.output.is_empty() {
            return self.ending.take();
        }
        None
    }

    /// The next moment at which something is overdue unless it happens before.
    fn next_deadline(&mut self, now: Instant) -> Option<(Instant, Due)> {
        let limits = &self.shared.server.limits;
        let reading = self.may_dispatch() && !self.framer.is_between_frames();
        self.frame_since = if reading {
            self.frame_since.or(Some(now))
        } else {
            None
        };
        if !self.output.is_empty() {
            return Some((
                self.last_write + Duration::from_millis(limits.write_timeout_ms),
                Due::End(End::SlowReader),
            ));
        }
        if let Some(since) = self.frame_since {
            let patience_ms = if self.reserved.is_overdraft() {
                limits.overdraft_timeout_ms.min(limits.frame_timeout_ms)
            } else {
                limits.frame_timeout_ms
            };
            let end = Due::End(End::SlowFrame);
            return Some((since + Duration::from_millis(patience_ms), end));
        }
        if !self.pipeline.is_empty() || !self.may_dispatch() {
            return None;
        }
        let rest = Duration::from_millis(limits.front_buffer_rest_ms);
        let rests = (!self.framer.is_at_rest()).then_some((self.last_activity + rest, Due::Rest));
        let idle_ms = u64::try_from(self.shared.server.config.connection_max_idle_ms).ok();
        let ends = idle_ms.map(|idle_ms| {
            let idle = Duration::from_millis(idle_ms);
            (self.last_activity + idle, Due::End(End::Idle))
        });
        ends.into_iter().chain(rests).min_by_key(|(at, _)| *at)
    }

    /// Brings the timer forward if something is due before it fires. A timer that fires early is set anew then.
    fn arm(&mut self, timer: Pin<&mut Sleep>) {
        let now = self.last_activity.max(self.last_write);
        if let Some((deadline, _)) = self.next_deadline(now)
            && (deadline < timer.deadline() || timer.is_elapsed())
        {
            timer.reset(deadline);
        } else if timer.is_elapsed() {
            timer.reset(Instant::now() + Duration::from_secs(3600));
        }
    }

    fn overdue(&mut self, now: Instant) -> Option<End> {
        let (deadline, due) = self.next_deadline(now)?;
        match due {
            Due::End(end) if deadline <= now => Some(end),
            Due::Rest if deadline <= now => {
                self.framer.rest();
                None
            }
            Due::End(_) | Due::Rest => None,
        }
    }
}

/// Reads what comes next. A framer at rest takes memory only when something is there.
async fn receive(reader: &mut ReadHalf<'_>, framer: &mut Framer, room: usize) -> io::Result<usize> {
    while framer.is_at_rest() {
        reader.readable().await?;
        match reader.try_read_buf(&mut framer.read_buffer().limit(room)) {
            // Nothing was there: a wake-up may come for nothing.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => framer.rest(),
            read => return read,
        }
    }
    reader.read_buf(&mut framer.read_buffer().limit(room)).await
}

/// The line of the table that a frame names. A version that is not served is refused here if the rest of its header,
/// which we may not know, cannot be read: the log is to say what the client asked for.
fn served(frame: &Bytes) -> Result<&'static Line, Refusal> {
    let Some([key @ .., v0, v1]) = frame.first_chunk::<4>() else {
        return Err(WireError::HeaderTooShort { have: frame.len() }.into());
    };
    let (key, version) = (i16::from_be_bytes(*key), i16::from_be_bytes([*v0, *v1]));
    let line = api::line(key).ok_or(Refusal::Key(key))?;
    let readable = line.serves(version)
        || line.key == ApiKey::ApiVersions
        || RequestHead::parse(frame.clone()).is_ok();
    if readable {
        return Ok(line);
    }
    Err(Refusal::Version {
        api: line.name,
        version,
    })
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
