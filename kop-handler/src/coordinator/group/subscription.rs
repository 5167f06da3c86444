//! Just enough of the consumer protocol (`ConsumerProtocolSubscription`) to know which topics a member reads.
//!
//! The rest of the metadata is between the clients. It must not trust any length in it.

/// The topics of a subscription (every version begins alike); `None` if the bytes are no subscription.
pub(super) fn topics(metadata: &[u8]) -> Option<Vec<String>> {
    let mut rest = metadata;
    let version = i16::from_be_bytes(take(&mut rest)?);
    if version < 0 {
        return None;
    }
    let count = i32::from_be_bytes(take(&mut rest)?);
    let mut topics = Vec::new(); // a topic takes two bytes at least, so a false count runs out of bytes
    for _ in 0..count.max(0) {
        let len = usize::try_from(i16::from_be_bytes(take(&mut rest)?)).ok()?;
        let (name, tail) = rest.split_at_checked(len)?;
        topics.push(std::str::from_utf8(name).ok()?.to_owned());
        rest = tail;
    }
    Some(topics)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_at_checked(N)?;
    *bytes = rest;
    head.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::topics;

    #[test]
    fn a_subscription_names_its_topics() {
        let bytes = [
            0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c', 255, 255, 255, 255,
        ];
        assert_eq!(topics(&bytes), Some(vec!["a".into(), "bc".into()]));
    }

    #[test]
    fn bytes_that_are_no_subscription_name_nothing() {
        for bad in [
            &[][..],
            &[0],
            &[255, 255, 0, 0, 0, 0],
            &[0, 0, 127, 255, 255, 255],
            &[0, 0, 0, 0, 0, 1, 255, 255],
            &[0, 0, 0, 0, 0, 1, 0, 9, b'x'],
            &[0, 0, 0, 0, 0, 1, 0, 1, 0xff],
        ] {
            assert_eq!(topics(bad), None, "{bad:?}");
        }
    }
}
