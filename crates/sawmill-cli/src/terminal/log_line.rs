//! The format of a log line.

use std::fmt::{self, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use sawmill::engine::runtime::Env;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use crate::terminal::log::Destination;
use crate::terminal::text;

/// The prefix of the second and later lines of a value.
const INDENT: &str = "    | ";

pub(crate) struct LogLine {
    env: Env,
    destination: Destination,
}

impl LogLine {
    pub(crate) fn new(env: Env, destination: Destination) -> Self {
        Self { env, destination }
    }
}

impl<S, N> FormatEvent<S, N> for LogLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let (dim, loud) = match self.destination.has_colours() {
            true => (Style::new().dimmed(), level_style(*metadata.level())),
            false => (Style::new(), Style::new()),
        };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (time, level) = (text::rfc3339(self.env.wall()), metadata.level().as_str());
        write!(out, "{dim}{time}{dim:#} {loud}{level:<5}{loud:#} {}", fields.message)?;
        let (cause, rest) = fields.cause.split_once('\n').unwrap_or((&fields.cause, ""));
        if !cause.is_empty() {
            write!(out, ": {}", Plain(cause))?;
        }
        write!(out, "{dim}{}", fields.named)?;
        // An event inside a handler gets the message from its span, unless it names one itself.
        if metadata.fields().field("id").is_none() {
            for span in context.event_scope().into_iter().flatten() {
                if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                    write!(out, "  {}", fields.fields)?;
                }
            }
        }
        writeln!(out, "{dim:#}")?;
        for line in rest.lines() {
            writeln!(out, "{INDENT}{}", Plain(line))?;
        }
        Ok(())
    }
}

fn level_style(level: Level) -> Style {
    match level {
        Level::ERROR => AnsiColor::Red.on_default().bold(),
        Level::WARN => AnsiColor::Yellow.on_default().bold(),
        Level::INFO => AnsiColor::Green.on_default(),
        _ => Style::new().dimmed(),
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    /// The error or reason. It comes first, and may have several lines.
    cause: String,
    /// The other fields, as `  name=value`.
    named: String,
}

impl Fields {
    fn add(&mut self, name: &str, value: &str) {
        let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control() && letter != '"';
        match name {
            "message" => self.message = Plain(value).to_string(),
            "error" | "reason" => self.cause = value.trim_end().to_owned(),
            _ => {
                let gap = if self.named.is_empty() { "  " } else { " " };
                let _ = match !value.is_empty() && value.chars().all(is_plain) {
                    true => write!(self.named, "{gap}{name}={value}"),
                    false => write!(self.named, "{gap}{name}={value:?}"),
                };
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name().strip_suffix("_ms") {
            Some(name) => self.add(name, &text::span(Duration::from_millis(value)).replace(' ', "")),
            None => self.add(field.name(), &value.to_string()),
        }
    }
}

/// Foreign text on one line: control characters are escaped, so that it cannot move the cursor or fake log
/// lines.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter.is_control() && letter != '\t' {
            true => write!(f, "{}", letter.escape_default()),
            false => f.write_char(letter),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The log output, without the times.
    fn logged(log: impl FnOnce()) -> String {
        let kept = Kept::default();
        let line = LogLine::new(Env::system(), Destination::default());
        let writer = kept.clone();
        let layer = fmt::layer().event_format(line).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let without_time = |line: &str| match line.starts_with("20") {
            true => line.split_once(' ').unwrap().1.to_owned() + "\n",
            false => line.to_owned() + "\n",
        };
        text.lines().map(without_time).collect()
    }

    #[test]
    fn the_cause_is_read_first_and_the_facts_follow() {
        let said = logged(|| {
            tracing::warn!(
                topic = "emails",
                count = 3,
                next_ms = 7_500_000_u64,
                error = "exit status 1",
                "failed"
            );
        });
        assert_eq!(said, "WARN  failed: exit status 1  topic=emails count=3 next=2h5min\n");
        let said = logged(|| tracing::info!(name = "a b", none = "", "said"));
        assert_eq!(said, "INFO  said  name=\"a b\" none=\"\"\n");
    }

    #[test]
    fn last_words_cannot_pass_for_lines_of_the_log() {
        let error = "exit status 1\nTraceback\n2026-01-01T00:00:00Z ERROR forged\x1b[2K\n";
        let said = logged(|| tracing::error!(error, id = "7", "failed"));
        assert_eq!(
            said,
            "ERROR failed: exit status 1  id=7\n    | Traceback\n    | 2026-01-01T00:00:00Z ERROR forged\\u{1b}[2K\n"
        );
    }

    #[test]
    fn what_is_told_while_a_message_is_handled_names_it() {
        let said = logged(|| {
            let _inside = tracing::info_span!("sawmill.handle", topic = "emails", id = "7").entered();
            tracing::info!("slow");
            tracing::info!(id = "8", "own");
        });
        assert_eq!(said, "INFO  slow  topic=\"emails\" id=\"7\"\nINFO  own  id=8\n");
    }
}
