use std::path::{Path, PathBuf};

use driver::frame::{HELLO_V1, HelloV1, KEEPALIVE, VERSION, header};
use driver::{codec, golden};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/testdata").join(name)
}

fn hello() -> HelloV1 {
    HelloV1 {
        node: 513,
        role: "gate b2b".into(),
        boot: 1_800_000_000_123,
        class: 2,
        version_min: 1,
        version_max: 300,
    }
}

#[test]
fn the_hello_has_its_golden_bytes() {
    golden::check(&file("hello_v1.txt"), &hello());
}

#[test]
fn a_whole_hello_frame_has_its_golden_bytes() {
    let payload = codec::encode(&hello());
    let header = header(u32::try_from(payload.len()).unwrap(), VERSION, HELLO_V1);
    golden::check_bytes(&file("hello_frame.txt"), &[&header[..], &payload].concat());
}

#[test]
fn a_keep_alive_has_its_golden_bytes() {
    golden::check_bytes(&file("keepalive_frame.txt"), &header(0, VERSION, KEEPALIVE));
}

#[test]
fn bytes_left_over_missing_or_wrong_are_no_value() {
    use driver::codec::{DecodeError, decode};
    let bytes = codec::encode(&hello());
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decode::<HelloV1>(&longer), Err(DecodeError::Trailing));
    for len in 0..bytes.len() {
        assert_eq!(decode::<HelloV1>(&bytes[..len]), Err(DecodeError::Short));
    }
    assert_eq!(decode::<bool>(&[2]), Err(DecodeError::Malformed));
    // A text that claims to be four gigabytes long.
    assert_eq!(decode::<String>(&[252, 255, 255, 255, 255]), Err(DecodeError::TooLong));
}
