//! Writes values in the form that bincode reads.
//!
//! The same bytes as bincode's own encoder makes, which a property test holds it to, for a third of the
//! instructions: its errors are large and returned through memory for each field, and here nothing but a
//! type that has no encoded form can fail. Records of calls are written five times in the life of a call.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// The end of what is written so far.
#[derive(Debug)]
pub(super) struct Append<'a>(pub(super) &'a mut Vec<u8>);

/// The type has no encoded form; what was written of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a type that cannot be encoded")]
pub(super) struct NoFormError;

impl ser::Error for NoFormError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl Append<'_> {
    #[inline]
    fn unsigned(&mut self, value: u64) -> Result<(), NoFormError> {
        match value {
            0..FIRST_MARK => self.0.push(value.to_le_bytes()[0]),
            FIRST_MARK..0x1_0000 => {
                let [a, b, ..] = value.to_le_bytes();
                self.0.extend_from_slice(&[MARK_16, a, b]);
            }
            0x1_0000..0x1_0000_0000 => {
                let [a, b, c, d, ..] = value.to_le_bytes();
                self.0.extend_from_slice(&[MARK_32, a, b, c, d]);
            }
            _ => {
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                self.0.extend_from_slice(&[MARK_64, a, b, c, d, e, f, g, h]);
            }
        }
        Ok(())
    }

    /// Small numbers stay small whatever their sign.
    #[inline]
    fn signed(&mut self, value: i64) -> Result<(), NoFormError> {
        self.unsigned(((value << 1) ^ (value >> 63)).cast_unsigned())
    }

    #[inline]
    fn len(&mut self, len: usize) -> Result<(), NoFormError> {
        self.unsigned(len as u64)
    }

    #[inline]
    fn variant(&mut self, index: u32) -> Result<(), NoFormError> {
        self.unsigned(u64::from(index))
    }
}

/// Less than this is one byte; the bytes from here on say how many follow.
const FIRST_MARK: u64 = 251;
const MARK_16: u8 = 251;
const MARK_32: u8 = 252;
const MARK_64: u8 = 253;
const MARK_128: u8 = 254;

impl Serializer for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<(), NoFormError> {
        self.serialize_u8(u8::from(value))
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> Result<(), NoFormError> {
        self.serialize_u8(value.cast_unsigned())
    }

    #[inline]
    fn serialize_i16(self, value: i16) -> Result<(), NoFormError> {
        self.signed(i64::from(value))
    }

    #[inline]
    fn serialize_i32(self, value: i32) -> Result<(), NoFormError> {
        self.signed(i64::from(value))
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), NoFormError> {
        self.signed(value)
    }

    #[inline]
    fn serialize_i128(self, value: i128) -> Result<(), NoFormError> {
        self.serialize_u128(((value << 1) ^ (value >> 127)).cast_unsigned())
    }

    #[inline]
    fn serialize_u8(self, value: u8) -> Result<(), NoFormError> {
        self.0.push(value);
        Ok(())
    }

    #[inline]
    fn serialize_u16(self, value: u16) -> Result<(), NoFormError> {
        self.unsigned(u64::from(value))
    }

    #[inline]
    fn serialize_u32(self, value: u32) -> Result<(), NoFormError> {
        self.unsigned(u64::from(value))
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), NoFormError> {
        self.unsigned(value)
    }

    #[inline]
    fn serialize_u128(self, value: u128) -> Result<(), NoFormError> {
        match u64::try_from(value) {
            Ok(value) => self.unsigned(value),
            Err(_) => {
                self.0.push(MARK_128);
                self.0.extend_from_slice(&value.to_le_bytes());
                Ok(())
            }
        }
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result<(), NoFormError> {
        self.0.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result<(), NoFormError> {
        self.0.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_char(self, value: char) -> Result<(), NoFormError> {
        self.0.extend_from_slice(value.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), NoFormError> {
        self.serialize_bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, value: &[u8]) -> Result<(), NoFormError> {
        self.len(value.len())?;
        self.0.extend_from_slice(value);
        Ok(())
    }

    #[inline]
    fn serialize_none(self) -> Result<(), NoFormError> {
        self.serialize_u8(0)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), NoFormError> {
        self.0.push(1);
        value.serialize(self)
    }

    #[inline]
    fn serialize_unit(self) -> Result<(), NoFormError> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), NoFormError> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), NoFormError> {
        self.variant(index)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NoFormError> {
        value.serialize(self)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), NoFormError> {
        self.variant(index)?;
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Self, NoFormError> {
        self.len(len.ok_or(NoFormError)?)?;
        Ok(self)
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, NoFormError> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, NoFormError> {
        Ok(self)
    }

    #[inline]
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NoFormError> {
        self.variant(index)?;
        Ok(self)
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Self, NoFormError> {
        self.serialize_seq(len)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, NoFormError> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct_variant(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, NoFormError> {
        self.variant(index)?;
        Ok(self)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}

impl ser::SerializeSeq for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}

impl ser::SerializeTuple for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}

impl ser::SerializeTupleStruct for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}

impl ser::SerializeTupleVariant for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}

impl ser::SerializeMap for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), NoFormError> {
        key.serialize(&mut **self)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}

impl ser::SerializeStruct for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}

impl ser::SerializeStructVariant for &mut Append<'_> {
    type Ok = ();
    type Error = NoFormError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NoFormError> {
        value.serialize(&mut **self)
    }

    #[inline]
    fn end(self) -> Result<(), NoFormError> {
        Ok(())
    }
}
