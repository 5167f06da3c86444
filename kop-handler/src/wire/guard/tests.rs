//! What the guard refuses, by name. `tests/guard` holds the table against Kafka and the codec.

use super::*;

#[test]
fn four_bytes_cannot_ask_for_an_array_of_billions() {
    // Metadata: an array of topics is the first field. The codec alone would reserve 155 GB and abort.
    for count in [i32::MAX, 1, 1 << 24] {
        assert_eq!(
            check(3, 0, &count.to_be_bytes()),
            Err(GuardError::Short { field: "Topics" })
        );
    }
    let compact = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(
        check(3, 12, &compact),
        Err(GuardError::Short { field: "Topics" })
    );
}

#[test]
fn null_is_refused_where_the_version_has_none() {
    let null = (-1i32).to_be_bytes();
    assert_eq!(
        check(3, 0, &null),
        Err(GuardError::Length {
            field: "Topics",
            length: -1
        })
    );
    assert_eq!(check(3, 1, &null), Ok(()));
    assert_eq!(
        check(3, 1, &(-2i32).to_be_bytes()),
        Err(GuardError::Length {
            field: "Topics",
            length: -2
        })
    );
}

#[test]
fn empty_elements_are_bounded_by_the_size_of_the_body() {
    // ListGroups 4: a compact array of strings, each empty one a single byte.
    let body = |count: u32| {
        let mut out = Vec::new();
        crate::wire::put::unsigned_varint(&mut out, count + 1);
        out.extend(std::iter::repeat_n(1, count as usize));
        out.push(0);
        out
    };
    assert_eq!(check(16, 4, &body(FREE_ELEMENTS as u32)), Ok(()));
    let large = body(1_000_000);
    let limit = FREE_ELEMENTS + large.len() / BYTES_PER_ELEMENT;
    assert_eq!(
        check(16, 4, &large),
        Err(GuardError::TooManyElements { limit })
    );
}

#[test]
fn fifty_thousand_real_partitions_pass() {
    // Fetch 4: replica, wait, min, max, isolation, one topic "t" of 50,000 partitions of 16 bytes each.
    let mut body = vec![0; 17];
    body.extend([0, 0, 0, 1, 0, 1, b't']);
    body.extend(50_000i32.to_be_bytes());
    body.extend(vec![0; 50_000 * 16]);
    assert_eq!(check(1, 4, &body), Ok(()));
}

#[test]
fn a_tagged_field_must_fill_the_size_that_it_declares() {
    // Fetch 12 ends with its tagged fields; tag 0 is the cluster id, a compact string.
    let fetch = |tags: &[u8]| {
        let mut body = vec![0; 4 + 4 + 4 + 4 + 1 + 4 + 4];
        body.extend([1, 1, 1]);
        body.extend(tags);
        body
    };
    assert_eq!(check(1, 12, &fetch(&[0])), Ok(()));
    assert_eq!(check(1, 12, &fetch(&[1, 0, 2, 2, b'c'])), Ok(()));
    assert_eq!(
        check(1, 12, &fetch(&[1, 0, 3, 2, b'c', 0])),
        Err(GuardError::TagSize { field: "ClusterId" })
    );
    assert_eq!(
        check(1, 12, &fetch(&[1, 0, 1, 2, b'c'])),
        Err(GuardError::Short { field: "ClusterId" })
    );
    assert_eq!(
        check(1, 12, &fetch(&[1, 77, 2, 9, 9])),
        Ok(()),
        "unknown ones are skipped"
    );
    assert_eq!(
        check(1, 12, &fetch(&[0xff, 0xff, 0xff, 0xff, 0x10])),
        Err(GuardError::Varint)
    );
}

#[test]
fn versions_and_keys_without_a_shape_are_refused() {
    for (key, version) in [(3, 14), (3, -1), (4, 0), (93, 0), (-1, 0), (i16::MAX, 0)] {
        assert_eq!(
            check(key, version, &[]),
            Err(GuardError::NoShape { key, version })
        );
    }
}

#[test]
fn each_key_has_one_shape() {
    let mut keys: Vec<_> = shapes().filter(|s| s.key >= 0).map(|s| s.key).collect();
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count);
    for key in keys {
        assert!(BY_KEY[key as usize].is_some());
    }
}
