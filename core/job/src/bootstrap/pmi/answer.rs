//! Answers of a PMI server: pairs of key and value.

use super::stream::refused;
use unipgas_base::Result;

/// The pairs of an answer.
#[derive(Debug)]
pub(super) struct Answer(Vec<(String, String)>);

impl Answer {
    /// A line of PMI-1: `key=value` with blanks between them.
    ///
    /// # Errors
    /// [`Error::Unreachable`](unipgas_base::Error::Unreachable) for a malformed line, or if `cmd` is not `wanted`.
    pub(crate) fn of_line(line: &str, wanted: &str) -> Result<Self> {
        let pairs = line.split_ascii_whitespace().map(pair).collect();
        Self::checked(pairs, line, wanted)
    }

    /// A message of PMI-2: `key=value;`, where `;;` in a value is one semicolon.
    ///
    /// # Errors
    /// As [`of_line`](Self::of_line).
    pub(crate) fn of_message(message: &str, wanted: &str) -> Result<Self> {
        Self::checked(messages_pairs(message), message, wanted)
    }

    fn checked(pairs: Option<Vec<(String, String)>>, text: &str, wanted: &str) -> Result<Self> {
        let other = || refused(&format!("{text:?} instead of {wanted}"));
        let answer = Answer(pairs.ok_or_else(other)?);
        if answer.get("cmd") != Some(wanted) {
            return Err(other());
        }
        Ok(answer)
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }

    pub fn number(&self, key: &str) -> Result<usize> {
        let number = self.get(key).and_then(|text| text.trim().parse().ok());
        number.ok_or_else(|| refused(&format!("no number for {key}")))
    }

    /// Errors: [`Error::Unreachable`](unipgas_base::Error::Unreachable) if the server reports an error.
    pub fn check(&self) -> Result<()> {
        match self.get("rc") {
            Some("0") | None => Ok(()),
            Some(code) => {
                let why = self.get("msg").or_else(|| self.get("errmsg"));
                let why = why.unwrap_or("without a word");
                Err(refused(&format!("error {code} ({why})")))
            }
        }
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    Some((key.to_owned(), value.to_owned()))
}

fn messages_pairs(message: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut text = String::new();
    let mut characters = message.chars().peekable();
    while let Some(character) = characters.next() {
        if character != ';' {
            text.push(character);
        } else if characters.next_if_eq(&';').is_some() {
            text.push(';');
        } else {
            pairs.push(pair(&text)?);
            text.clear();
        }
    }
    // A semicolon ends each pair, so text behind the last one is malformed.
    text.is_empty().then_some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_framings_are_read() {
        let line = Answer::of_line("cmd=a rc=0 value=x=y", "a").unwrap();
        assert_eq!(line.get("value"), Some("x=y"));
        let message = Answer::of_message("cmd=a;rc=0;value=x = y;;z;none=;", "a").unwrap();
        assert_eq!(message.get("value"), Some("x = y;z"));
        assert_eq!(message.get("none"), Some(""));
        assert_eq!(message.get("other"), None);
    }

    #[test]
    fn what_is_none_is_an_error() {
        for message in [
            "", "cmd", "cmd=a", "cmd=a;x", "cmd=a;x;", "cmd=b;", ";", "=;;",
        ] {
            assert!(Answer::of_message(message, "a").is_err(), "{message:?}");
        }
        for line in ["", "cmd", "cmd=b", "cmd=a x"] {
            assert!(Answer::of_line(line, "a").is_err(), "{line:?}");
        }
    }

    #[test]
    fn errors_say_why() {
        let why = |text| {
            let answer = Answer::of_message(text, "a").unwrap();
            answer.check().unwrap_err().to_string()
        };
        assert!(why("cmd=a;rc=3;errmsg=no room;").contains("3 (no room)"));
        assert!(why("cmd=a;rc=-1;").contains("-1 (without a word)"));
        assert_eq!(Answer::of_message("cmd=a;", "a").unwrap().check(), Ok(()));
    }
}
