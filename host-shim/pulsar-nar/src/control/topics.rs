//! Topics, namespaces, brokers and policies, in the bridge's own bytes. It must not know how they are kept.
#![doc = include_str!("../../TOPICS.md")]

use handler_api::ApiError;
use handler_api::control::Nothing;
use handler_api::topics::{
    Broker, Cluster, CreateTopic, DeleteTopic, DescribeTopics, EnsureNamespace, ListBrokers,
    ListNamespaces, ListTopics, Namespace, NamespaceList, NamespacePolicies, PolicyOutcome,
    SetNamespacePolicies, SetTopicPolicies, Tenant, Topic, TopicChange, TopicList, TopicName,
    TopicNames, TopicPolicies, UpdateTopic,
};

use super::translate::{Translated, partitions_from, partitions_to};
use super::{Reader, Writer};

fn topic(reader: &mut Reader<'_>) -> Result<Topic, ApiError> {
    Ok(Topic {
        name: reader.text()?,
        found: reader.bool()?,
        partitions: partitions_from(reader.i32()?)?,
        properties: reader.map()?,
        created_ms: reader.i64()?,
    })
}

fn topics(reader: &mut Reader<'_>) -> Result<TopicList, ApiError> {
    let topics = reader.list(topic)?;
    Ok(TopicList { topics })
}

/// The cluster; also what an event about it holds.
pub(super) fn cluster(reader: &mut Reader<'_>) -> Result<Cluster, ApiError> {
    Ok(Cluster {
        name: reader.text()?,
        local_broker: reader.text()?,
        brokers: reader.list(|reader| {
            Ok(Broker {
                id: reader.text()?,
                protocol_data: reader.text()?,
            })
        })?,
    })
}

fn outcome(reader: &mut Reader<'_>) -> Result<PolicyOutcome, ApiError> {
    Ok(PolicyOutcome {
        applied: reader.bool()?,
        advice: reader.text()?,
    })
}

impl Translated for DescribeTopics {
    fn write(request: &TopicNames, writer: &mut Writer) -> Result<(), ApiError> {
        writer.texts(request.names.iter());
        Ok(())
    }

    fn read(_: &TopicNames, reader: &mut Reader<'_>) -> Result<TopicList, ApiError> {
        topics(reader)
    }
}

impl Translated for ListTopics {
    fn write(request: &Namespace, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.namespace);
        Ok(())
    }

    fn read(_: &Namespace, reader: &mut Reader<'_>) -> Result<TopicList, ApiError> {
        topics(reader)
    }
}

impl Translated for CreateTopic {
    fn write(request: &Topic, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.name)
            .i32(partitions_to(request.partitions)?)
            .map(&request.properties);
        Ok(())
    }

    fn read(_: &Topic, reader: &mut Reader<'_>) -> Result<Topic, ApiError> {
        topic(reader)
    }
}

impl Translated for UpdateTopic {
    fn write(request: &TopicChange, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.name)
            .i32(partitions_to(request.partitions)?)
            .map(&request.set)
            .texts(request.remove.iter())
            .map(&request.expect);
        Ok(())
    }

    fn read(_: &TopicChange, reader: &mut Reader<'_>) -> Result<Topic, ApiError> {
        topic(reader)
    }
}

impl Translated for DeleteTopic {
    fn write(request: &TopicName, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.name);
        Ok(())
    }

    fn read(_: &TopicName, _: &mut Reader<'_>) -> Result<Nothing, ApiError> {
        Ok(Nothing {})
    }
}

impl Translated for EnsureNamespace {
    fn write(request: &Namespace, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.namespace);
        Ok(())
    }

    fn read(_: &Namespace, _: &mut Reader<'_>) -> Result<Nothing, ApiError> {
        Ok(Nothing {})
    }
}

impl Translated for ListNamespaces {
    fn write(request: &Tenant, writer: &mut Writer) -> Result<(), ApiError> {
        writer.text(&request.tenant);
        Ok(())
    }

    fn read(_: &Tenant, reader: &mut Reader<'_>) -> Result<NamespaceList, ApiError> {
        let namespaces = reader.texts()?;
        Ok(NamespaceList { namespaces })
    }
}

impl Translated for ListBrokers {
    fn write(_: &Nothing, _: &mut Writer) -> Result<(), ApiError> {
        Ok(())
    }

    fn read(_: &Nothing, reader: &mut Reader<'_>) -> Result<Cluster, ApiError> {
        cluster(reader)
    }
}

impl Translated for SetTopicPolicies {
    fn write(request: &TopicPolicies, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.name)
            .optional_i64(request.retention_ms)
            .optional_i64(request.retention_bytes);
        Ok(())
    }

    fn read(_: &TopicPolicies, reader: &mut Reader<'_>) -> Result<PolicyOutcome, ApiError> {
        outcome(reader)
    }
}

impl Translated for SetNamespacePolicies {
    fn write(request: &NamespacePolicies, writer: &mut Writer) -> Result<(), ApiError> {
        writer
            .text(&request.namespace)
            .optional_i64(request.retention_ms)
            .optional_i64(request.retention_bytes)
            .optional_i64(request.message_ttl_ms)
            .optional_i64(request.compaction_threshold_bytes);
        Ok(())
    }

    fn read(_: &NamespacePolicies, reader: &mut Reader<'_>) -> Result<PolicyOutcome, ApiError> {
        outcome(reader)
    }
}
