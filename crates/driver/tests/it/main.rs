//! What users of the crate see.

#[cfg(test)]
mod golden;
#[cfg(test)]
mod process;
