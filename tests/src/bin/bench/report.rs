//! Medians side by side, their ratios, and what the project wants them to be.

use std::collections::BTreeMap;
use std::path::Path;

use kop_tests::tools;
use serde_json::json;

use crate::Kind;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    Milliseconds,
    RecordsPerSecond,
    CpuPerRecord,
    P50,
    P99,
    PeakRss,
    PeakAnonymous,
}

impl Figure {
    fn unit(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::RecordsPerSecond => "records/s",
            Self::CpuPerRecord => "broker CPU µs/record",
            Self::P50 => "p50 ms",
            Self::P99 => "p99 ms",
            Self::PeakRss => "peak RSS MiB",
            Self::PeakAnonymous => "peak RssAnon MiB",
        }
    }

    fn digits(self) -> usize {
        match self {
            Self::RecordsPerSecond | Self::Milliseconds | Self::PeakRss | Self::PeakAnonymous => 0,
            Self::CpuPerRecord => 3,
            Self::P50 | Self::P99 => 2,
        }
    }
}

/// What ours divided by Kafka's has to be.
#[derive(Clone, Copy, Debug)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn of(row: &str, figure: Figure) -> Option<Self> {
        match figure {
            Figure::RecordsPerSecond => Some(Self::AtLeast(1.0)),
            Figure::CpuPerRecord if row.starts_with("consume") => Some(Self::AtMost(1.0)),
            Figure::CpuPerRecord => Some(Self::AtMost(0.5)),
            Figure::PeakRss => Some(Self::AtMost(0.2)),
            Figure::Milliseconds => Some(Self::AtMost(0.05)),
            Figure::P50 | Figure::P99 | Figure::PeakAnonymous => None,
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound:.2}"),
            Self::AtMost(bound) => format!("<= {bound:.2}"),
        }
    }
}

/// Every measurement, by row, figure and broker, in the order of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Results {
    measured: BTreeMap<(String, Figure), BTreeMap<Kind, Vec<f64>>>,
}

impl Results {
    pub(crate) fn add(&mut self, kind: Kind, row: &str, figure: Figure, value: f64) {
        println!("  {row}: {value:.*} {}", figure.digits(), figure.unit());
        self.measured
            .entry((row.to_owned(), figure))
            .or_default()
            .entry(kind)
            .or_default()
            .push(value);
    }

    /// Prints the table and writes it as `results.txt` and `results.json`; says whether every target is met.
    pub(crate) fn write(&self, out: &Path, records: u64, rounds: usize) -> Result<bool, String> {
        let mut text = format!(
            "Apache Kafka {} and ours, medians of {rounds} rounds, {records} records a run\n\n{:<48} {:<22} {:>12} {:>12} {:>8} {:>8}\n",
            tools::KAFKA,
            "",
            "",
            "Kafka",
            "ours",
            "ratio",
            "target"
        );
        let mut rows = Vec::new();
        let mut all_met = true;
        for ((row, figure), by_kind) in &self.measured {
            let kafka = by_kind.get(&Kind::Kafka).and_then(|values| median(values));
            let kop = by_kind.get(&Kind::Kop).and_then(|values| median(values));
            let ratio = kafka.zip(kop).map(|(kafka, kop)| kop / kafka);
            let target = Target::of(row, *figure);
            let met = target
                .zip(ratio)
                .map(|(target, ratio)| target.is_met(ratio));
            all_met &= met != Some(false);
            let shown = |value: Option<f64>| {
                value.map_or("-".to_owned(), |value| {
                    format!("{value:.*}", figure.digits())
                })
            };
            text.push_str(&format!(
                "{row:<48} {:<22} {:>12} {:>12} {:>8} {:>8} {}\n",
                figure.unit(),
                shown(kafka),
                shown(kop),
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                target.map(Target::text).unwrap_or_default(),
                match met {
                    Some(true) => "met",
                    Some(false) => "MISSED",
                    None => "",
                },
            ));
            rows.push(json!({
                "row": row, "unit": figure.unit(), "kafka": by_kind.get(&Kind::Kafka), "kop": by_kind.get(&Kind::Kop),
                "kafka_median": kafka, "kop_median": kop, "ratio": ratio, "target": target.map(Target::text), "met": met,
            }));
        }
        print!("\n{text}");
        let write = |name: &str, content: String| {
            let path = out.join(name);
            std::fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()))
        };
        write("results.txt", text)?;
        write(
            "results.json",
            format!(
                "{:#}\n",
                json!({ "rounds": rounds, "records": records, "rows": rows })
            ),
        )?;
        Ok(all_met)
    }
}

/// The middle value; of an even number of values the mean of the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_missed_target_is_told() {
        let out = tempfile::tempdir().expect("a directory");
        let mut results = Results::default();
        results.add(Kind::Kafka, "produce, x", Figure::CpuPerRecord, 0.2);
        results.add(Kind::Kop, "produce, x", Figure::CpuPerRecord, 0.09);
        assert!(results.write(out.path(), 1, 1).expect("written"));
        results.add(Kind::Kafka, "start-up", Figure::Milliseconds, 2_000.0);
        results.add(Kind::Kop, "start-up", Figure::Milliseconds, 101.0);
        assert!(!results.write(out.path(), 1, 1).expect("written"));
        let text = std::fs::read_to_string(out.path().join("results.txt")).expect("the table");
        assert!(text.contains("MISSED") && text.contains("met"), "{text}");
    }
}
