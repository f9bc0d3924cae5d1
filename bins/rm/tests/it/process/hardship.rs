//! A process whose log nobody reads, or whose files may not grow.

use super::*;

#[test]
fn nothing_ends_when_nobody_reads_the_log_any_more() {
    let mut program = Program::start(RM, &talkative("unread", "127.9.47."));
    program.log_until("listening for SIP");
    program.close_log();

    let phone = served_phone("127.9.47.");
    for call in ["first", "second"] {
        // A line is written about each.
        let answer = ask(&phone, "REGISTER", call);
        assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    }

    assert!(program.drain().success());
}

#[test]
fn calls_go_on_while_the_log_is_not_read() {
    let mut program = Program::start(RM, &talkative("stalled", "127.9.48."));
    program.log_until("listening for SIP");
    program.stall_log();

    let phone = served_phone("127.9.48.");
    for call in 0..60 {
        // A line is written about each, and the pipe takes but few.
        let answer = ask(&phone, "REGISTER", &format!("stalled-{call}"));
        assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    }
    let metrics = metrics("127.9.48.1:9131");
    assert_eq!(figure(&metrics, "driver_log_lines_lost_total"), Some("0"), "all of them wait");

    program.terminate();
    let lines = program.log_until("stopping");
    let about = lines.iter().filter(|line| line.contains(" registered ")).count();
    assert_eq!(about, 60, "{lines:#?}");
}

#[test]
fn a_process_ends_though_its_log_is_not_read() {
    let mut program = Program::start(RM, &talkative("unheard", "127.9.49."));
    program.log_until("listening for SIP");
    program.stall_log();

    let phone = served_phone("127.9.49.");
    for call in 0..60 {
        ask(&phone, "REGISTER", &format!("unheard-{call}"));
    }
    assert!(program.drain().success());
}

#[test]
fn files_that_may_not_grow_are_a_full_disk_and_end_nothing() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("limited");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let text = CONFIG.replace("127.9.2.", "127.9.50.");
    let config = file("limited", &format!("{text}\n[store]\npath = {folder:?}\n"));
    let mut command = Command::new("/bin/sh");
    // Enough for the numbers of the node, and not for its records.
    command.args(["-c", "ulimit -f 16; exec \"$0\" --config \"$1\"", RM]).arg(config);
    let mut program = Program::start_by(command);
    let lines = program.log_until("listening for SIP");
    assert!(lines.iter().any(|line| line.contains("the file may not grow")), "{lines:#?}");

    let phone = served_phone("127.9.50.");
    let invite = ask(&phone, "INVITE", "limited");
    assert!(invite.starts_with("SIP/2.0 503 "), "{invite}");
    #[expect(clippy::disallowed_methods, reason = "a real process takes its time")]
    let mut texts = (0..100).map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        metrics("127.9.50.1:9131")
    });
    assert!(texts.any(|text| figure(&text, "store_ok") == Some("0")));
    assert!(program.drain().success());
}

#[test]
fn a_store_that_was_cut_off_is_told_in_one_line() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cut-off");
    // It may be there from the last time.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let text = CONFIG.replace("127.9.2.", "127.9.51.");
    let config = file("cut-off", &format!("{text}\n[store]\npath = {folder:?}\n"));
    let mut program = Program::start(RM, &config);
    program.log_until("listening for SIP");
    let phone = served_phone("127.9.51.");
    ask(&phone, "REGISTER", "cut-off");
    assert!(program.drain().success());

    let records = folder.join("records");
    let whole = std::fs::read(&records).unwrap();
    for len in [0, 320, 5000, 80_000, whole.len() - 1] {
        std::fs::write(&records, &whole[..len]).unwrap();
        let mut program = Program::start(RM, &config);
        let lines = program.log_until("listening for SIP");
        let about = lines.iter().filter(|line| line.contains("the store is damaged: ")).count();
        let others = ["panicked", "backtrace", "  at "];
        let has_others = lines.iter().any(|line| others.iter().any(|other| line.contains(other)));
        assert!(about == 1 && !has_others, "cut off at {len}: {lines:#?}");
        assert!(program.drain().success());
    }
}

/// Returns a phone of a network in which somebody owns the slots: it had an answer.
fn served_phone(network: &str) -> UdpSocket {
    let phone = UdpSocket::bind(format!("{network}9:0")).unwrap();
    phone.connect(format!("{network}1:5060")).unwrap();
    ask(&phone, "OPTIONS", "owned");
    phone
}

/// The usual file, with a line in the log for each registration.
fn talkative(name: &str, network: &str) -> PathBuf {
    let text = CONFIG.replace("127.9.2.", network);
    file(name, &format!("{text}\n[log]\nlevel = \"info,rm=debug\"\n"))
}
