//! Which provisional response a PRACK acknowledges.

use crate::Method;
use crate::lex;
use crate::params::Malformed;

use super::CSeq;

/// The response that a PRACK acknowledges (RFC 3262 §7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RAck<'a> {
    /// The RSeq number of the response; never 0.
    pub rseq: u32,
    /// The CSeq number of the response.
    pub cseq: u32,
    /// The CSeq method of the response.
    pub method: Method<'a>,
}

impl<'a> RAck<'a> {
    /// Reads a RAck value.
    ///
    /// # Errors
    /// It is not two numbers and a token with white space between them, or the
    /// first number is 0.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (digits, rest) = lex::split_while(value, |b| b.is_ascii_digit());
        let rseq = rseq(digits).ok_or(Malformed)?;
        if !rest.first().copied().is_some_and(lex::is_lws) {
            return Err(Malformed);
        }
        let CSeq { number, method } = CSeq::parse(lex::trim_start(rest))?;
        Ok(Self { rseq, cseq: number, method })
    }
}

/// Reads an RSeq value (RFC 3262 §7.1).
pub(crate) fn rseq(value: &[u8]) -> Option<u32> {
    lex::number(value).filter(|&number| number != 0)
}
