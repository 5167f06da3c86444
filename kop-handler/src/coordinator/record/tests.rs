use super::*;

/// What Kafka 4.x writes for a commit of offset 42 with metadata "m", leader epoch 7, topic id 1…16.
#[test]
fn an_offset_is_written_as_kafka_writes_it() {
    let record = Record::Offset {
        group: "g".into(),
        topic: "t".into(),
        partition: 3,
        value: Some(OffsetValue {
            offset: 42,
            leader_epoch: 7,
            metadata: "m".into(),
            commit_ms: 1000,
            expire_ms: None,
            topic_id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        }),
    };
    let bytes = encode(&record);
    assert_eq!(bytes.key[..], *b"\0\x01\0\x01g\0\x01t\0\0\0\x03");
    let mut value =
        b"\0\x04\0\0\0\0\0\0\0\x2a\0\0\0\x07\x02m\0\0\0\0\0\0\x03\xe8\x01\0\x10".to_vec();
    value.extend(1..=16);
    assert_eq!(bytes.value.as_deref(), Some(&value[..]));
    assert_eq!(decode(&bytes.key, bytes.value.as_deref()), Ok(Some(record)));
}

#[test]
fn a_commit_with_its_own_retention_is_written_as_version_1() {
    let record = Record::Offset {
        group: "g".into(),
        topic: "t".into(),
        partition: 0,
        value: Some(OffsetValue {
            offset: 1,
            leader_epoch: -1,
            metadata: String::new(),
            commit_ms: 2,
            expire_ms: Some(3),
            topic_id: Uuid::nil(),
        }),
    };
    let bytes = encode(&record);
    assert_eq!(
        bytes.value.as_deref(),
        Some(&b"\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03"[..])
    );
    assert_eq!(decode(&bytes.key, bytes.value.as_deref()), Ok(Some(record)));
}

fn group() -> GroupValue {
    GroupValue {
        protocol_type: "consumer".into(),
        generation: 5,
        protocol: Some("range".into()),
        leader: Some("m1".into()),
        state_ms: 9,
        members: vec![MemberValue {
            member_id: "m1".into(),
            instance_id: Some("i".into()),
            client_id: "c".into(),
            client_host: "/h".into(),
            rebalance_timeout_ms: 6,
            session_timeout_ms: 7,
            subscription: Bytes::from_static(b"s"),
            assignment: Bytes::from_static(b"aa"),
        }],
    }
}

#[test]
fn a_group_is_written_as_kafka_writes_it() {
    let record = Record::Group {
        group: "g".into(),
        value: Some(group()),
    };
    let bytes = encode(&record);
    assert_eq!(bytes.key[..], *b"\0\x02\0\x01g");
    let expected = b"\0\x03\0\x08consumer\0\0\0\x05\0\x05range\0\x02m1\0\0\0\0\0\0\0\x09\0\0\0\x01\
        \0\x02m1\0\x01i\0\x01c\0\x02/h\0\0\0\x06\0\0\0\x07\0\0\0\x01s\0\0\0\x02aa";
    assert_eq!(bytes.value.as_deref(), Some(&expected[..]));
    assert_eq!(decode(&bytes.key, bytes.value.as_deref()), Ok(Some(record)));
}

#[test]
fn an_empty_group_is_written_with_nulls() {
    let record = Record::Group {
        group: "g".into(),
        value: Some(GroupValue {
            protocol: None,
            leader: None,
            members: Vec::new(),
            ..group()
        }),
    };
    let bytes = encode(&record);
    let expected = b"\0\x03\0\x08consumer\0\0\0\x05\xff\xff\xff\xff\0\0\0\0\0\0\0\x09\0\0\0\0";
    assert_eq!(bytes.value.as_deref(), Some(&expected[..]));
    assert_eq!(decode(&bytes.key, bytes.value.as_deref()), Ok(Some(record)));
}

#[test]
fn a_missing_value_is_a_deletion() {
    let record = Record::Group {
        group: "g".into(),
        value: None,
    };
    let bytes = encode(&record);
    assert_eq!(bytes.value, None);
    assert_eq!(decode(&bytes.key, None), Ok(Some(record)));
}

/// Older brokers wrote versions 0 to 3 of an offset, and 0 to 2 of a group; a later one may write flexible groups.
#[test]
fn values_of_every_version_are_read() {
    let key = b"\0\x01\0\x01g\0\x01t\0\0\0\0";
    let offset = |value: &[u8]| match decode(key, Some(value)) {
        Ok(Some(Record::Offset { value: Some(v), .. })) => (
            v.offset,
            v.leader_epoch,
            v.metadata,
            v.commit_ms,
            v.expire_ms,
        ),
        other => panic!("{other:?}"),
    };
    let at = b"\0\0\0\0\0\0\0\x01";
    let cat = |parts: &[&[u8]]| parts.concat();
    let m = || "m".to_owned();
    assert_eq!(
        offset(&cat(&[b"\0\0", at, b"\0\x01m", at])),
        (1, -1, m(), 1, None)
    );
    assert_eq!(
        offset(&cat(&[b"\0\x01", at, b"\0\x01m", at, at])),
        (1, -1, m(), 1, Some(1))
    );
    let never = [0xff; 8];
    assert_eq!(
        offset(&cat(&[b"\0\x01", at, b"\0\x01m", at, &never])),
        (1, -1, m(), 1, None)
    );
    assert_eq!(
        offset(&cat(&[b"\0\x02", at, b"\0\x01m", at])),
        (1, -1, m(), 1, None)
    );
    assert_eq!(
        offset(&cat(&[b"\0\x03", at, b"\0\0\0\x02", b"\0\x01m", at])),
        (1, 2, m(), 1, None)
    );
    // Version 4 with a tag of a later release.
    assert_eq!(
        offset(&cat(&[
            b"\0\x04",
            at,
            b"\0\0\0\x02",
            b"\x02m",
            at,
            b"\x01\x09\x02xy"
        ])),
        (1, 2, m(), 1, None)
    );

    let members = |value: &[u8]| match decode(b"\0\x02\0\x01g", Some(value)) {
        Ok(Some(Record::Group { value: Some(v), .. })) => (v.state_ms, v.members),
        other => panic!("{other:?}"),
    };
    let head = b"\0\x08consumer\0\0\0\x05\0\x05range\0\x02m1";
    let identity = b"\0\0\0\x01\0\x02m1\0\x01c\0\x02/h";
    let tail = b"\0\0\0\x07\0\0\0\x01s\0\0\0\x02aa";
    let (state_ms, v0) = members(&cat(&[b"\0\0", head, identity, tail]));
    assert_eq!(
        (
            state_ms,
            v0[0].rebalance_timeout_ms,
            v0[0].session_timeout_ms
        ),
        (-1, 7, 7)
    );
    let (_, v1) = members(&cat(&[b"\0\x01", head, identity, b"\0\0\0\x06", tail]));
    assert_eq!(
        (v1[0].rebalance_timeout_ms, v1[0].session_timeout_ms),
        (6, 7)
    );
    let (state_ms, v2) = members(&cat(&[b"\0\x02", head, at, identity, b"\0\0\0\x06", tail]));
    assert_eq!((state_ms, v2[0].instance_id.clone()), (1, None));
    let v4 = b"\0\x04\x09consumer\0\0\0\x05\x06range\x03m1\0\0\0\0\0\0\0\x09\x02\
        \x03m1\x02i\x02c\x03/h\0\0\0\x06\0\0\0\x07\x02s\x03aa\0\0";
    assert_eq!(members(v4), (9, group().members));
}

#[test]
fn keys_of_other_coordinators_are_skipped() {
    assert_eq!(decode(b"\0\x03\0\x01g", Some(b"whatever")), Ok(None));
    assert_eq!(decode(b"\0\x63", None), Ok(None));
}

#[test]
fn bytes_cut_anywhere_are_refused_not_guessed() {
    let whole = encode(&Record::Group {
        group: "g".into(),
        value: Some(group()),
    });
    let value = whole.value.unwrap();
    for end in 0..value.len() {
        assert!(
            decode(&whole.key, Some(&value[..end])).is_err(),
            "value of {end}"
        );
    }
    for end in 0..whole.key.len() {
        assert!(
            decode(&whole.key[..end], Some(&value)).is_err(),
            "key of {end}"
        );
    }
    let absurd =
        b"\0\x03\0\x08consumer\0\0\0\x05\xff\xff\xff\xff\0\0\0\0\0\0\0\x09\x7f\xff\xff\xff";
    assert_eq!(
        decode(&whole.key, Some(absurd)),
        Err(RecordError::Truncated)
    );
    assert_eq!(
        decode(&whole.key, Some(b"\0\x05")),
        Err(RecordError::UnknownVersion(5))
    );
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

#[test]
fn what_kafka_wrote_is_read_and_written_again_byte_for_byte() {
    let golden = include_str!("../testdata/kafka-4.3.1.txt");
    let mut records = Vec::new();
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').unwrap();
        let (key, value) = (unhex(key), (value != "-").then(|| unhex(value)));
        let record = decode(&key, value.as_deref()).unwrap().unwrap();
        let written = encode(&record);
        assert_eq!(written.key[..], key[..]);
        assert_eq!(written.value.as_deref(), value.as_deref());
        records.push(record);
    }
    assert_eq!(records.len(), 12);
    let Record::Group {
        value: Some(stable),
        ..
    } = &records[1]
    else {
        panic!("{:?}", records[1]);
    };
    assert_eq!(
        (stable.generation, stable.protocol.as_deref()),
        (1, Some("range"))
    );
    let member = &stable.members[0];
    assert_eq!(member.instance_id.as_deref(), Some("instance-1"));
    assert_eq!(
        (member.session_timeout_ms, member.rebalance_timeout_ms),
        (45_000, 300_000)
    );
    assert_eq!(member.client_host, "/127.0.0.1");
    let Record::Offset {
        topic,
        partition,
        value: Some(offset),
        ..
    } = &records[3]
    else {
        panic!("{:?}", records[3]);
    };
    assert_eq!(
        (
            topic.as_str(),
            *partition,
            offset.offset,
            offset.leader_epoch
        ),
        ("clicks", 0, 3, 0)
    );
    assert!(!offset.topic_id.is_nil());
}
