//! One broker being measured: its process, its processor time, its memory.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kop_tests::broker::{Broker, Flavour, Options};
use kop_tests::{rd, stat};

use crate::Kind;

/// How often memory is sampled.
const SAMPLE: Duration = Duration::from_millis(100);

pub(crate) struct Subject {
    broker: Mutex<Broker>,
    bootstrap: String,
    started_in: Duration,
    pid: u32,
    anonymous: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    sampler: Option<JoinHandle<()>>,
}

impl Subject {
    /// Starts a broker on an empty directory. Both acknowledge after the write, without fsync (Kafka's default).
    pub(crate) fn start(kind: Kind) -> Result<Self, String> {
        let flavour = if kind == Kind::Kafka {
            Flavour::Kafka
        } else {
            Flavour::Kop
        };
        let options = Options {
            flavour: Some(flavour),
            ..Options::default()
        }
        .set("journalSyncData", "false");
        let broker = Broker::try_with(options)?;
        let pid = broker.pid();
        let (anonymous, done) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let sampler = std::thread::spawn({
            let (anonymous, done) = (Arc::clone(&anonymous), Arc::clone(&done));
            move || {
                while !done.load(Ordering::Relaxed) {
                    if let Some(memory) = stat::memory(pid) {
                        anonymous.fetch_max(memory.anonymous, Ordering::Relaxed);
                    }
                    std::thread::sleep(SAMPLE);
                }
            }
        });
        Ok(Self {
            bootstrap: broker.bootstrap(),
            started_in: broker.started_in(),
            broker: Mutex::new(broker),
            pid,
            anonymous,
            done,
            sampler: Some(sampler),
        })
    }

    pub(crate) fn bootstrap(&self) -> String {
        self.bootstrap.clone()
    }

    pub(crate) fn started_in(&self) -> Duration {
        self.started_in
    }

    pub(crate) fn create_topic(&self, topic: &str, partitions: i32) {
        rd::create_topic(&self.bootstrap, topic, partitions);
    }

    /// Deletes a topic; what deleting costs is not measured.
    pub(crate) fn delete_topic(&self, topic: &str) {
        let _ =
            rd::block_on(rd::admin(&self.bootstrap).delete_topics(&[topic], &rd::admin_options()));
        std::thread::sleep(Duration::from_millis(500));
    }

    /// Runs `work` and tells how much processor time the broker used from when `work` calls its argument to its end.
    pub(crate) fn charged<T>(
        &self,
        work: impl FnOnce(&dyn Fn()) -> Result<T, String>,
    ) -> Result<(T, Duration), String> {
        let gone = || "the broker is gone".to_owned();
        let before = Mutex::new(stat::processor_time(self.pid).ok_or_else(gone)?);
        let start = || {
            if let (Some(now), Ok(mut before)) = (stat::processor_time(self.pid), before.lock()) {
                *before = now;
            }
        };
        let done = work(&start)?;
        let after = stat::processor_time(self.pid).ok_or_else(gone)?;
        let before = before.into_inner().unwrap_or(after);
        Ok((done, after.saturating_sub(before)))
    }

    /// The most that was resident, and the most of it that was not file pages, in bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let memory = stat::memory(self.pid).unwrap_or_default();
        (
            memory.peak,
            self.anonymous.load(Ordering::Relaxed).max(memory.anonymous),
        )
    }

    pub(crate) fn stop(mut self) -> Result<(), String> {
        self.end_sampling();
        let mut broker = self
            .broker
            .lock()
            .map_err(|_| "the broker's state is lost".to_owned())?;
        broker.stop().map(|_| ())
    }

    fn end_sampling(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(sampler) = self.sampler.take() {
            let _ = sampler.join();
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        self.end_sampling();
    }
}
