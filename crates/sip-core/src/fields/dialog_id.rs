//! Headers that name a dialog by its Call-ID and tags.

use crate::lex;
use crate::params::Malformed;

use super::head_and_params;

/// The dialog that an INVITE is to replace (RFC 3891 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaces<'a> {
    /// Its Call-ID.
    pub call_id: &'a [u8],
    /// Its tag at the receiver of this INVITE.
    pub to_tag: &'a [u8],
    /// Its tag at the other side.
    pub from_tag: &'a [u8],
    /// True when only an early dialog may be replaced.
    pub early_only: bool,
}

impl<'a> Replaces<'a> {
    /// Reads a Replaces, Join or Target-Dialog value.
    ///
    /// # Errors
    /// The Call-ID or one of the tags is missing or stands twice.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let (call_id, mut params) = head_and_params(value);
        let (mut to_tag, mut from_tag, mut early_only) = (None, None, false);
        while let Some(param) = params.take()? {
            let slot = match param.name {
                name if name.eq_ignore_ascii_case(b"to-tag") => &mut to_tag,
                name if name.eq_ignore_ascii_case(b"from-tag") => &mut from_tag,
                name => {
                    early_only |= name.eq_ignore_ascii_case(b"early-only");
                    continue;
                }
            };
            if slot.replace(param.value.ok_or(Malformed)?).is_some() {
                return Err(Malformed);
            }
        }
        let (Some(to_tag), Some(from_tag)) = (to_tag, from_tag) else { return Err(Malformed) };
        if call_id.is_empty() || !lex::is_visible(call_id) {
            return Err(Malformed);
        }
        Ok(Self { call_id, to_tag, from_tag, early_only })
    }
}

/// The dialog that an INVITE is to join (RFC 3911 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join<'a> {
    /// Its Call-ID.
    pub call_id: &'a [u8],
    /// Its tag at the receiver of this INVITE.
    pub to_tag: &'a [u8],
    /// Its tag at the other side.
    pub from_tag: &'a [u8],
}

impl<'a> Join<'a> {
    /// Reads a Join value.
    ///
    /// # Errors
    /// As for [`Replaces::parse`].
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let Replaces { call_id, to_tag, from_tag, .. } = Replaces::parse(value)?;
        Ok(Self { call_id, to_tag, from_tag })
    }
}
