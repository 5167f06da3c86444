//! Entries of KoP for tests: `tests/data/kop`, one line of JSON per entry.

use bytes::Bytes;

/// One entry.
pub(crate) struct Stored {
    /// Index of its last message.
    pub(crate) index: i64,
    /// Without the broker entry metadata, as hosts hand it over.
    pub(crate) entry: Bytes,
}

pub(crate) fn unbase64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    super::base64::decode(&mut bytes, text.as_bytes()).expect("base64");
    bytes
}

/// Without the broker entry metadata, which the host strips; with the index that it held.
pub(crate) fn strip(stored: &Bytes) -> (Bytes, i64) {
    assert_eq!(&stored[..2], [0x0e, 0x02]);
    let size = u32::from_be_bytes(stored[2..6].try_into().expect("four bytes")) as usize;
    assert_eq!(stored[6], 0x10, "the field `index`");
    let index = stored[7..6 + size]
        .iter()
        .rev()
        .fold(0u64, |index, byte| (index << 7) | u64::from(byte & 0x7f));
    (
        stored.slice(6 + size..),
        i64::try_from(index).expect("an index"),
    )
}

/// The entries of a partition.
pub(crate) fn entries(lines: &str) -> Vec<Stored> {
    lines
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            let bytes = unbase64(line["bytes"].as_str().expect("base64"));
            let (entry, index) = strip(&bytes.into());
            Stored { index, entry }
        })
        .collect()
}

/// What was kept of one format.
pub(crate) struct Kop {
    pub(crate) expected: serde_json::Value,
    pub(crate) partitions: [Vec<Stored>; 2],
}

/// All three, by name.
pub(crate) fn all() -> [(&'static str, Kop); 3] {
    macro_rules! kop {
        ($name:literal) => {{
            const DATA: [&str; 3] = [
                include_str!(concat!("../../tests/data/kop/", $name, "/expected.json")),
                include_str!(concat!(
                    "../../tests/data/kop/",
                    $name,
                    "/fix-",
                    $name,
                    "-partition-0.jsonl"
                )),
                include_str!(concat!(
                    "../../tests/data/kop/",
                    $name,
                    "/fix-",
                    $name,
                    "-partition-1.jsonl"
                )),
            ];
            (
                $name,
                Kop {
                    expected: serde_json::from_str(DATA[0]).expect("JSON"),
                    partitions: [entries(DATA[1]), entries(DATA[2])],
                },
            )
        }};
    }
    [kop!("pulsar"), kop!("kafka"), kop!("mixed_kafka")]
}
