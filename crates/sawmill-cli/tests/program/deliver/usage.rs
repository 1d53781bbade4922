//! Usage errors before the first delivery, and the end of a worker by signals.

use rustix::process::Signal;

use super::web::{Web, page};
use crate::support::library::Library;
use crate::support::{Place, until};

#[test]
fn g19_wrong_usage_is_refused_before_anything_begins() {
    let place = Place::new();
    place.write("empty", "\n");
    place.write("password", "s3cret\n");
    let email = ["deliver", "email", "t", "--server", "smtp.example.org", "--from", "mill@example.org"];
    let url = ["deliver", "webhook", "t", "--url"];
    for (args, said) in [
        (&["deliver", "email", "t", "--server", "s", "--from", "nobody"][..], &["--from", "no address"][..]),
        (&["deliver", "email", "t", "--server", "s.org:25/", "--from", "a@b.org"], &["--server", "--port"]),
        (&[&email[..], &["--to", "a@b.org\r\nBcc: x@y.org"]].concat(), &["--to", "line break"]),
        (&[&email[..], &["--subject", "a\nb"]].concat(), &["--subject", "line break"]),
        (&[&email[..], &["--user", "mill"]].concat(), &["--password-file"]),
        (
            &[&email[..], &["--user", "m", "--password-file", "nowhere"]].concat(),
            &["nowhere", "cannot be read"],
        ),
        (&[&email[..], &["--user", "m", "--password-file", "empty"]].concat(), &["is empty"]),
        (&[&email[..], &["--user", "m", "--password-env", "NO_SUCH"]].concat(), &["NO_SUCH", "not found"]),
        (&[&email[..], &["--password-file", "password"]].concat(), &["--user"]),
        (
            &[&email[..], &["--tls", "none", "--user", "m", "--password-file", "password"]].concat(),
            &["unencrypted"],
        ),
        (&[&email[..], &["--timeout", "0s"]].concat(), &["--timeout"]),
        (&["deliver", "webhook", "t"], &["--url"]),
        (&[&url[..], &["example.org"]].concat(), &["--url", "is not valid"]),
        (&[&url[..], &["http://example.org/"]].concat(), &["without encryption", "https"]),
        (&[&url[..], &["https://u:hidden@example.org/"]].concat(), &["--token-file"]),
        (&[&url[..], &["https://10.0.0.1/"]].concat(), &["--allow-private"]),
        (&[&url[..], &["https://example.org/", "--allow-private=home"]].concat(), &["home", "10.0.0.0/8"]),
        (&[&url[..], &["https://example.org/", "--secret-file", "nowhere"]].concat(), &["--secret-file"]),
        (&[&url[..], &["https://example.org/", "--content-type", "a\nb"]].concat(), &["--content-type"]),
        (
            &["deliver", "webhook", "t", "--url-header", "callback", "--token-file", "password"],
            &["--token-file", "--url-header", "whoever may push"],
        ),
        (
            &["deliver", "webhook", "t", "--url-header", "callback", "--token-env", "HOME"],
            &["--token-env", "--url-header"],
        ),
        (&["deliver", "forward", "t"], &["--to"]),
        (&["deliver", "forward", "t", "--to", "t"], &["to itself"]),
        (&["deliver", "forward", "t", "--to-store", "nosuch:store"], &["--to-store", "nosuch"]),
        (&["deliver", "forward", "t", "--to", "a b"], &["a b"]),
    ] {
        let ended = place.run(args).fails(2, said);
        assert!(!ended.stderr.contains("hidden") && !ended.stderr.contains("s3cret"), "{}", ended.stderr);
    }
    let ended = place.run(&["deliver", "forward", "t", "--to", "u", "--no-create"]);
    ended.fails(4, &["topic u", "does not exist"]);
}

#[test]
fn g19_a_worker_that_is_told_to_end_does_and_leaves_nothing_half_done() {
    let place = Place::new();
    let library = Library::with_topic(&place, "hooks");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let web = Web::start(None, |_, _| page(200, ""));
    let url = |port: u16| format!("http://127.0.0.1:{port}/");
    let start = |url: &str| place.start(&["deliver", "webhook", "hooks", "--url", url, "--allow-private"]);
    let id = library.push("hooks", "x");

    let worker = start(&url(silent.local_addr().unwrap().port()));
    until("it is under way", || library.status("hooks").claimed == 1);
    // The server accepts the connection and never answers.
    let (_held, _) = silent.accept().unwrap();
    worker.signal(Signal::USR2);
    worker.until_said(&format!("running {id} of hooks, attempt 1, for "));
    worker.signal(Signal::TERM);
    worker.wait().ok();
    let status = library.status("hooks");
    assert_eq!((status.done, status.dead, status.retrying), (0, 0, 0), "it is left to others");

    let worker = start(&url(web.port));
    until("another has done it", || library.status("hooks").done == 1);
    assert_eq!(web.received()[0].header("sawmill-id"), Some(id.to_string().as_str()));
    worker.signal(Signal::INT);
    worker.wait().ok();
}
