//! The records as KoP writes and reads them, so that its brokers and ours can take over a group from each other.
//!
//! KoP knows key versions 0 to 2 and value versions 0 and 1, and spells topics by Pulsar's full names. Readers of KoP's
//! age take the fields that they know and leave what follows: there we put what version 1 has no place for.
//!
//! ```text
//! offset: version 1 of the value | 1 | flags | i32 leader epoch | 16 bytes topic id
//! group:  version 1 of the value | 1 | i64 time of the state | instance id of each member (nullable string)
//! ```
//!
//! It must not know in what entries the records lie.

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::{
    GroupValue, KeyValue, OffsetValue, Reader, Record, RecordError, put_i32_len, put_nullable,
    put_string, read_group, read_offset,
};

/// Version of both values.
const VALUE: i16 = 1;
/// First byte of what follows the fields of version 1.
const APPENDED: u8 = 1;
/// Flag of an offset: its client asked for the expiry that it has.
const OWN_EXPIRY: u8 = 1;

/// Encodes a record. `topic` is the full name of an offset's topic; offsets expire `retention_ms` after their commit to
/// KoP's eyes, unless their client asked for something else.
#[must_use]
pub fn encode(record: &Record, topic: &str, retention_ms: i64) -> KeyValue {
    let mut key = BytesMut::new();
    let value = match record {
        Record::Offset {
            group,
            partition,
            value,
            ..
        } => {
            key.put_i16(super::OFFSET_KEY);
            put_string(&mut key, group);
            put_string(&mut key, topic);
            key.put_i32(*partition);
            value
                .as_ref()
                .map(|value| encode_offset(value, retention_ms))
        }
        Record::Group { group, value } => {
            key.put_i16(super::GROUP_KEY);
            put_string(&mut key, group);
            value.as_ref().map(encode_group)
        }
    };
    KeyValue {
        key: key.freeze(),
        value,
    }
}

fn encode_offset(value: &OffsetValue, retention_ms: i64) -> Bytes {
    let expire_ms = value
        .expire_ms
        .unwrap_or_else(|| value.commit_ms.saturating_add(retention_ms));
    let mut out = BytesMut::new();
    out.put_i16(VALUE);
    out.put_i64(value.offset);
    put_string(&mut out, &value.metadata);
    out.put_i64(value.commit_ms);
    out.put_i64(expire_ms);
    out.put_u8(APPENDED);
    out.put_u8(value.expire_ms.map_or(0, |_| OWN_EXPIRY));
    out.put_i32(value.leader_epoch);
    out.put_slice(value.topic_id.as_bytes());
    out.freeze()
}

fn encode_group(value: &GroupValue) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(VALUE);
    put_string(&mut out, &value.protocol_type);
    out.put_i32(value.generation);
    put_nullable(&mut out, value.protocol.as_deref());
    put_nullable(&mut out, value.leader.as_deref());
    put_i32_len(&mut out, value.members.len());
    for member in &value.members {
        put_string(&mut out, &member.member_id);
        put_string(&mut out, &member.client_id);
        put_string(&mut out, &member.client_host);
        out.put_i32(member.rebalance_timeout_ms);
        out.put_i32(member.session_timeout_ms);
        put_i32_len(&mut out, member.subscription.len());
        out.put_slice(&member.subscription);
        put_i32_len(&mut out, member.assignment.len());
        out.put_slice(&member.assignment);
    }
    out.put_u8(APPENDED);
    out.put_i64(value.state_ms);
    for member in &value.members {
        put_nullable(&mut out, member.instance_id.as_deref());
    }
    out.freeze()
}

/// Decodes a record of KoP's or ours. `kafka_name` is what Kafka clients call a topic, given its full name. `Ok(None)`
/// is a record of another kind.
///
/// # Errors
/// [`RecordError`] if the bytes are none that either writes.
pub fn decode(
    key: &[u8],
    value: Option<&[u8]>,
    kafka_name: impl Fn(&str) -> Option<String>,
) -> Result<Option<Record>, RecordError> {
    let mut key = Reader(key);
    match key.i16()? {
        0 | super::OFFSET_KEY => {
            let group = key.string()?;
            let topic = key.string()?;
            let partition = key.i32()?;
            let value = value.map(decode_offset).transpose()?;
            Ok(Some(Record::Offset {
                group,
                topic: kafka_name(&topic).unwrap_or(topic),
                partition,
                value,
            }))
        }
        super::GROUP_KEY => {
            let group = key.string()?;
            let value = value.map(decode_group).transpose()?;
            Ok(Some(Record::Group { group, value }))
        }
        _ => Ok(None),
    }
}

fn decode_offset(bytes: &[u8]) -> Result<OffsetValue, RecordError> {
    let mut reader = Reader(bytes);
    let mut value = read_offset(&mut reader)?;
    // KoP writes an expiry with each commit, which stands for the broker's retention at that time. Ours is counted anew,
    // from when the group is empty, so that a group does not lose its offsets because nothing came for it to read.
    let expire_ms = value.expire_ms.take();
    if let Ok((flags, leader_epoch, topic_id)) = appended_to_offset(&mut reader) {
        value.expire_ms = expire_ms.filter(|_| flags & OWN_EXPIRY != 0);
        value.leader_epoch = leader_epoch;
        value.topic_id = topic_id;
    }
    Ok(value)
}

fn appended_to_offset(reader: &mut Reader<'_>) -> Result<(u8, i32, Uuid), RecordError> {
    let [APPENDED, flags] = reader.array()? else {
        return Err(RecordError::UnknownVersion(VALUE));
    };
    Ok((flags, reader.i32()?, Uuid::from_bytes(reader.array()?)))
}

fn decode_group(bytes: &[u8]) -> Result<GroupValue, RecordError> {
    let mut reader = Reader(bytes);
    let mut value = read_group(&mut reader)?;
    if let Ok((state_ms, instances)) = appended_to_group(&mut reader, value.members.len()) {
        value.state_ms = state_ms;
        for (member, instance_id) in value.members.iter_mut().zip(instances) {
            member.instance_id = instance_id;
        }
    }
    Ok(value)
}

fn appended_to_group(
    reader: &mut Reader<'_>,
    members: usize,
) -> Result<(i64, Vec<Option<String>>), RecordError> {
    let [APPENDED] = reader.array()? else {
        return Err(RecordError::UnknownVersion(VALUE));
    };
    let state_ms = reader.i64()?;
    let instances = (0..members).map(|_| reader.nullable());
    Ok((state_ms, instances.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::record::MemberValue;

    const FULL: &str = "persistent://public/default/t";
    const RETENTION_MS: i64 = 1000;

    fn short(full: &str) -> Option<String> {
        full.strip_prefix("persistent://public/default/")
            .map(str::to_owned)
    }

    fn offset(expire_ms: Option<i64>) -> Record {
        Record::Offset {
            group: "g".to_owned(),
            topic: "t".to_owned(),
            partition: 3,
            value: Some(OffsetValue {
                offset: 42,
                leader_epoch: 7,
                metadata: "zażółć".to_owned(),
                commit_ms: 5,
                expire_ms,
                topic_id: Uuid::from_u128(9),
            }),
        }
    }

    fn group() -> Record {
        let member = |name: &str, instance: Option<&str>| MemberValue {
            member_id: name.to_owned(),
            instance_id: instance.map(str::to_owned),
            client_id: "c".to_owned(),
            client_host: "/h".to_owned(),
            rebalance_timeout_ms: 10,
            session_timeout_ms: 20,
            subscription: Bytes::from_static(b"s"),
            assignment: Bytes::from_static(b"a"),
        };
        Record::Group {
            group: "g".to_owned(),
            value: Some(GroupValue {
                protocol_type: "consumer".to_owned(),
                generation: 4,
                protocol: Some("range".to_owned()),
                leader: Some("m1".to_owned()),
                state_ms: 77,
                members: vec![member("m1", Some("i1")), member("m2", None)],
            }),
        }
    }

    fn there_and_back(record: &Record) -> Record {
        let stored = encode(record, FULL, RETENTION_MS);
        decode(&stored.key, stored.value.as_deref(), short)
            .expect("ours")
            .expect("a record")
    }

    #[test]
    fn what_is_written_is_read() {
        let deleted = |record: Record| match record {
            Record::Offset {
                group,
                topic,
                partition,
                ..
            } => Record::Offset {
                group,
                topic,
                partition,
                value: None,
            },
            Record::Group { group, .. } => Record::Group { group, value: None },
        };
        for record in [offset(None), offset(Some(99)), group()] {
            assert_eq!(there_and_back(&record), record);
            let record = deleted(record);
            assert_eq!(there_and_back(&record), record);
        }
    }

    #[test]
    fn a_reader_of_version_1_finds_kops_fields() {
        let stored = encode(&offset(None), FULL, RETENTION_MS);
        assert!(
            stored
                .key
                .windows(FULL.len())
                .any(|name| name == FULL.as_bytes())
        );
        let value = stored.value.expect("a value");
        assert_eq!(value[..2], [0, 1]);
        let read = super::super::decode_offset(&value).expect("version 1");
        assert_eq!((read.offset, read.commit_ms), (42, 5));
        assert_eq!(read.expire_ms, Some(5 + RETENTION_MS));
        let value = encode(&group(), FULL, RETENTION_MS).value.expect("a value");
        assert_eq!(value[..2], [0, 1]);
        let read = super::super::decode_group(&value).expect("version 1");
        assert_eq!((read.generation, read.members.len()), (4, 2));
        assert_eq!(read.members[0].assignment, "a");
    }

    #[test]
    fn damaged_or_missing_additions_leave_what_kop_knows() {
        let stored = encode(&offset(Some(99)), FULL, RETENTION_MS);
        let value = stored.value.expect("a value");
        for cut in 1..=22 {
            let value = &value[..value.len() - cut];
            let Ok(Some(Record::Offset { value, .. })) = decode(&stored.key, Some(value), short)
            else {
                panic!("cut by {cut}");
            };
            let value = value.expect("a value");
            assert_eq!((value.offset, value.leader_epoch), (42, -1));
            assert_eq!(value.expire_ms, None, "the broker's retention counts");
        }
        proptest::proptest!(|(key: Vec<u8>, value: Vec<u8>)| {
            let _ = decode(&key, Some(&value), short);
        });
    }

    #[test]
    fn a_topic_that_kafka_clients_are_not_shown_keeps_its_full_name() {
        let stored = encode(&offset(None), "persistent://other/ns/t", RETENTION_MS);
        let read = decode(&stored.key, None, short).expect("ours");
        assert!(
            matches!(read, Some(Record::Offset { topic, .. }) if topic == "persistent://other/ns/t")
        );
    }
}
