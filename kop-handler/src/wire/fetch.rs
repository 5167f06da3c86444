//! The reply to Fetch, versions 4 to 18, written by own code so that record batches go out as the segments they came in.
//!
//! The codec would copy every batch into its output. The layout here is checked against the codec's byte for byte. It
//! must not know where records come from, nor what is in them.
//!
//! Version notes: 5 log start offset; 7 sessions (KIP-227); 11 preferred replica (KIP-392); 12 flexible, diverging
//! epoch, current leader (KIP-595); 13 topic ids instead of names (KIP-516); 16 node endpoints (KIP-951).

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::FetchResponse;
use kafka_protocol::protocol::{HeaderVersion, Message, StrBytes};
use uuid::Uuid;

use super::WireError;
use super::put::{unsigned_varint, unsigned_varint_len};
use super::response::{Encoded, header_len, put_header};

/// First version with compact lengths and tagged fields.
const FLEXIBLE: i16 = 12;
/// First version that names topics by id.
const BY_TOPIC_ID: i16 = 13;
/// First version with endpoints of leaders.
const WITH_ENDPOINTS: i16 = 16;

/// A whole reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchReply {
    /// How long the request was throttled, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request; versions below 7 have no place for it.
    pub error_code: i16,
    /// Fetch session, 0 for none; versions below 7 have no place for it.
    pub session_id: i32,
    /// The topics, in the order of the request.
    pub topics: Vec<FetchTopic>,
    /// Where the leaders named in partitions listen; sent from version 16.
    pub node_endpoints: Vec<FetchEndpoint>,
}

/// One topic of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchTopic {
    /// Name, sent up to version 12.
    pub name: StrBytes,
    /// Id, sent from version 13.
    pub topic_id: Uuid,
    /// The partitions, in the order of the request.
    pub partitions: Vec<FetchPartition>,
}

/// One partition of a reply. `Default` is an answer without error, records or known offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchPartition {
    /// Partition number.
    pub partition: i32,
    /// Kafka error code, 0 for none.
    pub error_code: i16,
    /// End of what is durable, or −1.
    pub high_watermark: i64,
    /// End of what is decided, or −1.
    pub last_stable_offset: i64,
    /// First offset that can be read, or −1; sent from version 5.
    pub log_start_offset: i64,
    /// Largest epoch and its end offset before which logs agree; sent from version 12.
    pub diverging_epoch: Option<(i32, i64)>,
    /// Id and epoch of the leader; sent from version 12.
    pub current_leader: Option<(i32, i32)>,
    /// Producer id and first offset of each aborted transaction in the records; `None` for a reader of uncommitted records.
    pub aborted: Option<Vec<(i64, i64)>>,
    /// Replica to read from next, −1 for the leader; versions below 11 have no place for it.
    pub preferred_read_replica: i32,
    /// Whole record batches, in pieces. Sent as empty, never as null: librdkafka refuses a null.
    pub records: Vec<Bytes>,
}

impl Default for FetchPartition {
    fn default() -> Self {
        Self {
            partition: 0,
            error_code: 0,
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            diverging_epoch: None,
            current_leader: None,
            aborted: None,
            preferred_read_replica: -1,
            records: Vec::new(),
        }
    }
}

impl FetchPartition {
    /// Length of the records in bytes.
    #[must_use]
    pub fn records_len(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

/// Where a broker listens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchEndpoint {
    /// Broker id.
    pub node_id: i32,
    /// Host name or address.
    pub host: StrBytes,
    /// Port.
    pub port: i32,
    /// Rack, if it has one.
    pub rack: Option<StrBytes>,
}

impl FetchReply {
    /// Encodes the reply in `version` with length field and response header. Records are shared, not copied.
    ///
    /// # Errors
    /// [`WireError::Reply`] for a version that does not exist, a session or preferred replica in a version without
    /// a place for it, or a string that is too long; [`WireError::ReplyTooLarge`].
    pub fn encode(&self, correlation_id: i32, version: i16) -> Result<Encoded, WireError> {
        self.check(version)?;
        let header_version = FetchResponse::header_version(version);
        let body: usize = self.body_len(version);
        let length = header_len(header_version) + body;
        let records: usize = self.partitions().map(FetchPartition::records_len).sum();
        let mut out = Writer {
            version,
            own: BytesMut::with_capacity(4 + length - records),
            segments: Vec::with_capacity(
                2 + 3 * self
                    .topics
                    .iter()
                    .map(|t| t.partitions.len())
                    .sum::<usize>(),
            ),
        };
        put_header(&mut out.own, length, correlation_id, header_version)?;
        self.write(&mut out);
        let encoded = out.finish();
        if encoded.len() != 4 + length {
            return Err(refused(version, "its size was computed wrong"));
        }
        Ok(encoded)
    }

    /// Bytes of the reply's body in `version`, for size limits (KIP-74 counts records only; this counts all).
    #[must_use]
    pub fn body_len(&self, version: i16) -> usize {
        let flexible = version >= FLEXIBLE;
        let mut len = 4 + if version >= 7 { 6 } else { 0 } + count_len(flexible, self.topics.len());
        for topic in &self.topics {
            len += if version >= BY_TOPIC_ID {
                16
            } else {
                string_len(flexible, &topic.name)
            };
            len += count_len(flexible, topic.partitions.len());
            len += topic
                .partitions
                .iter()
                .map(|p| p.len(version))
                .sum::<usize>();
            len += usize::from(flexible);
        }
        if flexible {
            len += 1;
        }
        if self.sends_endpoints(version) {
            let content = endpoints_len(&self.node_endpoints);
            len += 1 + unsigned_varint_len(content as u32) + content;
        }
        len
    }

    fn partitions(&self) -> impl Iterator<Item = &FetchPartition> {
        self.topics.iter().flat_map(|t| &t.partitions)
    }

    fn sends_endpoints(&self, version: i16) -> bool {
        version >= WITH_ENDPOINTS && !self.node_endpoints.is_empty()
    }

    fn check(&self, version: i16) -> Result<(), WireError> {
        let range = FetchResponse::VERSIONS;
        if !(range.min..=range.max).contains(&version) {
            return Err(refused(version, "no such version"));
        }
        if version < 7 && self.session_id != 0 {
            return Err(refused(version, "session_id is set"));
        }
        if version < 11 && self.partitions().any(|p| p.preferred_read_replica != -1) {
            return Err(refused(version, "preferred_read_replica is set"));
        }
        if version < FLEXIBLE && self.topics.iter().any(|t| t.name.len() > i16::MAX as usize) {
            return Err(refused(version, "a topic name is too long"));
        }
        Ok(())
    }

    fn write(&self, out: &mut Writer) {
        out.own.put_i32(self.throttle_time_ms);
        if out.version >= 7 {
            out.own.put_i16(self.error_code);
            out.own.put_i32(self.session_id);
        }
        out.count(self.topics.len());
        for topic in &self.topics {
            if out.version >= BY_TOPIC_ID {
                out.own.put_slice(topic.topic_id.as_bytes());
            } else {
                out.string(&topic.name);
            }
            out.count(topic.partitions.len());
            for partition in &topic.partitions {
                partition.write(out);
            }
            out.no_tags();
        }
        if self.sends_endpoints(out.version) {
            out.own.put_slice(&[1, 0]);
            unsigned_varint(&mut out.own, endpoints_len(&self.node_endpoints) as u32);
            out.count(self.node_endpoints.len());
            for endpoint in &self.node_endpoints {
                endpoint.write(out);
            }
        } else {
            out.no_tags();
        }
    }
}

impl FetchPartition {
    fn len(&self, version: i16) -> usize {
        let flexible = version >= FLEXIBLE;
        let aborted = self.aborted.as_ref().map_or(0, Vec::len);
        let mut len =
            4 + 2 + 8 + 8 + if version >= 5 { 8 } else { 0 } + if version >= 11 { 4 } else { 0 };
        len += if self.aborted.is_some() {
            count_len(flexible, aborted)
        } else {
            count_len(flexible, 0)
        };
        len += aborted * (16 + usize::from(flexible));
        let records = self.records_len();
        len += count_len(flexible, records) + records;
        if flexible {
            // Tag count, then tag number, size, content and its own tag count.
            len += 1;
            len += if self.diverging_epoch.is_some() {
                2 + 13
            } else {
                0
            };
            len += if self.current_leader.is_some() {
                2 + 9
            } else {
                0
            };
        }
        len
    }

    fn write(&self, out: &mut Writer) {
        out.own.put_i32(self.partition);
        out.own.put_i16(self.error_code);
        out.own.put_i64(self.high_watermark);
        out.own.put_i64(self.last_stable_offset);
        if out.version >= 5 {
            out.own.put_i64(self.log_start_offset);
        }
        match &self.aborted {
            None => out.null(),
            Some(aborted) => {
                out.count(aborted.len());
                for (producer_id, first_offset) in aborted {
                    out.own.put_i64(*producer_id);
                    out.own.put_i64(*first_offset);
                    out.no_tags();
                }
            }
        }
        if out.version >= 11 {
            out.own.put_i32(self.preferred_read_replica);
        }
        out.count(self.records_len());
        out.share(&self.records);
        self.write_tags(out);
    }

    fn write_tags(&self, out: &mut Writer) {
        if out.version < FLEXIBLE {
            return;
        }
        out.own.put_u8(
            u8::from(self.diverging_epoch.is_some()) + u8::from(self.current_leader.is_some()),
        );
        if let Some((epoch, end_offset)) = self.diverging_epoch {
            out.own.put_slice(&[0, 13]);
            out.own.put_i32(epoch);
            out.own.put_i64(end_offset);
            out.own.put_u8(0);
        }
        if let Some((leader_id, leader_epoch)) = self.current_leader {
            out.own.put_slice(&[1, 9]);
            out.own.put_i32(leader_id);
            out.own.put_i32(leader_epoch);
            out.own.put_u8(0);
        }
    }
}

impl FetchEndpoint {
    fn write(&self, out: &mut Writer) {
        out.own.put_i32(self.node_id);
        out.string(&self.host);
        out.own.put_i32(self.port);
        match &self.rack {
            Some(rack) => out.string(rack),
            None => out.null(),
        }
        out.no_tags();
    }
}

fn endpoints_len(endpoints: &[FetchEndpoint]) -> usize {
    let each = endpoints.iter().map(|e| {
        4 + string_len(true, &e.host) + 4 + e.rack.as_ref().map_or(1, |r| string_len(true, r)) + 1
    });
    count_len(true, endpoints.len()) + each.sum::<usize>()
}

fn count_len(flexible: bool, count: usize) -> usize {
    if flexible {
        unsigned_varint_len(count as u32 + 1)
    } else {
        4
    }
}

fn string_len(flexible: bool, string: &str) -> usize {
    string.len()
        + if flexible {
            unsigned_varint_len(string.len() as u32 + 1)
        } else {
            2
        }
}

fn refused(version: i16, reason: &str) -> WireError {
    WireError::Reply {
        version,
        reason: reason.to_owned(),
    }
}

/// Own bytes, cut where shared segments come in between.
struct Writer {
    version: i16,
    own: BytesMut,
    segments: Vec<Bytes>,
}

impl Writer {
    /// Length of an array or of records.
    fn count(&mut self, count: usize) {
        if self.version >= FLEXIBLE {
            unsigned_varint(&mut self.own, count as u32 + 1);
        } else {
            self.own.put_i32(count as i32);
        }
    }

    /// A null array or string. Only strings of flexible versions come here.
    fn null(&mut self) {
        if self.version >= FLEXIBLE {
            self.own.put_u8(0);
        } else {
            self.own.put_i32(-1);
        }
    }

    fn string(&mut self, string: &str) {
        if self.version >= FLEXIBLE {
            unsigned_varint(&mut self.own, string.len() as u32 + 1);
        } else {
            self.own.put_i16(string.len() as i16);
        }
        self.own.put_slice(string.as_bytes());
    }

    fn no_tags(&mut self) {
        if self.version >= FLEXIBLE {
            self.own.put_u8(0);
        }
    }

    fn share(&mut self, segments: &[Bytes]) {
        if segments.iter().all(Bytes::is_empty) {
            return;
        }
        self.cut();
        self.segments
            .extend(segments.iter().filter(|s| !s.is_empty()).cloned());
    }

    fn cut(&mut self) {
        if !self.own.is_empty() {
            self.segments.push(self.own.split().freeze());
        }
    }

    fn finish(mut self) -> Encoded {
        self.cut();
        Encoded {
            segments: self.segments,
        }
    }
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
