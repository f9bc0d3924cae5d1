//! The two system calls that no crate we keep wraps.
#![expect(unsafe_code, reason = "epoll_pwait2 and sched_setscheduler have no safe wrapper")]

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// `linux/sched.h`; the C library's headers leave it out.
const SCHED_RESET_ON_FORK: libc::c_int = 0x4000_0000;
/// How many events one wait returns at most.
const EVENTS_MAX: usize = 256;

/// Waits for files, with a timeout finer than a millisecond.
pub(crate) struct Poller {
    epoll: Epoll,
    events: RefCell<Vec<EpollEvent>>,
    /// False on kernels older than 5.11; timeouts are then rounded up.
    precise: Cell<bool>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let events = RefCell::new(vec![EpollEvent::empty(); EVENTS_MAX]);
        Ok(Self { epoll, events, precise: Cell::new(true) })
    }

    /// Watches `file` for reading, and for writing if `writes`.
    pub(crate) fn add(&self, file: impl AsFd, token: u64, writes: bool) -> io::Result<()> {
        Ok(self.epoll.add(file, EpollEvent::new(interest(writes), token))?)
    }

    /// Changes whether a watched `file` is watched for writing too.
    pub(crate) fn modify(&self, file: impl AsFd, token: u64, writes: bool) -> io::Result<()> {
        Ok(self.epoll.modify(file, &mut EpollEvent::new(interest(writes), token))?)
    }

    /// Stops watching `file`, whoever else may still hold it open.
    pub(crate) fn remove(&self, file: impl AsFd) {
        // It fails only when the file is not watched.
        let _ = self.epoll.delete(file);
    }

    /// Waits until a file is ready or `timeout` is over and puts the tokens
    /// of the ready files into `ready`. A signal ends the wait early.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        ready: &mut Vec<(u64, EpollFlags)>,
    ) -> io::Result<()> {
        let mut events = self.events.borrow_mut();
        let waited = if self.precise.get() {
            self.wait_precise(timeout, &mut events)
        } else {
            self.wait_ms(timeout, &mut events)
        };
        match waited {
            Ok(count) => {
                ready.extend(events[..count].iter().map(|event| (event.data(), event.events())));
                Ok(())
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) && self.precise.get() => {
                self.precise.set(false);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn wait_ms(&self, timeout: Option<Duration>, events: &mut [EpollEvent]) -> io::Result<usize> {
        let timeout = match timeout {
            None => EpollTimeout::NONE,
            Some(timeout) => {
                let ms = timeout.as_nanos().div_ceil(1_000_000);
                EpollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
            }
        };
        Ok(self.epoll.wait(events, timeout)?)
    }

    fn wait_precise(
        &self,
        timeout: Option<Duration>,
        events: &mut [EpollEvent],
    ) -> io::Result<usize> {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos().cast_signed()),
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let epoll: BorrowedFd<'_> = self.epoll.0.as_fd();
        let events_len = i32::try_from(events.len()).unwrap_or(i32::MAX);
        let events = events.as_mut_ptr().cast::<libc::epoll_event>();
        // SAFETY: `EpollEvent` is a transparent wrapper of `epoll_event`;
        // `events` points to `events_len` of them, which this call may
        // overwrite; `timeout` is null or points to a live `timespec`; a null
        // signal mask leaves the mask alone.
        let count = unsafe {
            libc::epoll_pwait2(epoll.as_raw_fd(), events, events_len, timeout, std::ptr::null())
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

fn interest(writes: bool) -> EpollFlags {
    if writes { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN }
}

/// Puts the calling thread, and no thread or process that it starts, into the
/// first-in-first-out real-time class.
///
/// # Errors
/// When the process may not: it has no `CAP_SYS_NICE` and its limit
/// `RLIMIT_RTPRIO` is zero. Nothing has changed then.
pub fn realtime() -> io::Result<()> {
    // SAFETY: both calls only read their arguments; `parameters` outlives them.
    let result = unsafe {
        let lowest = libc::sched_get_priority_min(libc::SCHED_FIFO);
        let parameters = libc::sched_param { sched_priority: lowest };
        libc::sched_setscheduler(0, libc::SCHED_FIFO | SCHED_RESET_ON_FORK, &raw const parameters)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Raises the process's limit of open files as far as it goes, and returns it.
pub(crate) fn files_max() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return Ok(hard);
    }
    Ok(soft)
}

/// Wakes a [`Poller`] from any thread.
pub(crate) struct Bell(nix::sys::eventfd::EventFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        use nix::sys::eventfd::{EfdFlags, EventFd};
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(EventFd::from_value_and_flags(0, flags)?))
    }

    /// Forgets the rings so far.
    pub(crate) fn hush(&self) {
        // It fails only when nobody rang.
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::task::Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        // It fails only when the counter is full, and then it is awake.
        let _ = self.0.write(1);
    }
}
