//! The node and the configuration of `holdline-rm`.
