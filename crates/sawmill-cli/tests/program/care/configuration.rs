//! Wrong configuration is reported clearly, before anything is done.

use std::os::unix::ffi::OsStrExt;

use crate::support::Place;

/// Runs the program with this configuration file.
fn with_file(place: &Place, text: &str) -> crate::support::Ended {
    place.write("sawmill.toml", text);
    place.run(&["work", "t", "--config", "sawmill.toml", "--", "true"])
}

#[test]
fn q19_what_is_wrong_in_the_file_is_named_with_its_line() {
    let place = Place::new();
    for (text, said) in [
        ("stroe = 'sqlite:x.db'", &["line 1", "stroe", "unknown"][..]),
        ("store = 'sqlite:x.db'\n[work]\nconcurency = 3", &["line 3", "concurency", "unknown"]),
        ("[wrok]\nconcurrency = 3", &["line 1", "wrok"]),
        ("[work]\nconcurrency = 'many'", &["line 2", "concurrency", "many"]),
        ("[work]\nconcurrency = -1", &["line 2", "-1"]),
        ("store = 7", &["line 1", "string"]),
        ("[work]\ntimeout = 'soon'", &["line 2", "soon", "no duration", "30s"]),
        ("[work]\ntimeout = 30", &["line 2", "30"]),
        ("[work]\nmemory = 'lots'", &["line 2", "lots", "512M"]),
        ("[work]\nbackoff = '1h..1s'", &["line 2", "1h..1s"]),
        ("[work]\nmetrics = 'here'", &["line 2", "here", "127.0.0.1:9100"]),
        ("[work]\ndelivery = 'twice'", &["line 2", "twice", "at-least-once"]),
        ("log-level = 'loud'", &["line 1", "loud", "debug"]),
        ("store = ", &["line 1"]),
        ("[work]\nconcurrency = 0", &["--concurrency 0"]),
    ] {
        let ended = with_file(&place, text).fails(2, said);
        let names_file =
            text.contains("concurrency = 0") || ended.stderr.contains("configuration file sawmill.toml");
        assert!(names_file, "{}", ended.stderr);
    }
    assert!(!place.path("sawmill.db").exists() && !place.path("x.db").exists(), "nothing was begun");
}

#[test]
fn q19_a_file_that_cannot_be_read_is_wrong_configuration() {
    let place = Place::new();
    let list = |file: &str| place.run(&["topic", "list", "--config", file]);
    list("missing.toml").fails(2, &["missing.toml", "cannot be read", "No such file"]);
    list(".").fails(2, &["configuration file .", "cannot be read", "directory"]);
    std::fs::write(place.path("bytes.toml"), std::ffi::OsStr::from_bytes(b"store = '\xff'").as_bytes())
        .unwrap();
    list("bytes.toml").fails(2, &["bytes.toml", "cannot be read", "UTF-8"]);
    let mut command = place.command(["topic", "list"]);
    let ended = crate::support::Running::start(command.env("SAWMILL_CONFIG", "missing.toml")).wait();
    ended.fails(2, &["missing.toml"]);
}

#[test]
fn q19_a_wrong_url_is_said_and_its_password_is_not() {
    let place = Place::new();
    for (url, said) in [
        ("", &["URL"][..]),
        ("sawmill.db", &["does not begin with the name of an engine", "sqlite:"]),
        ("nothing://user:hunter2@host/x", &["nothing"]),
        ("sqlite:", &["sqlite"]),
    ] {
        let ended = place.run(&["topic", "list", "--store", url]).fails(2, said);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    place.run(&["topic", "list", "--ledger", "nothing://x"]).fails(2, &["nothing"]);
}

#[test]
fn q19_wrong_flags_are_said() {
    let place = Place::new();
    let work = |more: &[&str]| place.run(&[&["work", "t"], more, &["--", "true"]].concat());
    work(&["--metrics", "here"]).fails(2, &["here", "127.0.0.1:9100"]);
    work(&["--metrics", "256.0.0.1:1"]).fails(2, &["256.0.0.1:1"]);
    work(&["--timeout", "soon"]).fails(2, &["soon", "30s"]);
    work(&["--concurrency", "x"]).fails(2, &["concurrency", "x"]);
    work(&["--no-such-flag"]).fails(2, &["--no-such-flag"]);
    place.run(&["work", "t", "--", "./missing"]).fails(2, &["missing"]);
    assert!(!place.path("sawmill.db").exists(), "nothing was begun");
}
