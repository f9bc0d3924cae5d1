//! The node and the configuration of `holdline-mediagate`.
