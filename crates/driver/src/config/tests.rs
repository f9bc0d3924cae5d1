use super::*;

#[test]
fn a_right_file_gives_its_values() {
    let text = r#"
        name = "a"
        count = 0x10
        on = true
        [links]
        listen = "127.0.0.1:7101"
        wait = 0.5
        ports = "10000-32767"
        [[peer]]
        ip = "127.0.0.2"
        roles = ["gate", "b2b"]
        [[peer]]
    "#;
    let value = read(text, |root| {
        let links = root.table("links");
        let peers: Vec<_> = root
            .tables("peer")
            .iter()
            .map(|peer| {
                let roles = peer.key("roles").list(|role| role.choice(&[("gate", 1), ("b2b", 2)]));
                (peer.key("ip").ip(), roles)
            })
            .collect();
        assert!(!root.table("http").is_present() && links.is_present());
        Some((
            root.key("name").required("a name").string()?,
            root.key("count").integer(0..=16_u8)?,
            root.key("on").boolean()?,
            links.key("listen").addr()?,
            links.key("wait").seconds(Duration::ZERO..=Duration::from_secs(1))?,
            links.key("ports").ports()?,
            peers,
        ))
    });
    let peers = vec![(Some([127, 0, 0, 2].into()), Some(vec![1, 2])), (None, None)];
    let listen = "127.0.0.1:7101".parse().unwrap();
    let wait = Duration::from_millis(500);
    assert_eq!(value, Ok(("a".into(), 16, true, listen, wait, 10000..=32767, peers)));
}

#[test]
fn all_faults_are_told_at_once_with_their_lines() {
    let text = "\
count = 17
on = \"yes\"

[links]
listen = \"localhost:1\"
ports = \"9-1\"
wait = -1
listn = 1

[[peer]]
roles = [\"gate\", \"gat\", 3]

[what]
";
    let faults = read(text, |root| {
        let links = root.table("links");
        links.key("listen").addr();
        links.key("ports").ports();
        links.key("wait").seconds(Duration::ZERO..=Duration::from_secs(1));
        for peer in root.tables("peer") {
            peer.key("roles").list(|role| role.choice(&[("gate", 1), ("b2b", 2)]));
            peer.key("id").required("an id of its own").integer(1..=9);
        }
        root.key("count").integer(0..=16_u8);
        root.key("on").boolean();
        Some(())
    });
    assert_eq!(
        faults.unwrap_err().to_string(),
        "\
line 1: `count` is 17; use 0 to 16
line 2: `on` is \"yes\"; use true or false
line 5: `listen` in [links] is \"localhost:1\"; use an address and port, such as \"127.0.0.1:5060\"
line 6: `ports` in [links] is \"9-1\"; use a range of ports, such as \"10000-32767\"
line 7: `wait` in [links] is -1; use a number of seconds, 0 to 1
line 8: `listn` in [links] is unknown; did you mean `listen`?
line 10: `id` in [peer] is missing: an id of its own
line 11: `roles` in [peer] is \"gat\"; use \"gate\" or \"b2b\"
line 11: `roles` in [peer] is 3; use \"gate\" or \"b2b\"
line 13: `what` is unknown; known here: `count`, `links`, `on`, `peer`
"
    );
}

#[test]
fn faults_that_only_the_reader_sees_have_the_line_of_what_they_are_about() {
    let text = "a = 1\n\nb = 1\n[c]\nd = 1\n";
    let faults = read(text, |root| {
        let (a, b) = (root.key("a").integer(0..=9), root.key("b").integer(0..=9));
        if a == b {
            root.key("b").fault("is the same as `a`");
        }
        let c = root.table("c");
        c.fault("[c] does not fit");
        c.key("d").boolean();
        None::<()>
    });
    let lines: Vec<usize> = faults.unwrap_err().list().iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [3, 4, 5]);
}

#[test]
fn a_syntax_error_stands_alone() {
    let faults = read("a = 1\nb = \nc = 3\n", |root| root.key("a").boolean()).unwrap_err();
    assert_eq!(faults.list().len(), 1);
    assert_eq!(faults.list()[0].line, 2);
}

#[test]
fn tables_in_the_wrong_shape_are_faults() {
    let faults = read("a = 1\nb = [1]\n[[c]]\n", |root| {
        root.table("a");
        root.tables("b");
        root.table("c");
        Some(())
    });
    assert_eq!(
        faults.unwrap_err().to_string(),
        "line 1: `a` is 1; make it a table: [a]\n\
         line 2: `b` is 1; write [[b]]\n\
         line 3: `c` is a list; make it a table: [c]\n"
    );
}

#[test]
fn letters_are_counted_between_words() {
    assert_eq!(distance("listn", "listen"), 1);
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(distance("abc", "abc"), 0);
    assert_eq!(nearest("xyz", &["id", "ip"].into()), None);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in r#"([a-c\[\]="'\n.{}#0-9-]{0,6}\n?){0,12}"#) {
        let _ = read(&text, |root| {
            root.table("a").key("b").integer(0..=9_u16);
            root.tables("b").iter().for_each(|table| drop(table.key("c").string()));
            root.key("c").list(|key| key.ports());
            Some(())
        });
    }
}

#[test]
fn a_file_that_is_no_text_is_told_with_its_line() {
    let path = std::env::temp_dir().join(format!("holdline-config-{}", std::process::id()));
    let sound = |root: &Table<'_>| {
        root.key("a").integer(0..=9_u8);
        Some(())
    };
    for (bytes, line) in
        [(&b"a = 1\n\xff\xfe\0"[..], Some(2)), (b"\x7fELF\0\x80", Some(1)), (b"a = 1", None)]
    {
        std::fs::write(&path, bytes).unwrap();
        let error = load(&path, |text| read(text, sound)).err();
        let text = error.map(|error| error.to_string());
        let expected = line.map(|line| {
            let path = path.display();
            format!("{path}:\nline {line}: what stands here is no text; save the file as UTF-8\n")
        });
        assert_eq!(text, expected);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_byte_order_mark_is_no_fault_and_moves_no_line() {
    let text = "\u{feff}a = 1\nb = 2\n";
    let ask = |also: Option<&'static str>| {
        read(text, |root| {
            root.key("a").integer(0..=9_u8);
            if let Some(key) = also {
                root.key(key).integer(0..=9_u8);
            }
            Some(())
        })
    };
    assert_eq!(ask(Some("b")), Ok(()));
    assert_eq!(ask(None).unwrap_err().list()[0].line, 2);
}

#[test]
fn a_folder_may_be_missing_but_no_file() {
    let file = std::env::temp_dir().join(format!("holdline-folder-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    let ask = |path: &Path| {
        read(&format!("path = {path:?}"), |root| root.key("path").required("a folder").folder())
    };
    let missing = file.with_extension("missing");
    assert_eq!(ask(&missing.join("deep")), Ok(missing.join("deep")));
    assert_eq!(ask(Path::new("relative/and/missing")), Ok("relative/and/missing".into()));
    assert_eq!(ask(&std::env::temp_dir()), Ok(std::env::temp_dir()));
    for wrong in [file.clone(), file.join("below"), PathBuf::new()] {
        let faults = ask(&wrong).unwrap_err().to_string();
        assert!(faults.contains("use the path of a folder"), "{faults}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_list_of_nothing_can_be_a_fault() {
    let ask = |text| {
        read(text, |root| {
            Some(root.key("roles").not_empty("one or more").list(Key::string).unwrap_or_default())
        })
    };
    assert_eq!(
        ask("roles = []").unwrap_err().to_string(),
        "line 1: `roles` is empty: one or more\n"
    );
    assert_eq!(ask("roles = [\"a\"]"), Ok(vec!["a".to_owned()]));
    assert_eq!(ask(""), Ok(vec![]));
}
