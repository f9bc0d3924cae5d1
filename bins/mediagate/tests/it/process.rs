//! The program itself.

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use media::beat::{Beat, Hear};
use testkit::program::{Program, figure, page};

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
fn a_gateway_makes_its_certificate_and_runs_with_it() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gateway-tls");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    let made = run(vec!["certificates".into(), folder.clone(), "--nodes".into(), "31,32".into()]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let with = |node: u8| {
        let path = |name: String| folder.join(name);
        let (certificate, key) =
            (path(format!("node-{node}.pem")), path(format!("node-{node}.key")));
        let tls = format!(
            "[tls]\nauthority = {:?}\ncertificate = {certificate:?}\nkey = {key:?}\n",
            path("ca.pem".into())
        );
        file(&format!("tls-{node}"), &config("127.9.1.3").replace("plaintext = true\n", &tls))
    };

    let wrong = run(vec!["check".into(), with(32)]);
    let text = String::from_utf8_lossy(&wrong.stderr);
    assert!(text.contains("names node-32.holdline, not node-31.holdline"), "{text}");
    let mut program = Program::start(MEDIAGATE, &with(31));
    program.log_until("started");
    assert!(program.drain().success());
}

#[test]
fn the_process_beats_shows_its_figures_and_drains() {
    let mut program = Program::start(MEDIAGATE, &file("running", &config("127.9.1.2")));
    // It says so once everything is open.
    program.log_until("started");

    let hearer = UdpSocket::bind("127.0.0.1:0").unwrap();
    hearer.set_read_timeout(Some(DEADLINE)).unwrap();
    hearer.connect("127.9.1.2:7231").unwrap();
    hearer.send(&Hear { hearer: 1, realtime: false }.encode()).unwrap();
    let mut bytes = [0; 64];
    let len = hearer.recv(&mut bytes).unwrap();
    let beat = Beat::decode(&bytes[..len]).unwrap();
    assert_eq!((beat.gateway, beat.legs, beat.workers), (31, 0, 1));

    let metrics = page("127.9.1.2:9131".parse().unwrap(), "/metrics").unwrap();
    assert!(figure(&metrics, "mediagate_legs_max").is_some(), "{metrics}");

    assert!(program.drain().success());
}

fn run(args: Vec<PathBuf>) -> Output {
    Command::new(MEDIAGATE).args(args).output().unwrap()
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

const MEDIAGATE: &str = env!("CARGO_BIN_EXE_holdline-mediagate");

const DEADLINE: Duration = Duration::from_secs(30);
