//! The examples are in the folder of this name.
