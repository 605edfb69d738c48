//! Log lines for programs that have no subscriber of `tracing`. UNIPGAS_LOG selects them. They go to standard error or to the file of
//! UNIPGAS_LOG_FILE, and to a sink of the program.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use unipgas_core::log::{LogSettings, Sink};
use unipgas_core::variables::wrong;
use unipgas_core::{Error, Result};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const MUST: &str = "must be off, error, warn, info, debug or trace, or targets with levels and commas between them: unipgas::route=debug,warn";

/// Starts the output of events. If the program has already installed a subscriber, this call changes nothing. Errors:
/// [`Error::InvalidArgument`].
pub fn listen(wishes: LogSettings) -> Result<()> {
    let lines = wishes.filter.as_deref().map(|filter| {
        let lines = Lines {
            who: wishes.who,
            to: wishes
                .file
                .map_or_else(|| To::Error(Instant::now()), To::File),
        };
        Ok::<_, Error>(lines.with_filter(parse(filter)?))
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
    // `tracing` takes a bare word that is not a level as a target, and would enable all of its events.
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

/// Destination of the lines.
enum To {
    /// Standard error. Each line has the seconds since this instant.
    Error(Instant),
    /// A file. Each line begins with the time of day, so the lines of several processes can be sorted.
    File(File),
}

/// `unipgas: rank 2 on node1: 0.001523 DEBUG unipgas::route: rank 0 is reached by shm`; the time in seconds. In a file
/// `2026-11-28T18:27:21.001523Z rank 2 on node1: DEBUG unipgas::route: rank 0 is reached by shm`.
/// The layer of `tracing_subscriber::fmt` panics in exit handlers, since they run after the thread-local memory is freed.
struct Lines {
    who: String,
    to: To,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        let (who, text) = (&self.who, text(event));
        // Write errors are ignored.
        let _ = match &self.to {
            To::Error(began) => {
                let time = began.elapsed().as_secs_f64();
                let line = format!("unipgas: {who}: {time:.6} {level:>5} {target}: {text}\n");
                std::io::stderr().write_all(line.as_bytes())
            }
            To::File(file) => {
                let mut time = String::new();
                let _ = SystemTime.format_time(&mut Writer::new(&mut time));
                let line = format!("{time} {who}: {level:>5} {target}: {text}\n");
                (&mut &*file).write_all(line.as_bytes())
            }
        };
    }
}

struct Forward(Sink);

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        (self.0.write)(*level, target, &text(event));
    }
}

/// An event's message, and ` name=value` for each field.
fn text(event: &Event<'_>) -> String {
    let mut text = Text::default();
    event.record(&mut text);
    text.message + &text.fields
}

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

    /// Logs when thread-local memory is freed.
    struct Last;

    impl Drop for Last {
        fn drop(&mut self) {
            tracing::info!(answer = 42, "the last word");
        }
    }

    #[test]
    fn events_are_written_while_a_thread_ends() {
        let path = std::env::temp_dir().join(format!("unipgas-log-{}", std::process::id()));
        let wishes = LogSettings {
            filter: Some("info".into()),
            file: Some(File::create(&path).expect("a file")),
            who: "rank 2 on node1".into(),
            sink: None,
        };
        listen(wishes).expect("a filter");
        thread_local!(static LAST: Last = const { Last });
        let thread = std::thread::spawn(|| {
            // `LAST` exists before the layer's own thread-local values, so it is dropped after them.
            LAST.with(|_| tracing::info!("the first word"));
        });
        thread.join().expect("no panic");
        let written = std::fs::read_to_string(&path).expect("the file");
        std::fs::remove_file(&path).expect("the file");
        let lines: Vec<_> = written
            .lines()
            .map(|line| line.split_once(' ').expect("a time").1)
            .collect();
        let head = "rank 2 on node1:  INFO unipgas_backends::log::tests: the";
        assert_eq!(
            lines,
            [
                format!("{head} first word"),
                format!("{head} last word answer=42")
            ]
        );
    }

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
