//! Cuts what a request wants of many partitions into parts that one decision each can hold, and joins the answers.
//!
//! Pure. It must not know what is done with a part.

use crate::coordinator::group::message::{TopicOf, TopicOutcome};

/// What one decision is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<P> {
    /// In the order of the request.
    pub(super) topics: Vec<TopicOf<P>>,
    /// Whether the first topic goes on with the last one of the part before.
    pub(super) goes_on: bool,
}

/// Cuts topics into parts of at most `max` partitions, in order. There is always one, so that a request for nothing is
/// checked too.
pub(super) fn split<P>(topics: Vec<TopicOf<P>>, max: usize) -> Vec<Part<P>> {
    let max = max.max(1);
    let mut parts = Vec::new();
    let mut part = Part {
        topics: Vec::new(),
        goes_on: false,
    };
    let mut room = max;
    for mut topic in topics {
        while topic.partitions.len() > room {
            let goes_on = room > 0;
            if goes_on {
                let rest = TopicOf {
                    topic: topic.topic.clone(),
                    topic_id: topic.topic_id,
                    partitions: topic.partitions.split_off(room),
                };
                part.topics.push(std::mem::replace(&mut topic, rest));
            }
            let next = Part {
                topics: Vec::new(),
                goes_on,
            };
            parts.push(std::mem::replace(&mut part, next));
            room = max;
        }
        room -= topic.partitions.len();
        part.topics.push(topic);
    }
    parts.push(part);
    parts
}

/// Adds the answer to a part to those of the parts before.
pub(super) fn join(answers: &mut Vec<TopicOutcome>, goes_on: bool, more: Vec<TopicOutcome>) {
    let mut more = more.into_iter();
    if goes_on && let (Some(last), Some(rest)) = (answers.last_mut(), more.next()) {
        last.partitions.extend(rest.partitions);
    }
    answers.extend(more);
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::coordinator::group::message::TopicPartitions;

    fn topics(counts: &[(&str, i32)]) -> Vec<TopicPartitions> {
        let topic = |(topic, count): &(&str, i32)| TopicPartitions {
            topic: (*topic).to_owned(),
            topic_id: Uuid::nil(),
            partitions: (0..*count).collect(),
        };
        counts.iter().map(topic).collect()
    }

    /// Success for everything.
    fn answer(part: &[TopicPartitions]) -> Vec<TopicOutcome> {
        let outcome = |topic: &TopicPartitions| TopicOutcome {
            topic: topic.topic.clone(),
            partitions: topic.partitions.iter().map(|n| (*n, None)).collect(),
        };
        part.iter().map(outcome).collect()
    }

    #[test]
    fn a_long_request_is_cut_and_joined_without_losing_or_reordering_anything() {
        // A topic may be named twice, also in a row, and without partitions.
        let named = [
            ("a", 5),
            ("b", 1),
            ("b", 2),
            ("none", 0),
            ("c", 7),
            ("last", 0),
        ];
        let whole = topics(&named);
        for max in 0..20 {
            let parts = split(whole.clone(), max);
            let most = max.max(1);
            let size = |part: &Part<i32>| -> usize {
                let topics = part.topics.iter();
                topics.map(|topic| topic.partitions.len()).sum()
            };
            assert!(parts.iter().all(|part| size(part) <= most), "max {max}");
            assert_eq!(parts.len(), 15_usize.div_ceil(most), "max {max}");
            let mut joined = Vec::new();
            for part in parts {
                join(&mut joined, part.goes_on, answer(&part.topics));
            }
            assert_eq!(joined, answer(&whole), "max {max}");
        }
    }

    #[test]
    fn a_request_for_nothing_is_one_part() {
        let parts = split(topics(&[]), 3);
        assert_eq!(parts.len(), 1);
        assert!(parts.iter().all(|part| part.topics.is_empty()));
    }
}
