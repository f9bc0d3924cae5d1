//! Measures what the README claims.

fn main() {}
