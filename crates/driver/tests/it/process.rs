//! A whole process around a small node: signals, HTTP, logs.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use driver::{
    Input, LinksConfig, LogConfig, Metrics, Node, NodeId, Output, RunConfig, RunError, Security,
    Start, StopReason,
};
use nix::sys::signal::{Signal, raise};

/// Raises these signals, one after the other, and ends when told to drain,
/// if it is `obedient`.
struct Signalled {
    raises: VecDeque<Signal>,
    obedient: bool,
    heard: std::sync::mpsc::Sender<Input>,
    outputs: VecDeque<Output>,
    next_at: Option<Instant>,
}

impl Node for Signalled {
    fn handle_input(&mut self, now: Instant, input: Input) {
        if input == Input::Drain && self.obedient {
            self.outputs.push_back(Output::Stop(StopReason::Drained));
        }
        // The test may not listen.
        let _ = self.heard.send(input);
        self.next_at = Some(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.next_at = None;
        if let Some(signal) = self.raises.pop_front() {
            // To this thread, which reads it like one from outside.
            raise(signal).expect("a signal can be raised");
            self.next_at = Some(now + Duration::from_millis(20));
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next_at
    }

    fn metrics(&self, out: &mut Metrics) {
        out.counter("signals_left_total", "Signals to raise.", &[], self.raises.len() as u64);
    }
}

fn config(http: Option<SocketAddr>) -> RunConfig {
    let links = LinksConfig::default();
    RunConfig {
        node: NodeId(1),
        role: "test".into(),
        links,
        http,
        token: None,
        api: false,
        numbers: None,
        journal: None,
        realtime: false,
    }
}

/// Runs a node that raises `signals`; returns what it was told.
fn run(signals: &[Signal], obedient: bool) -> Vec<Input> {
    let (heard, inputs) = std::sync::mpsc::channel();
    let node = |start: Start| Signalled {
        raises: signals.iter().copied().collect(),
        obedient,
        heard,
        outputs: VecDeque::new(),
        next_at: Some(start.instant),
    };
    driver::run(&config(None), node).unwrap();
    inputs.iter().collect()
}

#[test]
fn a_hangup_reloads_and_a_termination_drains() {
    let heard = run(&[Signal::SIGHUP, Signal::SIGTERM], true);
    assert_eq!(heard, [Input::Reload, Input::Drain]);
}

#[test]
fn a_second_termination_ends_a_node_that_is_still_busy() {
    assert_eq!(run(&[Signal::SIGTERM, Signal::SIGINT], false), [Input::Drain]);
}

#[test]
fn an_order_over_http_is_no_signal_so_the_first_one_after_it_ends_nothing() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let token = driver::http::Token::new("correct-horse-battery").unwrap();
    let config = RunConfig { token: Some(token.clone()), ..config(Some(addr)) };
    let (heard, inputs) = std::sync::mpsc::channel();
    let (to_started, started) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let node = |_: Start| {
            to_started.send(()).unwrap();
            let raises = VecDeque::from([Signal::SIGTERM, Signal::SIGHUP, Signal::SIGTERM]);
            let outputs = VecDeque::new();
            Signalled { raises, obedient: false, heard, outputs, next_at: None }
        };
        driver::run(&config, node)
    });
    started.recv().unwrap();
    driver::http::drain(addr, &token).unwrap();
    thread.join().unwrap().unwrap();
    let told: Vec<Input> = inputs.iter().filter(|input| *input != Input::Woken).collect();
    assert_eq!(told, [Input::Drain, Input::Reload]);
}

#[test]
fn a_config_that_cannot_be_run_is_an_error_before_the_node_is_made() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let make = |_: Start| -> Signalled { panic!("it is not made") };
    let error = driver::run(&config(Some(addr)), make).unwrap_err();
    assert!(matches!(error, RunError::Http { .. }));

    let links =
        LinksConfig { listen: Some(addr), security: Security::Plaintext, ..LinksConfig::default() };
    let error = driver::run(&RunConfig { links, ..config(None) }, make).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen for links on {addr}"));
}

#[test]
fn health_and_metrics_are_served() {
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (to_waker, waker) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let node = |start: Start| {
            to_waker.send(start.waker).unwrap();
            Signalled {
                raises: VecDeque::from([Signal::SIGTERM]),
                obedient: true,
                heard: std::sync::mpsc::channel().0,
                outputs: VecDeque::new(),
                next_at: None,
            }
        };
        driver::run(&config(Some(addr)), node)
    });
    let _waker = waker.recv().unwrap();
    // The first copy is posted in the first turn.
    let mut metrics = get(addr, "/metrics");
    while !metrics.contains("signals_left_total 1\n") {
        metrics = get(addr, "/metrics");
    }
    assert!(get(addr, "/healthz").starts_with("HTTP/1.1 200 OK"));
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"));
    assert!(metrics.contains("# TYPE driver_turns_total counter"));
    assert!(metrics.contains("driver_realtime 0\n"));
    assert!(get(addr, "/").starts_with("HTTP/1.1 404"));
    assert!(!thread.is_finished());
}

#[test]
fn an_order_over_http_drains_a_node_whose_next_life_has_higher_numbers() {
    let name = format!("holdline-process-{}", std::process::id());
    let numbers = std::env::temp_dir().join(name);
    let token = driver::http::Token::new("correct-horse-battery").unwrap();
    let life = || {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = RunConfig {
            token: Some(token.clone()),
            numbers: Some(numbers.clone()),
            ..config(Some(addr))
        };
        let (heard, inputs) = std::sync::mpsc::channel();
        let (to_start, start) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let node = |start: Start| {
                to_start.send((start.boot, start.epoch)).unwrap();
                let (raises, outputs) = (VecDeque::new(), VecDeque::new());
                Signalled { raises, obedient: true, heard, outputs, next_at: None }
            };
            driver::run(&config, node)
        });
        let start = start.recv().unwrap();
        driver::http::drain(addr, &token).unwrap();
        thread.join().unwrap().unwrap();
        let drains = inputs.iter().filter(|input| *input == Input::Drain).count();
        assert_eq!(drains, 1);
        start
    };

    let (first, second) = (life(), life());
    assert!(first.0 < second.0 && first.1 < second.1, "{first:?}, then {second:?}");
    std::fs::remove_file(&numbers).unwrap();
}

fn get(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_panic_is_told_after_the_lines_before_it() {
    if std::env::var_os(PANICS).is_some() {
        panic_after_many_lines();
    }
    let output = panicking().output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let (before, panic) = text.split_once(" panicked at ").unwrap();
    assert!(before.contains("the last line"), "{text}");
    assert!(panic.contains("on purpose"), "{text}");
}

#[test]
fn a_panic_ends_a_process_whose_log_nobody_reads() {
    let mut child = panicking().stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(101));
}

fn panic_after_many_lines() -> ! {
    driver::logging(&LogConfig::default());
    // More than a pipe takes.
    for line in 0..2000 {
        tracing::info!(line, "some words that nobody reads, among many others");
    }
    tracing::info!("the last line");
    panic!("on purpose");
}

/// This program, as a process that panics.
fn panicking() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let this = "process::a_panic_is_told_after_the_lines_before_it";
    command.args(["--exact", this, "--nocapture"]).env(PANICS, "1").stdout(Stdio::null());
    command
}

/// Says that this process is one that panics.
const PANICS: &str = "HOLDLINE_TEST_PANICS";
