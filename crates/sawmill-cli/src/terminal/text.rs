//! Parsing and formatting of durations, sizes and times.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sawmill::Timestamp;
pub(crate) use sawmill::engine::humanize::{count, counted, rate, span};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The units of durations, in milliseconds.
const UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", SECOND), ("m", MINUTE), ("min", MINUTE), ("h", HOUR), ("d", DAY), ("w", 7 * DAY)];

/// Parses a duration: `30s`, `1h30m`, `250ms`. Not by the crate `humantime`, for which `1M` is a month, beside
/// `1m` for a minute.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let advice =
        || format!("{text:?} is no duration: write a number and a unit, like 250ms, 30s, 5m, 1h30m or 7d");
    let mut millis: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(advice());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(advice)?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let number: u64 = number.parse().map_err(|_| advice())?;
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(advice)?;
        let part = number.checked_mul(*factor).and_then(|part| millis.checked_add(part));
        millis = part.ok_or_else(|| format!("{text:?} is too long a time"))?;
        rest = tail;
    }
    Ok(Duration::from_millis(millis))
}

/// Parses a number of bytes: `4096`, `512K`, `512M`, `2G`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let advice = || format!("{text:?} is no size: write a number of bytes, or one with K, M or G, like 512M");
    let text_trimmed = text.trim().trim_end_matches("iB").trim_end_matches('B');
    let (number, factor) = match text_trimmed.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text_trimmed[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text_trimmed[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text_trimmed[..at], 1 << 30),
        _ => (text_trimmed, 1),
    };
    let number: u64 = number.parse().map_err(|_| advice())?;
    number.checked_mul(factor).ok_or_else(advice)
}

/// Parses an RFC 3339 time: `2026-11-15T08:00:00Z`.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    let advice =
        |_| format!("{text:?} is no time: write it like 2026-11-15T08:00:00Z or 2026-11-15T09:00:00+01:00");
    let time: jiff::Timestamp = text.trim().parse().map_err(advice)?;
    let millis = u64::try_from(time.as_millisecond());
    millis.map(Timestamp::from_millis).map_err(|_| format!("{text:?} is before 1970"))
}

/// Formats a time by RFC 3339, in milliseconds.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => jiff::Timestamp::MAX.to_string(),
    }
}

/// Formats a time by RFC 2822, as e-mails need it, in UTC.
#[cfg(feature = "deliver")]
pub(crate) fn rfc2822(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    // It fails only for years with more than four digits, which no timestamp has.
    jiff::fmt::rfc2822::to_string(&time.to_zoned(jiff::tz::TimeZone::UTC)).unwrap_or_default()
}

/// Formats a time and its distance from now: `2026-11-15 08:00:00 UTC (4 min ago)`.
pub(crate) fn date(time: Timestamp, now: Timestamp) -> String {
    let text = rfc3339(time);
    let (date, clock) = (&text[..10], &text[11..19]);
    format!("{date} {clock} UTC ({})", ago(time, now))
}

/// Formats the distance of a time from now: `4 min ago`, `in 2 h`, `now`.
pub(crate) fn ago(time: Timestamp, now: Timestamp) -> String {
    const NOW: Duration = Duration::from_secs(1);
    match (now.since(time), time.since(now)) {
        (past, ahead) if past < NOW && ahead < NOW => "now".to_owned(),
        (Duration::ZERO, ahead) => format!("in {}", span(ahead)),
        (past, _) => format!("{} ago", span(past)),
    }
}

/// Formats a size in bytes: `900 B`, `1.5 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut rest = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{rest:.1} {unit}") };
        }
        rest /= 1024.0;
    }
    format!("{rest:.1} TiB")
}

/// Encodes bytes in base64.
pub(crate) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Returns bytes as text if they are UTF-8, else in base64.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<&str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(base64(bytes))),
    }
}

/// Returns the beginning of some bytes on one line, with control characters escaped.
pub(crate) fn preview(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(most * 4)]);
    for (index, letter) in shown.chars().enumerate() {
        if index == most {
            text.push('…');
            break;
        }
        show_letter(&mut text, letter);
    }
    text
}

/// Escapes the control characters of a line, so that it can be shown on a terminal.
pub(crate) fn printable(line: &str) -> String {
    let mut text = String::new();
    line.chars().for_each(|letter| show_letter(&mut text, letter));
    text
}

fn show_letter(text: &mut String, letter: char) {
    match letter.is_control() && letter != '\t' {
        true => text.extend(letter.escape_default()),
        false => text.push(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("30s", 30_000),
            ("250ms", 250),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2 d", 172_800_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "30", "s", "1x", "-5s", "1.5h", "99999999999999999999s", "999999999999999w"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, size) in
            [("4096", 4096), ("512K", 512 << 10), ("512M", 512 << 20), ("2GiB", 2 << 30), ("1kB", 1024)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "M", "12X", "-1", "99999999999999999G"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_and_written() {
        let at = time("2026-11-15T09:00:00+01:00").unwrap();
        assert_eq!(rfc3339(at), "2026-11-15T08:00:00.000Z");
        assert_eq!(time(&rfc3339(at)), Ok(at));
        assert!(time("tomorrow").is_err() && time("1950-01-01T00:00:00Z").is_err());
        assert!(rfc3339(Timestamp::LATEST).starts_with("9999"));
    }

    #[test]
    fn people_read_these() {
        assert_eq!(
            (size(900), size(1536), size(5 << 20)),
            ("900 B".into(), "1.5 KiB".into(), "5.0 MiB".into())
        );
        let now = time("2026-11-15T08:00:00Z").unwrap();
        let (past, ahead) = (now - Duration::from_secs(245), now + Duration::from_secs(7_200));
        assert_eq!(date(past, now), "2026-11-15 07:55:55 UTC (4 min ago)");
        assert_eq!((ago(ahead, now), ago(now, now)), ("in 2 h".into(), "now".into()));
        assert_eq!(preview(b"a\nb\xff", 10), "a\\nb\u{fffd}");
        assert_eq!(printable("a\tb\u{1b}[31m"), "a\tb\\u{1b}[31m");
        assert_eq!(preview("äöüß".as_bytes(), 3), "äöü…");
    }
}
