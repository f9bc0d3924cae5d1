//! How long a link waits for what, over TCP and in the simulator alike.

use std::time::Duration;

/// A link on which nothing was sent for this long carries a keep-alive.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(1);
/// A link on which nothing came for this long is closed.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// A connection that has not stood and greeted by then is closed.
pub(crate) const GREETING_MAX: Duration = Duration::from_secs(5);
/// Before a failed dial is tried again; doubled each time.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// The longest of these waits.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_secs(1);
