//! The `pulsar` crate as a client for tests: writes messages that it reads as JSON lines, and prints messages that it
//! reads as JSON lines. Its arguments and lines are those of `tests/clients/python/pulsar_client.py`.

use std::io::BufRead;
use std::time::Duration;

use futures::TryStreamExt;
use pulsar::compression::{
    Compression, CompressionLz4, CompressionSnappy, CompressionZlib, CompressionZstd,
};
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::producer::Message;
use pulsar::reader::Reader;
use pulsar::{ProducerOptions, Pulsar, TokioExecutor};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// How long the next message may take.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [url, "produce", topic, compression, batch] => {
            produce(url, topic, codec(compression)?, batch.parse()?).await
        }
        [url, "consume", topic, count] => consume(url, topic, count.parse()?).await,
        _ => Err("URL produce TOPIC COMPRESSION BATCH, or URL consume TOPIC COUNT".into()),
    }
}

fn codec(name: &str) -> Result<Compression, Failure> {
    Ok(match name {
        "none" => Compression::None,
        "lz4" => Compression::Lz4(CompressionLz4::default()),
        "zlib" => Compression::Zlib(CompressionZlib::default()),
        "zstd" => Compression::Zstd(CompressionZstd::default()),
        "snappy" => Compression::Snappy(CompressionSnappy::default()),
        _ => return Err(format!("no codec {name}").into()),
    })
}

fn message(line: &str) -> Result<Message, Failure> {
    let fields: Value = serde_json::from_str(line)?;
    let text = |name: &str| fields[name].as_str().map(str::to_owned);
    let properties = fields["properties"].as_object().into_iter().flatten();
    Ok(Message {
        payload: unhex(fields["data"].as_str().unwrap_or_default())?,
        properties: properties
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        partition_key: text("partition_key"),
        ordering_key: text("ordering_key").map(String::into_bytes),
        event_time: fields["event_timestamp"].as_u64(),
        ..Message::default()
    })
}

async fn produce(
    url: &str,
    topic: &str,
    compression: Compression,
    batch: u32,
) -> Result<(), Failure> {
    let pulsar: Pulsar<_> = Pulsar::builder(url, TokioExecutor).build().await?;
    let options = ProducerOptions {
        batch_size: (batch > 0).then_some(batch),
        compression: Some(compression),
        ..ProducerOptions::default()
    };
    let builder = pulsar.producer().with_topic(topic).with_options(options);
    let mut producer = builder.build().await?;
    let mut sent = Vec::new();
    for line in std::io::stdin().lock().lines() {
        sent.push(producer.send_non_blocking(message(&line?)?).await?);
    }
    if batch > 1 {
        producer.send_batch().await?;
    }
    for receipt in sent {
        let id = receipt.await?.message_id.ok_or("a receipt without id")?;
        println!("{}", json!(format!("({},{})", id.ledger_id, id.entry_id)));
    }
    Ok(())
}

async fn consume(url: &str, topic: &str, count: usize) -> Result<(), Failure> {
    let pulsar: Pulsar<_> = Pulsar::builder(url, TokioExecutor).build().await?;
    let options = ConsumerOptions::default().with_initial_position(InitialPosition::Earliest);
    let builder = pulsar.reader().with_topic(topic).with_options(options);
    let mut reader: Reader<Vec<u8>, _> = builder.into_reader().await?;
    for _ in 0..count {
        let next = tokio::time::timeout(LIMIT, reader.try_next()).await??;
        let next = next.ok_or("the reader has ended")?;
        let metadata = next.metadata();
        let ordering_key = metadata.ordering_key.as_deref().unwrap_or_default();
        let properties = metadata.properties.iter();
        let properties: serde_json::Map<String, Value> = properties
            .map(|it| (it.key.clone(), json!(it.value)))
            .collect();
        let line = json!({
            "data": hex(&next.payload.data),
            "partition_key": metadata.partition_key.as_deref().unwrap_or_default(),
            "ordering_key": String::from_utf8_lossy(ordering_key),
            "properties": properties,
            "event_timestamp": metadata.event_time.unwrap_or_default(),
            "topic": next.topic,
        });
        println!("{line}");
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Result<Vec<u8>, Failure> {
    let digits: Vec<char> = text.chars().collect();
    let pairs = digits.chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16));
    Ok(bytes.collect::<Result<_, _>>()?)
}
