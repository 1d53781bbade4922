//! Formats counts, rates and durations for people. Programs that print them share these functions, so that
//! one value always looks the same.

use std::time::Duration;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Formats a rate: `120/s`, `0.4/s`.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 9.95 => format!("{}/s", count(rate.round() as u64)),
        rate if rate > 0.0 => format!("{:.1}/s", rate.max(0.1)),
        _ => "0/s".to_owned(),
    }
}

/// Formats a duration in its largest unit or two: `3 ms`, `12 s`, `4 min`, `2 h 5 min`, `3 d`. Not by the crate
/// `humantime`, which writes all units: `2h 5m 13s 21ms`.
pub fn span(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match millis {
        0..SECOND => format!("{millis} ms"),
        SECOND..MINUTE => format!("{} s", millis / SECOND),
        MINUTE..HOUR => format!("{} min", millis / MINUTE),
        HOUR..DAY => match millis % HOUR / MINUTE {
            0 => format!("{} h", millis / HOUR),
            minutes => format!("{} h {minutes} min", millis / HOUR),
        },
        _ => format!("{} d", millis / DAY),
    }
}

/// Formats a count with its thousands separated: `12,400`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count and its noun: `1 message`, `12,400 messages`.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_these() {
        assert_eq!(span(Duration::from_millis(3)), "3 ms");
        assert_eq!(span(Duration::from_secs(245)), "4 min");
        assert_eq!(span(Duration::from_secs(7_500)), "2 h 5 min");
        assert_eq!(span(Duration::from_secs(3 * 86_400)), "3 d");
        assert_eq!([7, 999, 12_400, 1_000_000].map(count), ["7", "999", "12,400", "1,000,000"]);
        assert_eq!((counted(1, "message"), counted(2, "message")), ("1 message".into(), "2 messages".into()));
        let rates = [0.0, 0.04, 2.5, 9.96, 12_400.4].map(rate);
        assert_eq!(rates, ["0/s", "0.1/s", "2.5/s", "10/s", "12,400/s"]);
    }
}
