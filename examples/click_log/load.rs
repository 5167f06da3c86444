//! The job: its progress is the truth, partitions are divided among tasks, each task is renewed until all is loaded.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;

use crate::task::{self, Bounds, Handle, Pool};
use crate::{Arguments, Start, rate};

/// How long a watermark query may take.
const WATERMARKS: Duration = Duration::from_secs(30);
/// The pause before a task asks again whether there is something to load.
const RENEW: Duration = Duration::from_millis(200);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);

/// What the job has done so far.
#[derive(Debug, Default)]
struct Progress {
    /// Partition → the next offset to load.
    next: BTreeMap<i32, i64>,
    /// Partition → its end when last asked.
    end: BTreeMap<i32, i64>,
    rows: u64,
    errors: u64,
    bytes: u64,
    tasks: u64,
    commits: u64,
    failed_commits: u64,
    stop: bool,
    problem: Option<String>,
}

impl Progress {
    fn lag(&self) -> i64 {
        self.next
            .iter()
            .map(|(partition, next)| self.end.get(partition).unwrap_or(next) - next)
            .sum()
    }
}

/// What the job ended with.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) rows: u64,
    pub(crate) errors: u64,
    pub(crate) bytes: u64,
    pub(crate) tasks: u64,
    pub(crate) commits: u64,
    pub(crate) failed_commits: u64,
    pub(crate) elapsed: Duration,
}

/// A load job.
pub(crate) struct Job<'arguments> {
    arguments: &'arguments Arguments,
    pool: Pool,
    progress: Mutex<Progress>,
}

impl<'arguments> Job<'arguments> {
    /// Resolves where each partition begins, as the job's creation does.
    pub(crate) fn create(
        arguments: &'arguments Arguments,
        partitions: i32,
    ) -> Result<Self, String> {
        let pool = Pool::new(arguments.consumer());
        let handle = pool.take()?;
        let mut progress = Progress::default();
        for partition in 0..partitions {
            let (low, high) = watermarks(&handle, &arguments.topic, partition)?;
            let next = if arguments.start == Start::OffsetEnd {
                high
            } else {
                low
            };
            progress.next.insert(partition, next);
            progress.end.insert(partition, high);
        }
        pool.give_back(handle);
        Ok(Self {
            arguments,
            pool,
            progress: Mutex::new(progress),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the tasks until N rows are seen and nothing is left, or nothing comes any more.
    pub(crate) fn run(&self) -> Result<Loaded, String> {
        let start = Instant::now();
        let partitions: Vec<i32> = self.progress().next.keys().copied().collect();
        let tasks = self.arguments.tasks.clamp(1, partitions.len().max(1));
        let mut divided = vec![Vec::new(); tasks];
        for (number, partition) in partitions.into_iter().enumerate() {
            if let Some(share) = divided.get_mut(number % tasks) {
                share.push(partition);
            }
        }
        std::thread::scope(|scope| {
            for share in &divided {
                scope.spawn(|| {
                    if let Err(problem) = self.work(share) {
                        let mut progress = self.progress();
                        progress.problem.get_or_insert(problem);
                        progress.stop = true;
                    }
                });
            }
            self.watch(start);
        });
        let progress = self.progress();
        if let Some(problem) = &progress.problem {
            return Err(format!("the job is paused: {problem}"));
        }
        Ok(Loaded {
            rows: progress.rows,
            errors: progress.errors,
            bytes: progress.bytes,
            tasks: progress.tasks,
            commits: progress.commits,
            failed_commits: progress.failed_commits,
            elapsed: start.elapsed(),
        })
    }

    /// One task after another for the same partitions.
    fn work(&self, partitions: &[i32]) -> Result<(), String> {
        let arguments = self.arguments;
        let bounds = Bounds {
            interval: Duration::from_secs(arguments.max_batch_interval),
            rows: arguments.max_batch_rows,
            bytes: arguments.max_batch_size,
        };
        while !self.progress().stop {
            let from = self.look(partitions)?;
            if from.is_empty() {
                std::thread::sleep(RENEW);
                continue;
            }
            let batch = task::consume(&self.pool, &arguments.topic, &from, bounds)?;
            // Every partition of the task is committed; one that gave nothing, where it began.
            let mut next = from;
            next.extend(batch.next);
            {
                let mut progress = self.progress();
                for (&partition, &offset) in &next {
                    progress.next.insert(partition, offset);
                    let end = progress.end.entry(partition).or_default();
                    *end = offset.max(*end);
                }
                progress.rows += batch.rows;
                progress.errors += batch.errors;
                progress.bytes += batch.bytes;
                progress.tasks += 1;
                progress.commits += 1;
            }
            if !task::commit(&self.pool, &arguments.topic, &next)? {
                self.progress().failed_commits += 1;
            }
        }
        Ok(())
    }

    /// Where a task for these partitions starts; nothing if none of them has more than is loaded.
    fn look(&self, partitions: &[i32]) -> Result<BTreeMap<i32, i64>, String> {
        let mut from = BTreeMap::new();
        let mut more = false;
        for &partition in partitions {
            let (next, end) = {
                let progress = self.progress();
                let next = progress.next.get(&partition).copied().unwrap_or_default();
                (
                    next,
                    progress.end.get(&partition).copied().unwrap_or_default(),
                )
            };
            let mut end = end;
            if next >= end {
                let handle = self.pool.take()?;
                let found = watermarks(&handle, &self.arguments.topic, partition);
                self.pool.give_back(handle);
                end = found?.1;
                self.progress().end.insert(partition, end);
            }
            more |= next < end;
            from.insert(partition, next);
        }
        Ok(if more { from } else { BTreeMap::new() })
    }

    /// Tells the progress and says when to stop.
    fn watch(&self, start: Instant) {
        let (mut told, mut moved, mut seen) = (start, start, 0);
        loop {
            std::thread::sleep(RENEW);
            let mut progress = self.progress();
            let done = progress.rows + progress.errors;
            if done != seen {
                (seen, moved) = (done, Instant::now());
            }
            // A little longer than a task's pause, so that rows beyond N are noticed.
            let complete = done >= self.arguments.records
                && progress.lag() == 0
                && moved.elapsed() > RENEW * 3;
            let idle = moved.elapsed() > self.arguments.idle_limit();
            if told.elapsed() > TELL || complete || idle {
                told = Instant::now();
                tell(&progress, start.elapsed());
            }
            if idle {
                println!("nothing was loaded for {:?}", self.arguments.idle_limit());
            }
            if complete || idle {
                progress.stop = true;
            }
            if progress.stop {
                return;
            }
        }
    }
}

/// One line: rows, rate, and for each partition its progress and lag.
fn tell(progress: &Progress, elapsed: Duration) {
    let partitions: Vec<String> = progress
        .next
        .iter()
        .map(|(partition, next)| {
            let end = progress.end.get(partition).copied().unwrap_or(*next);
            format!("{partition}: {next}/{end} lag {}", (end - next).max(0))
        })
        .collect();
    println!(
        "loaded {} rows, {} errors, {} rows/s [{}]",
        progress.rows,
        progress.errors,
        rate(progress.rows, elapsed.as_secs_f64()),
        partitions.join(", ")
    );
}

/// The low and the high watermark of a partition.
fn watermarks(handle: &Handle, topic: &str, partition: i32) -> Result<(i64, i64), String> {
    let found = handle.fetch_watermarks(topic, partition, WATERMARKS);
    found.map_err(|error| format!("watermarks of {topic}-{partition}: {error}"))
}
