//! What `kop inspect` prints: the content of a data directory at rest, line by line.
//!
//! It reads while no broker runs and changes nothing. The store below knows no Kafka; to show batches, groups and
//! offsets as people know them, `kafka` reads the few public layouts that are needed for it.

mod kafka;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::embedded::offline::{Found, Offline};
use crate::embedded::{LedgerRow, ManagedRow, OpenError};

/// Longest value or key that is printed, in bytes.
const PRINTED_BYTES: usize = 120;

/// What to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The directory, its topics and their partitions.
    Topics,
    /// All ledgers, and files that nothing refers to.
    Ledgers,
    /// Entries of one topic or partition.
    Entries {
        /// A full name, or the part behind the namespace of `public/default`.
        topic: String,
        /// First index.
        from: i64,
        /// Most entries.
        limit: u64,
        /// Whether the records of each batch are printed too.
        records: bool,
    },
    /// Groups and their committed offsets.
    Groups,
    /// The metadata store.
    Metadata,
}

/// A data directory, and what of it to print.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The directory.
    pub data_dir: PathBuf,
    /// Which part.
    pub what: What,
}

/// Why nothing, or not everything, was printed.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The directory cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// There is no such topic.
    #[error("there is no topic {0} in this data directory")]
    UnknownTopic(String),
    /// A ledger file or the output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Prints; answers how many damaged places were met.
pub fn inspect(inspection: &Inspection, out: &mut dyn Write) -> Result<u64, InspectError> {
    let store = Offline::open(&inspection.data_dir)?;
    let mut printer = Printer {
        store: &store,
        out,
        damaged: 0,
    };
    match &inspection.what {
        What::Topics => printer.topics()?,
        What::Ledgers => printer.ledgers()?,
        What::Entries {
            topic,
            from,
            limit,
            records,
        } => printer.entries(topic, *from, *limit, *records)?,
        What::Groups => printer.groups()?,
        What::Metadata => printer.metadata()?,
    }
    Ok(printer.damaged)
}

struct Printer<'a> {
    store: &'a Offline,
    out: &'a mut dyn Write,
    damaged: u64,
}

impl Printer<'_> {
    fn topics(&mut self) -> Result<(), InspectError> {
        let store = self.store;
        writeln!(
            self.out,
            "format {} starts {} last stop {}",
            store.format,
            store.starts,
            if store.clean { "clean" } else { "unclean" }
        )?;
        for namespace in &store.namespaces {
            writeln!(self.out, "namespace {namespace}")?;
        }
        for (name, topic) in &store.topics {
            writeln!(
                self.out,
                "topic {name} partitions {} created {}",
                topic.partitions,
                timestamp(topic.created_ms)
            )?;
            let properties: BTreeMap<_, _> = topic.properties.iter().collect();
            for (key, value) in properties {
                writeln!(self.out, "  property {key}={}", printable(value.as_bytes()))?;
            }
            for (owner, row) in owners(store, topic.id) {
                let mut next = row.next_index;
                let mut bytes = 0;
                for ledger in &row.ledgers {
                    // Of an unsealed one the catalog only knows what was noted last.
                    let ledger = if ledger.sealed {
                        *ledger
                    } else {
                        self.measure(ledger)?.0
                    };
                    next = next.max(ledger.last_index + 1);
                    bytes += ledger.bytes;
                }
                writeln!(
                    self.out,
                    "  partition {} start {} next {next} ledgers {} bytes {bytes}",
                    store.name(*owner),
                    row.start_index,
                    row.ledgers.len()
                )?;
                let properties: BTreeMap<_, _> = row.properties.iter().collect();
                for (key, value) in properties {
                    writeln!(
                        self.out,
                        "    property {key}={}",
                        printable(value.as_bytes())
                    )?;
                }
                for (_, _, cursor, index) in store
                    .cursors
                    .iter()
                    .filter(|cursor| (cursor.0, cursor.1) == *owner)
                {
                    writeln!(self.out, "    cursor {cursor} done-up-to {index}")?;
                }
            }
        }
        Ok(())
    }

    fn ledgers(&mut self) -> Result<(), InspectError> {
        for (owner, managed) in &self.store.managed {
            for row in &managed.ledgers {
                let path = self.store.path(row.key());
                let state = if row.sealed { "sealed" } else { "open" };
                let (found, notes) = self.measure(row)?;
                writeln!(
                    self.out,
                    "ledger {} of {} {state} indexes {}..={} entries {} bytes {} replaced {} created {} file {}{notes}",
                    row.id,
                    self.store.name(*owner),
                    row.first_index,
                    found.last_index,
                    found.entries,
                    found.bytes,
                    row.replaced,
                    timestamp(row.created_ms),
                    path.display()
                )?;
            }
        }
        for key in &self.store.waste {
            writeln!(self.out, "waste {}", self.store.path(*key).display())?;
        }
        Ok(())
    }

    /// What a ledger's file really holds, and what is wrong with it.
    fn measure(&mut self, row: &LedgerRow) -> Result<(LedgerRow, String), InspectError> {
        let mut found = *row;
        let mut notes = String::new();
        let mut records = match self.store.records(row) {
            Ok(records) => records,
            Err(error) => {
                self.damaged += 1;
                return Ok((found, format!(" UNREADABLE {error}")));
            }
        };
        (found.entries, found.bytes) = (0, 0);
        while let Some(step) = records.step()? {
            match step {
                Found::Entry { header, .. } => {
                    found.entries += 1;
                    found.bytes += u64::from(header.length);
                    found.last_index = found.last_index.max(header.index);
                }
                Found::Footer { .. } => {}
                Found::Damage { offset, bytes } => {
                    self.damaged += 1;
                    let _ = write!(notes, " DAMAGED {bytes} bytes at {offset}");
                }
                Found::Torn { offset, bytes } => {
                    let _ = write!(notes, " torn end of {bytes} bytes at {offset}");
                }
            }
        }
        Ok((found, notes))
    }

    /// Managed ledgers of a topic, or the one that is named.
    fn named(&self, name: &str) -> Result<Vec<(u64, u32)>, InspectError> {
        let full = if name.contains("://") {
            name.to_owned()
        } else {
            format!("persistent://public/default/{name}")
        };
        let owners: Vec<_> = self
            .store
            .managed
            .keys()
            .filter(|owner| {
                let managed = self.store.name(**owner);
                managed == full
                    || self
                        .store
                        .topics
                        .get(&full)
                        .is_some_and(|topic| topic.id == owner.0)
            })
            .copied()
            .collect();
        let known = self.store.topics.contains_key(&full) || !owners.is_empty();
        if known {
            Ok(owners)
        } else {
            Err(InspectError::UnknownTopic(full))
        }
    }

    fn entries(
        &mut self,
        topic: &str,
        from: i64,
        limit: u64,
        with_records: bool,
    ) -> Result<(), InspectError> {
        let mut left = limit;
        for owner in self.named(topic)? {
            writeln!(self.out, "partition {}", self.store.name(owner))?;
            let Some(managed) = self.store.managed.get(&owner) else {
                continue;
            };
            for row in &managed.ledgers {
                if row.sealed && row.last_index < from {
                    continue;
                }
                let mut records = self.store.records(row)?;
                while let Some(found) = records.step()? {
                    match found {
                        Found::Entry { header, .. } if header.index < from => {}
                        Found::Entry { .. } if left == 0 => return Ok(()),
                        Found::Entry {
                            offset,
                            header,
                            payload,
                        } => {
                            left -= 1;
                            writeln!(
                                self.out,
                                "entry {}:{} indexes {}..={} bytes {} appended {} offset {offset} checksum ok",
                                row.id,
                                header.entry,
                                header.base(),
                                header.index,
                                header.length,
                                timestamp(header.time_ms)
                            )?;
                            for line in kafka::describe(&payload, header.base(), with_records) {
                                writeln!(self.out, "  {line}")?;
                            }
                        }
                        Found::Footer { offset, bytes } => {
                            writeln!(
                                self.out,
                                "footer of ledger {} bytes {bytes} offset {offset}",
                                row.id
                            )?;
                        }
                        Found::Damage { offset, bytes } => {
                            self.damaged += 1;
                            writeln!(
                                self.out,
                                "DAMAGED {bytes} bytes at offset {offset} of {}",
                                self.store.path(row.key()).display()
                            )?;
                        }
                        Found::Torn { offset, bytes } => {
                            writeln!(
                                self.out,
                                "torn end of {bytes} bytes at offset {offset} of {}: the next start cuts it off",
                                self.store.path(row.key()).display()
                            )?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn groups(&mut self) -> Result<(), InspectError> {
        let mut state = kafka::Groups::default();
        let logs: Vec<u64> = self
            .store
            .topics
            .iter()
            .filter(|(name, _)| name.ends_with("/__consumer_offsets"))
            .map(|(_, topic)| topic.id)
            .collect();
        for (owner, managed) in &self.store.managed {
            if !logs.contains(&owner.0) {
                continue;
            }
            for row in &managed.ledgers {
                let mut records = self.store.records(row)?;
                while let Some(found) = records.step()? {
                    match found {
                        Found::Entry { payload, .. } => state.replay(&payload),
                        Found::Damage { .. } => self.damaged += 1,
                        Found::Footer { .. } | Found::Torn { .. } => {}
                    }
                }
            }
        }
        for line in state.lines() {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn metadata(&mut self) -> Result<(), InspectError> {
        for (path, version, value) in &self.store.values {
            writeln!(
                self.out,
                "value {path} version {version} {}",
                printable(value)
            )?;
        }
        Ok(())
    }
}

/// The managed ledgers of a topic that were ever written.
fn owners(
    store: &Offline,
    topic: u64,
) -> impl Iterator<Item = (&(u64, u32), &ManagedRow)> + use<'_> {
    store.managed.range((topic, 0)..=(topic, u32::MAX))
}

/// Text as it is, other bytes escaped, long ones cut.
fn printable(bytes: &[u8]) -> String {
    let shown = bytes.get(..PRINTED_BYTES).unwrap_or(bytes);
    let whole = match std::str::from_utf8(shown) {
        Ok(text) => Some(text),
        // Cut within a character.
        Err(error) if error.error_len().is_none() && shown.len() < bytes.len() => shown
            .get(..error.valid_up_to())
            .and_then(|shown| std::str::from_utf8(shown).ok()),
        Err(_) => None,
    };
    let mut text = String::new();
    match whole {
        Some(shown) => {
            for character in shown.chars() {
                if character.is_control() {
                    text.extend(character.escape_default());
                } else {
                    text.push(character);
                }
            }
        }
        None => text = shown.escape_ascii().to_string(),
    }
    if shown.len() < bytes.len() {
        let _ = write!(text, "… ({} bytes)", bytes.len());
    }
    text
}

/// Milliseconds since the epoch as UTC, to the millisecond.
fn timestamp(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Civil date from days, counted in eras of 400 years from 0000-03-01.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}.{millis:03}Z",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests;
