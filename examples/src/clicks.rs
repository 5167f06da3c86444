//! Rows of the click log: `{"clickTime", "type", "id", "user"}`, about 115 bytes of JSON each.
//!
//! Row `n` is always the same bytes, so that whoever reads it back can tell what was written. It knows no client.

use std::io::Write;

use serde::Deserialize;

/// The kinds of a click, in turn.
const KINDS: [&str; 8] = [
    "click", "view", "search", "cart", "buy", "login", "share", "browse",
];
/// The time of row 0, in seconds since the epoch: 2022-05-31 17:00:00 UTC.
const FIRST_SECOND: u64 = 1_654_016_400;
/// How many rows share a second.
const PER_SECOND: u64 = 1_000;
/// How many users click.
const USERS: u64 = 1_000_000;
/// Room for one row.
const ROW_CAPACITY: usize = 160;

/// A row as the loader reads it.
#[derive(Debug, Deserialize)]
pub struct Click<'row> {
    /// `YYYY-MM-DD hh:mm:ss`.
    #[serde(rename = "clickTime", borrow)]
    pub time: &'row str,
    /// What was done.
    #[serde(rename = "type", borrow)]
    pub kind: &'row str,
    /// 32 hexadecimal digits in five groups.
    #[serde(borrow)]
    pub id: &'row str,
    /// `user_NNNNNN`.
    #[serde(borrow)]
    pub user: &'row str,
}

/// Writes rows one after another into a buffer of its own.
#[derive(Debug)]
pub struct Rows {
    row: Vec<u8>,
    second: u64,
    time: String,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            row: Vec::with_capacity(ROW_CAPACITY),
            second: u64::MAX,
            time: String::new(),
        }
    }
}

impl Rows {
    /// The JSON of row `number`.
    pub fn row(&mut self, number: u64) -> &[u8] {
        let second = FIRST_SECOND + number / PER_SECOND;
        if second != self.second {
            self.second = second;
            self.time = timestamp(second);
        }
        let kind = KINDS
            .get((number % KINDS.len() as u64) as usize)
            .copied()
            .unwrap_or("click");
        let (high, low) = (mix(number), mix(!number));
        self.row.clear();
        // Writing to a Vec cannot fail.
        let _ = write!(
            self.row,
            "{{\"clickTime\":\"{}\",\"type\":\"{kind}\",\"id\":\"{:08x}-{:04x}-{:04x}-{:04x}-{:012x}\",\"user\":\"user_{:06}\"}}",
            self.time,
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff,
            user(number),
        );
        &self.row
    }
}

/// The number of the user of row `number`.
pub fn user(number: u64) -> u64 {
    mix(number.wrapping_add(0x5eed)) % USERS
}

/// Spreads a number over 64 bits (the finalizer of splitmix64, a bijection).
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Seconds since the epoch as `YYYY-MM-DD hh:mm:ss` in UTC.
fn timestamp(second: u64) -> String {
    let (days, rest) = (second / 86_400, second % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Days since 1970-01-01 as year, month, day, counted in eras of 400 years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_about_115_bytes_of_json_with_the_four_fields() {
        let mut rows = Rows::default();
        let mut total = 0;
        for number in 0..10_000 {
            let row = rows.row(number).to_vec();
            total += row.len();
            let click: Click<'_> = serde_json::from_slice(&row).expect("a row is JSON");
            assert_eq!(click.id.len(), 36);
            assert_eq!(click.user, format!("user_{:06}", user(number)));
        }
        assert!(
            (110..=120).contains(&(total / 10_000)),
            "{} bytes on average",
            total / 10_000
        );
    }

    #[test]
    fn a_row_is_the_same_whenever_it_is_written() {
        let expected = br#"{"clickTime":"2022-05-31 17:00:00","type":"click","id":"#;
        let mut rows = Rows::default();
        let first = rows.row(0).to_vec();
        assert!(
            first.starts_with(expected),
            "{}",
            String::from_utf8_lossy(&first)
        );
        rows.row(123_456_789);
        assert_eq!(rows.row(0), first);
        assert_ne!(rows.row(8), first);
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00");
        assert_eq!(timestamp(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(timestamp(951_868_799), "2000-02-29 23:59:59");
        assert_eq!(timestamp(1_709_251_200), "2024-03-01 00:00:00");
    }
}
