//! The program `holdline-mediagate`.

fn main() {}
