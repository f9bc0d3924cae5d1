//! The program `holdline-rm`.

fn main() {}
