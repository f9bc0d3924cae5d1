//! One header of digest authentication.
#![no_main]

#[path = "../../crates/sip-core/tests/it/checks.rs"]
#[expect(dead_code, reason = "each target runs one of the checks")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::digest(data));
