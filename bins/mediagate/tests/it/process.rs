//! The program itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use media::beat::{Beat, Hear};

#[test]
fn a_faulty_file_is_refused_with_every_fault() {
    let file = file("faulty", "[node]\nid = 0\nhots = \"x\"\n");

    for args in [vec!["check".into(), file.clone()], vec!["--config".into(), file]] {
        let output = run(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        assert!(text.contains("line 2: ") && text.contains("line 3: "), "{text}");
    }
}

#[test]
fn a_sound_file_passes_the_check() {
    let output = run(vec!["check".into(), file("sound", &config("127.9.1.1"))]);

    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_process_beats_shows_its_figures_and_drains() {
    let config = file("running", &config("127.9.1.2"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdline-mediagate"))
        .arg("--config")
        .arg(config)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says so once everything is open.
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut lines = log.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("started")));
    let mut child = Killed(child);

    let hearer = UdpSocket::bind("127.0.0.1:0").unwrap();
    hearer.set_read_timeout(Some(DEADLINE)).unwrap();
    hearer.connect("127.9.1.2:7231").unwrap();
    hearer.send(&Hear { hearer: 1, realtime: false }.encode()).unwrap();
    let mut bytes = [0; 64];
    let len = hearer.recv(&mut bytes).unwrap();
    let beat = Beat::decode(&bytes[..len]).unwrap();
    assert_eq!((beat.gateway, beat.legs, beat.workers), (31, 0, 1));

    let mut http = TcpStream::connect("127.9.1.2:9131").unwrap();
    http.set_read_timeout(Some(DEADLINE)).unwrap();
    http.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    http.read_to_string(&mut text).unwrap();
    assert!(text.contains("mediagate_legs_max"), "{text}");

    let told = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert!(child.0.wait().unwrap().success());
}

/// Never left behind.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(args: Vec<PathBuf>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdline-mediagate")).args(args).output().unwrap()
}

fn file(name: &str, text: &str) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    file
}

fn config(address: &str) -> String {
    format!(
        "[node]\nid = 31\naddress = \"{address}\"\nrealtime = false\n\
         [links]\nlisten = \"{address}:7131\"\nplaintext = true\n\
         [http]\nlisten = \"{address}:9131\"\n\
         [beat]\nlisten = \"{address}:7231\"\n"
    )
}

const DEADLINE: Duration = Duration::from_secs(30);
