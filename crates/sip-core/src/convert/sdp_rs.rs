//! Session descriptions of sdp-rs 0.2.
//!
//! sdp-rs passes over lines that it does not expect, without an error, and
//! prints some that it knows in another form. So what it has read is printed
//! and compared line by line, and what it is to write is read again.

use ::sdp_rs::SessionDescription;

use crate::sdp::Sdp;

/// A line that the other side cannot hold. Nothing was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line number {line}")]
pub struct LineNotRepresentable {
    /// Its number, counted from 0; of a line that is missing, where it should
    /// stand.
    pub line: usize,
}

impl TryFrom<&Sdp<'_>> for SessionDescription {
    type Error = LineNotRepresentable;

    /// # Errors
    /// The first line that sdp-rs does not hold as it stands.
    fn try_from(sdp: &Sdp<'_>) -> Result<Self, LineNotRepresentable> {
        let mut text = String::with_capacity(sdp.as_bytes().len() + 2);
        for (line, bytes) in lines(sdp.as_bytes()).enumerate() {
            text += std::str::from_utf8(bytes).map_err(|_| LineNotRepresentable { line })?;
            text += "\r\n";
        }
        // Its own errors name no line.
        let description = Self::try_from(&*text)
            .map_err(|_| LineNotRepresentable { line: first_unreadable(&text) })?;
        match first_difference(&text, &printed(&description)) {
            Some(line) => Err(LineNotRepresentable { line }),
            None => Ok(description),
        }
    }
}

/// Writes a description of sdp-rs as text, for [`Sdp::parse`].
///
/// # Errors
/// The first line that, read again, would say something else.
pub fn from_sdp_rs(description: &SessionDescription) -> Result<Vec<u8>, LineNotRepresentable> {
    let text = printed(description);
    let again = SessionDescription::try_from(&*text)
        .map_err(|_| LineNotRepresentable { line: first_unreadable(&text) })?;
    if again != *description {
        let line = first_difference(&text, &printed(&again)).unwrap_or(0);
        return Err(LineNotRepresentable { line });
    }
    if Sdp::parse(text.as_bytes()).is_err() {
        return Err(LineNotRepresentable { line: 0 });
    }
    Ok(text.into_bytes())
}

/// Prints with a repair: sdp-rs writes `opus/48000 2` for `opus/48000/2`.
fn printed(description: &SessionDescription) -> String {
    let mut out = String::new();
    for line in description.to_string().split("\r\n").filter(|line| !line.is_empty()) {
        match line.strip_prefix("a=rtpmap:").map(|value| value.splitn(3, ' ').collect::<Vec<_>>()) {
            Some(parts) if parts.len() == 3 => {
                out += &format!("a=rtpmap:{} {}/{}", parts[0], parts[1], parts[2]);
            }
            _ => out += line,
        }
        out += "\r\n";
    }
    out
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).filter(|line| !line.is_empty())
}

/// Returns the number of the first line in which two texts differ.
fn first_difference(one: &str, other: &str) -> Option<usize> {
    let (mut one, mut other) = (one.lines(), other.lines());
    let mut at = 0;
    loop {
        match (one.next(), other.next()) {
            (None, None) => return None,
            (a, b) if a == b => at += 1,
            _ => return Some(at),
        }
    }
}

/// Returns the number of the first line without which the text could be read,
/// or 0 when there is no such line.
fn first_unreadable(text: &str) -> usize {
    let all: Vec<&str> = text.lines().collect();
    let is_cure = |skipped: &usize| {
        let rest = all.iter().enumerate().filter(|(at, _)| at != skipped);
        let rest: String = rest.flat_map(|(_, line)| [*line, "\r\n"]).collect();
        SessionDescription::try_from(&*rest).is_ok()
    };
    (0..all.len().min(SEARCHED_MAX)).find(is_cure).unwrap_or(0)
}

/// Lines that are tried out when a text cannot be read, since a peer wrote them.
const SEARCHED_MAX: usize = 64;
