//! Programs as their users run them: processes of their own, asked over HTTP.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A program that runs; killed when dropped, so that a test that fails leaves nothing behind.
#[derive(Debug)]
pub struct Program {
    child: Child,
    /// Its standard error, while somebody reads it.
    log: Option<BufReader<ChildStderr>>,
}

impl Program {
    /// Starts `program` with `--config` and this file.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(program: &str, config: &Path) -> Self {
        let mut command = Command::new(program);
        command.arg("--config").arg(config);
        Self::start_by(command)
    }

    /// Starts a program by a command of one's own.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_by(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let log = child.stderr.take().expect("its standard error is a pipe");
        Self { child, log: Some(BufReader::new(log)) }
    }

    /// Waits for a line of its log that contains `text`; returns it and those before it.
    ///
    /// # Panics
    /// When the program ends without it.
    pub fn log_until(&mut self, text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let log = self.log.as_mut().into_iter().flat_map(BufRead::lines);
        for line in log.map_while(Result::ok) {
            let found = line.contains(text);
            lines.push(line);
            if found {
                return lines;
            }
        }
        panic!("it ended without \"{text}\" in its log:\n{}", lines.join("\n"));
    }

    /// Reads its log no more: whatever it writes there from now on fails.
    pub fn close_log(&mut self) {
        self.log = None;
    }

    /// Leaves the pipe of its log open, as small as it can be, and reads it no more unless
    /// [`log_until`](Self::log_until) does: whatever it writes there soon waits.
    ///
    /// # Panics
    /// When the log was closed.
    pub fn stall_log(&self) {
        let log = self.log.as_ref().expect("the log is open");
        fcntl(log.get_ref(), FcntlArg::F_SETPIPE_SZ(4096)).expect("a pipe can be made smaller");
    }

    /// Returns the number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to drain by SIGTERM.
    ///
    /// # Panics
    /// When it cannot be told.
    pub fn terminate(&self) {
        let id = i32::try_from(self.child.id()).expect("a process id is an i32");
        kill(Pid::from_raw(id), Signal::SIGTERM).expect("a child can be signalled");
    }

    /// Tells it to drain by SIGTERM, and waits for its end.
    ///
    /// # Panics
    /// When it cannot be told.
    pub fn drain(mut self) -> ExitStatus {
        self.terminate();
        self.child.wait().expect("a child can be waited for")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only for a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fetches a page of a program.
///
/// # Errors
/// When nothing answers within 10 s, or with another status than 200, which the error then names.
pub fn page(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.starts_with("HTTP/1.1 200 ") {
        return Ok(body.to_owned());
    }
    let status = head.lines().next().unwrap_or_default();
    Err(io::Error::other(format!("{address}{path} says {status}")))
}

/// Returns the first sample of a figure in what `/metrics` answers; `None` if it has none.
pub fn figure<'a>(metrics: &'a str, name: &str) -> Option<&'a str> {
    metrics.lines().find_map(|line| {
        let (sample, value) = line.rsplit_once(' ')?;
        (sample.split('{').next() == Some(name)).then_some(value)
    })
}

const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_not_taken_for_one_that_begins_alike() {
        let metrics = "# HELP slots x\nslots_bare 3\nslots 256\npackets{worker=\"0\"} 7\n";

        assert_eq!(figure(metrics, "slots"), Some("256"));
        assert_eq!(figure(metrics, "slots_bare"), Some("3"));
        assert_eq!(figure(metrics, "packets"), Some("7"));
        assert_eq!(figure(metrics, "pack"), None);
    }
}
