//! Golden files: the bytes of each frame kind, held in the repository, so
//! that an edit which changes them cannot pass unseen.
//!
//! For tests. A file that does not exist is written, and the test fails once,
//! so that its author looks at the bytes before they are committed.

use std::fmt::{Debug, Write as _};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;

/// Holds the encoded bytes of `value` against the file, and reads them back.
///
/// # Panics
/// When the bytes differ, cannot be read back, or the file was missing.
pub fn check<T>(file: &Path, value: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let bytes = codec::encode(value);
    check_bytes(file, &bytes);
    assert_eq!(codec::decode::<T>(&bytes).as_ref(), Ok(value), "{}", file.display());
}

/// Holds `bytes` against the file.
///
/// # Panics
/// When they differ or the file was missing.
pub fn check_bytes(file: &Path, bytes: &[u8]) {
    let text = hex(bytes);
    match fs::read_to_string(file) {
        Ok(golden) => {
            assert_eq!(
                text,
                golden,
                "{} holds other bytes; a changed frame needs a new kind",
                file.display()
            );
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = file.parent().expect("a file lies in a folder");
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(file, text))
                .expect("a test may write");
            panic!("{} was missing and is written; look at it", file.display());
        }
        Err(error) => panic!("{}: {error}", file.display()),
    }
}

/// Sixteen bytes a line, with what is readable of them.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for row in bytes.chunks(16) {
        for index in 0..16 {
            // Writing to a `String` cannot fail.
            let _ = match row.get(index) {
                Some(byte) => write!(text, "{byte:02x} "),
                None => write!(text, "   "),
            };
        }
        let readable = |&byte: &u8| if byte.is_ascii_graphic() { char::from(byte) } else { '.' };
        text.extend(row.iter().map(readable));
        text.push('\n');
    }
    text
}
