//! What the library tells of its choices, for programs that have no subscriber of `tracing`: as lines on standard error, or in the file of UNIPGAS_LOG_FILE, where UNIPGAS_LOG asks for them, and to
//! who else writes lines.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use unipgas_core::log::{Sink, Wishes};
use unipgas_core::variables::wrong;
use unipgas_core::{Error, Result};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const MUST: &str = "must be off, error, warn, info, debug or trace, or targets with levels and commas between them: unipgas::route=debug,warn";

/// Has events written from now on. Where the program has a subscriber of its own, all is left to that one. Errors:
/// [`Error::InvalidArgument`].
pub fn listen(wishes: Wishes) -> Result<()> {
    let time = match &wishes.file {
        Some(_) => Time::OfDay,
        None => Time::Since(Instant::now()),
    };
    let writer = match wishes.file {
        Some(file) => BoxMakeWriter::new(Arc::new(file)),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    let lines = wishes.filter.as_deref().map(|filter| {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(writer)
            .with_ansi(false)
            .event_format(Lines {
                who: wishes.who,
                time,
                event: Format::default().without_time().with_ansi(false),
            });
        Ok::<_, Error>(layer.with_filter(parse(filter)?))
    });
    let sink = wishes
        .sink
        .map(|(level, sink)| Forward(sink).with_filter(LevelFilter::from_level(level)));
    let subscriber = tracing_subscriber::registry()
        .with(lines.transpose()?)
        .with(sink);
    let _ = subscriber.try_init();
    Ok(())
}

fn parse(filter: &str) -> Result<Targets> {
    let parts: Vec<&str> = filter.split(',').map(str::trim).collect();
    // A bare word that is no level would enable all events of a target with that name.
    let known = |part: &&str| {
        let level = LEVELS.contains(&&*part.to_ascii_lowercase());
        level || part.starts_with("unipgas") || part.find('=').is_some_and(|at| at > 0)
    };
    let parsed = match parts.iter().all(known) {
        true => parts.join(",").parse().ok(),
        false => None,
    };
    parsed.ok_or_else(|| wrong("UNIPGAS_LOG", filter, MUST))
}

/// Where a line has its time.
enum Time {
    /// In seconds since then, for a person in front of a terminal.
    Since(Instant),
    /// Of the day, first in the line: lines of several processes can be sorted.
    OfDay,
}

/// `unipgas: rank 2 on node1: 0.001523 DEBUG unipgas::route: rank 0 is reached by shm`; the time in seconds. In a file
/// `2026-11-28T18:27:21.001523Z rank 2 on node1: DEBUG unipgas::route: rank 0 is reached by shm`.
struct Lines {
    who: String,
    time: Time,
    event: Format<Full, ()>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match self.time {
            Time::Since(began) => {
                let time = began.elapsed().as_secs_f64();
                write!(line, "unipgas: {}: {time:.6} ", self.who)?;
            }
            Time::OfDay => {
                SystemTime.format_time(&mut line)?;
                write!(line, " {}: ", self.who)?;
            }
        }
        self.event.format_event(context, line, event)
    }
}

struct Forward(Sink);

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let line = text.message + &text.fields;
        (self.0.write)(*event.metadata().level(), event.metadata().target(), &line);
    }
}

/// An event's message, and ` name=value` for each field.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_refused() {
        let right = [
            "info",
            "OFF",
            "debug,unipgas::route=trace",
            "unipgas_verbs",
            "unipgas::memory=debug, warn",
        ];
        for filter in right {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for filter in ["chatty", "2", "debug,loud", "unipgas::route=loud", "=x="] {
            let error = parse(filter).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("UNIPGAS_LOG={filter}: must be off")),
                "{error}"
            );
        }
    }
}
