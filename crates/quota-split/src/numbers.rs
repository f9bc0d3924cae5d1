//! Which numbers belong to whom.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::NodeId;

/// Some dialled numbers: one (`300`), a range with both ends in it (`300-400`), or all that start
/// alike (`45*`).
///
/// The ends of a range are digits, with a `+` before both or neither. A range over several lengths
/// (`99-101`) counts as people do: a longer number is a greater one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Numbers(Form);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    One(String),
    Range(String, String),
    Start(String),
}

/// Why a text names no numbers. Its author is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersError {
    /// It is something else.
    #[error("is no number, no range such as 300-400 and no start such as 45*")]
    Malformed,
    /// A number in it is longer than [`NUMBER_LEN_MAX`].
    #[error("is longer than {NUMBER_LEN_MAX} characters")]
    TooLong,
    /// A range ends before it begins.
    #[error("ends before it begins: the lower number stands first")]
    Reversed,
}

/// How long a number may be.
pub const NUMBER_LEN_MAX: usize = 64;

/// Whose numbers are whose; no number has two owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    ones: BTreeMap<ByLength, NodeId>,
    /// By the first number of a range; both ends have one length.
    ranges: BTreeMap<ByLength, (String, NodeId)>,
    /// None is the start of another.
    starts: BTreeMap<String, NodeId>,
}

type ByLength = (usize, String);

impl Owners {
    /// Gives `numbers` to `owner`.
    ///
    /// # Errors
    /// Who has one of them already; then nothing was given.
    pub(crate) fn give(&mut self, numbers: &Numbers, owner: NodeId) -> Result<(), NodeId> {
        if let Some(other) = self.meets(numbers) {
            return Err(other);
        }
        match &numbers.0 {
            Form::One(number) => {
                self.ones.insert(by_length(number), owner);
            }
            Form::Range(first, last) => {
                for (first, last) in split(first, last) {
                    self.ranges.insert(by_length(&first), (last, owner));
                }
            }
            Form::Start(start) => {
                self.starts.insert(start.clone(), owner);
            }
        }
        Ok(())
    }

    /// Returns the owner of a number.
    pub(crate) fn of(&self, number: &str) -> Option<NodeId> {
        let key = by_length(number);
        let one = self.ones.get(&key).copied();
        let range = || is_dialled(number).then(|| self.in_range(number, number)).flatten();
        one.or_else(range).or_else(|| self.start_of(number))
    }

    /// Returns the owner of a number that is one of `numbers` too.
    fn meets(&self, numbers: &Numbers) -> Option<NodeId> {
        match &numbers.0 {
            Form::One(number) => self.of(number),
            Form::Range(first, last) => split(first, last).into_iter().find_map(|(first, last)| {
                let ones = self.ones.range(by_length(&first)..=by_length(&last));
                let mut ones = ones.filter(|((_, one), _)| is_dialled(one));
                let one = ones.next().map(|(_, owner)| *owner);
                one.or_else(|| self.in_range(&first, &last))
                    .or_else(|| self.start_within(&first, &last))
            }),
            Form::Start(start) => {
                let longer = self.starts.range(start.clone()..).next();
                let longer = longer.filter(|(other, _)| other.starts_with(start));
                self.start_of(start).or_else(|| longer.map(|(_, owner)| *owner)).or_else(|| {
                    (start.len()..=NUMBER_LEN_MAX).find_map(|len| self.starting(start, len))
                })
            }
        }
    }

    /// Returns the owner of a range that has a number from `first` to `last`, of one length.
    fn in_range(&self, first: &str, last: &str) -> Option<NodeId> {
        let ((len, _), (end, owner)) = self.ranges.range(..=by_length(last)).next_back()?;
        (*len == last.len() && first <= end.as_str()).then_some(*owner)
    }

    /// Returns the owner of the start of a number. No start begins another, so only the greatest one
    /// up to `number` can be it.
    fn start_of(&self, number: &str) -> Option<NodeId> {
        let (start, owner) = self.starts.range(..=number.to_owned()).next_back()?;
        number.starts_with(start.as_str()).then_some(*owner)
    }

    /// Returns the owner of the start of a number from `first` to `last`, of one length.
    fn start_within(&self, first: &str, last: &str) -> Option<NodeId> {
        let mut within = self.starts.range(first.to_owned()..=last.to_owned());
        let within = within.find(|(start, _)| start.len() <= last.len() && is_dialled(start));
        self.start_of(first).or_else(|| within.map(|(_, owner)| *owner))
    }

    /// Returns the owner of a number or range of this length that starts so.
    fn starting(&self, start: &str, len: usize) -> Option<NodeId> {
        let fill = |digit: &str| start.to_owned() + &digit.repeat(len - start.len());
        let one = self.ones.range((len, start.to_owned())..).next();
        let one = one.filter(|((other, number), _)| *other == len && number.starts_with(start));
        let (first, last) = (fill("0"), fill("9"));
        let range = || is_dialled(&first).then(|| self.in_range(&first, &last)).flatten();
        one.map(|(_, owner)| *owner).or_else(range)
    }
}

impl Numbers {
    /// Tells whether `number` is one of these.
    pub fn has(&self, number: &str) -> bool {
        match &self.0 {
            Form::One(one) => one == number,
            Form::Start(start) => number.starts_with(start.as_str()),
            Form::Range(first, last) => {
                let between = by_length(first)..=by_length(last);
                let plus = |number: &str| number.starts_with('+');
                let padded = first.len() < number.len()
                    && number.strip_prefix('+').unwrap_or(number).starts_with('0');
                is_dialled(number)
                    && plus(number) == plus(first)
                    && !padded
                    && between.contains(&by_length(number))
            }
        }
    }
}

impl FromStr for Numbers {
    type Err = NumbersError;

    fn from_str(text: &str) -> Result<Self, NumbersError> {
        let form = match (text.strip_suffix('*'), text.split_once('-')) {
            (Some(start), _) => Form::Start(start.to_owned()),
            (None, Some((first, last))) => Form::Range(first.to_owned(), last.to_owned()),
            (None, None) => Form::One(text.to_owned()),
        };
        let sound = match &form {
            Form::One(one) => is_number(one),
            Form::Start(start) => start == "+" || is_number(start),
            Form::Range(first, last) => {
                let plus = |number: &str| number.starts_with('+');
                is_dialled(first) && is_dialled(last) && plus(first) == plus(last)
            }
        };
        match form {
            _ if !sound => Err(NumbersError::Malformed),
            Form::One(number) | Form::Start(number) if NUMBER_LEN_MAX < number.len() => {
                Err(NumbersError::TooLong)
            }
            Form::Range(_, last) if NUMBER_LEN_MAX < last.len() => Err(NumbersError::TooLong),
            Form::Range(first, last) if by_length(&last) < by_length(&first) => {
                Err(NumbersError::Reversed)
            }
            form @ (Form::One(_) | Form::Range(..) | Form::Start(_)) => Ok(Self(form)),
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::One(number) => f.write_str(number),
            Form::Range(first, last) => write!(f, "{first}-{last}"),
            Form::Start(start) => write!(f, "{start}*"),
        }
    }
}

fn by_length(number: &str) -> ByLength {
    (number.len(), number.to_owned())
}

/// Whether a text is letters and digits, with or without a `+` before them.
fn is_number(text: &str) -> bool {
    let rest = text.strip_prefix('+').unwrap_or(text);
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether a text is digits, with or without a `+` before them: only such numbers are in ranges.
fn is_dialled(text: &str) -> bool {
    is_number(text) && text.bytes().all(|byte| byte == b'+' || byte.is_ascii_digit())
}

/// Cuts a range into ranges of one length each.
fn split(first: &str, last: &str) -> Vec<(String, String)> {
    let plus = if first.starts_with('+') { "+" } else { "" };
    let fill = |head: &str, digit: &str, len: usize| {
        format!("{plus}{head}{}", digit.repeat(len - plus.len() - head.len()))
    };
    let part = |len: usize| {
        let from = if len == first.len() { first.to_owned() } else { fill("1", "0", len) };
        let to = if len == last.len() { last.to_owned() } else { fill("", "9", len) };
        (from, to)
    };
    (first.len()..=last.len()).map(part).collect()
}

#[cfg(test)]
mod tests;
