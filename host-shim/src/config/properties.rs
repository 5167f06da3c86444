//! Reads `key=value` files as `java.util.Properties` does, since that is how Pulsar reads its own.
//!
//! Comments (`#`, `!`), `=`, `:` or blanks between key and value, lines continued by a backslash, the escapes
//! `\t \n \r \f \uXXXX`. Two things differ: the file is UTF-8 (Java expects Latin-1 and escapes), and blanks at the end
//! of a value do not count (Pulsar trims them). It must not know any key.

use std::iter::Peekable;
use std::str::Chars;

/// One setting of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its key.
    pub key: String,
    /// Its value, without blanks around it.
    pub value: String,
    /// Line on which it begins, from 1.
    pub line: usize,
}

/// A file that cannot be read as settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct SyntaxError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what would be right.
    pub reason: &'static str,
}

/// Reads the text of a file; settings come in its order, repeated ones too.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, SyntaxError> {
    let mut properties = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((first, line)) = lines.next() {
        let mut logical = first.trim_start_matches(is_blank).to_owned();
        if logical.is_empty() || logical.starts_with(['#', '!']) {
            continue;
        }
        while ends_in_backslash(&logical) {
            logical.pop();
            match lines.next() {
                Some((next, _)) => logical.push_str(next.trim_start_matches(is_blank)),
                None => break,
            }
        }
        properties.push(split(&logical, line)?);
    }
    Ok(properties)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{c}')
}

/// Whether the last backslash is not itself escaped.
fn ends_in_backslash(line: &str) -> bool {
    let backslashes = line.len() - line.trim_end_matches('\\').len();
    backslashes % 2 == 1
}

fn split(logical: &str, line: usize) -> Result<Property, SyntaxError> {
    let mut chars = logical.chars().peekable();
    let mut key = String::new();
    while let Some(c) = chars.next_if(|c| !is_blank(*c) && !matches!(c, '=' | ':')) {
        push(&mut key, c, &mut chars, line)?;
    }
    while chars.next_if(|c| is_blank(*c)).is_some() {}
    if chars.next_if(|c| matches!(c, '=' | ':')).is_some() {
        while chars.next_if(|c| is_blank(*c)).is_some() {}
    }
    let mut value = String::new();
    while let Some(c) = chars.next() {
        push(&mut value, c, &mut chars, line)?;
    }
    Ok(Property {
        key,
        value: value.trim().to_owned(),
        line,
    })
}

/// Appends a character, or what an escape stands for.
fn push(
    text: &mut String,
    c: char,
    rest: &mut Peekable<Chars<'_>>,
    line: usize,
) -> Result<(), SyntaxError> {
    if c != '\\' {
        text.push(c);
        return Ok(());
    }
    match rest.next() {
        Some('t') => text.push('\t'),
        Some('n') => text.push('\n'),
        Some('r') => text.push('\r'),
        Some('f') => text.push('\u{c}'),
        Some('u') => text.push(unicode(rest, line)?),
        Some(other) => text.push(other),
        None => {}
    }
    Ok(())
}

/// `\uXXXX`, or two of them for a character beyond the first 65,536, as in UTF-16.
fn unicode(rest: &mut Peekable<Chars<'_>>, line: usize) -> Result<char, SyntaxError> {
    let error = |reason| SyntaxError { line, reason };
    let unit = |rest: &mut Peekable<Chars<'_>>| -> Result<u16, SyntaxError> {
        let mut number: u16 = 0;
        for _ in 0..4 {
            let digit = rest.next().and_then(|c| c.to_digit(16));
            let digit = digit.and_then(|digit| u16::try_from(digit).ok());
            number = number << 4 | digit.ok_or(error("\\u needs four hexadecimal digits"))?;
        }
        Ok(number)
    };
    let first = unit(rest)?;
    let mut units = vec![first];
    if (0xD800..0xDC00).contains(&first) {
        if rest.next() != Some('\\') || rest.next() != Some('u') {
            return Err(error("the first half of a \\u pair needs its second half"));
        }
        units.push(unit(rest)?);
    }
    char::decode_utf16(units)
        .next()
        .and_then(Result::ok)
        .ok_or(error("this \\u is no character"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let properties = parse(text).unwrap();
        let pairs: Vec<(&str, &str)> = properties
            .iter()
            .map(|p| (p.key.as_str(), p.value.as_str()))
            .collect();
        assert_eq!(pairs, expected, "{text:?}");
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        check("# a=b\n! c=d\n\n   \t# e=f\r\ng=h", &[("g", "h")]);
    }

    #[test]
    fn equals_colon_and_blanks_separate() {
        check(
            "a=1\nb : 2\nc 3\nd   =   4  \n  e\t=5\nf",
            &[
                ("a", "1"),
                ("b", "2"),
                ("c", "3"),
                ("d", "4"),
                ("e", "5"),
                ("f", ""),
            ],
        );
    }

    #[test]
    fn only_the_first_separator_counts() {
        check(
            "kafkaListeners=PLAINTEXT://127.0.0.1:9092\nurl=a=b=c\nx==y",
            &[
                ("kafkaListeners", "PLAINTEXT://127.0.0.1:9092"),
                ("url", "a=b=c"),
                ("x", "=y"),
            ],
        );
    }

    #[test]
    fn a_backslash_at_the_end_continues_a_line() {
        check(
            "a=one,\\\n   two,\\\n\tthree\nb=1",
            &[("a", "one,two,three"), ("b", "1")],
        );
        check("a=even\\\\\nb=1", &[("a", "even\\"), ("b", "1")]);
        check("a=last\\", &[("a", "last")]);
        check("a=x\\\n#no comment", &[("a", "x#no comment")]);
    }

    #[test]
    fn escapes_are_resolved() {
        check(
            r"a\=b\ c=\t1\n\u00e9\z\ud83d\ude00!",
            &[("a=b c", "1\n\u{e9}z\u{1f600}!")],
        );
    }

    #[test]
    fn a_comment_sign_inside_a_value_is_part_of_it() {
        check("a=1 # one", &[("a", "1 # one")]);
    }

    #[test]
    fn a_wrong_escape_names_its_line() {
        for wrong in [
            "a=1\nb=\\u12",
            "a=1\nb=\\ud83dx",
            "a=1\nb=\\ude00",
            "a=1\nb=\\uzzzz",
        ] {
            assert_eq!(parse(wrong).unwrap_err().line, 2, "{wrong}");
        }
    }

    #[test]
    fn lines_are_counted_through_continuations() {
        let properties = parse("a=1\\\n2\\\n3\n\nb=4").unwrap();
        let lines: Vec<usize> = properties.iter().map(|p| p.line).collect();
        assert_eq!(lines, [1, 5]);
    }
}
