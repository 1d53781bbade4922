//! `sawmill deliver email`.

use sawmill::Push;

use super::authority::Authority;
use super::smtp::Smtp;
use crate::support::library::Library;
use crate::support::{Place, Running};

/// Returns the arguments to send through a server.
fn deliver<'a>(server: &'a Smtp, more: &[&'a str]) -> Vec<&'a str> {
    let server = ["deliver", "email", "mails", "--server", "127.0.0.1", "--port", &server.port];
    [&server[..], &["--from", "Mill <mill@example.org>", "--drain", "--concurrency", "2"], more].concat()
}

fn mail(to: &'static str, text: &'static str) -> Push {
    Push::new(text).header("to", to).header("subject", "Grüße")
}

#[test]
fn g19_mails_are_sent_and_what_the_server_refuses_is_a_dead_letter() {
    let test = "g19_mails_are_sent_and_what_the_server_refuses_is_a_dead_letter";
    let Some(server) = Smtp::start(test, "none", None) else { return };
    let place = Place::new();
    let library = Library::with_topic(&place, "mails");
    let good = library.push("mails", mail("a@example.org, Bea <b@example.org>", "Hällo\n.\nend"));
    let busy = library.push("mails", mail("busy@example.org", "later"));
    let refused = library.push("mails", mail("nobody@example.org", "never"));
    let forged = library.push(
        "mails",
        Push::new("x").header("to", "a@example.org").header("subject", "x\r\nBcc: victim@example.org"),
    );
    place.ok(&deliver(&server, &["--tls", "none", "--backoff", "10ms..10ms"]));

    let mails = server.mails();
    assert_eq!(mails.len(), 2, "{mails:?}");
    let of = |to: &str| mails.iter().find(|mail| mail["to"][0] == to).unwrap();
    let first = of("a@example.org");
    assert_eq!(first["to"], serde_json::json!(["a@example.org", "b@example.org"]));
    assert_eq!(first["from"], "mill@example.org");
    let headers = &first["headers"];
    assert_eq!(headers["message-id"], format!("<{good}@example.org>"));
    assert_eq!((&headers["subject"], &headers["from"]), (&"Grüße".into(), &"Mill <mill@example.org>".into()));
    assert_eq!(headers["to"], "a@example.org, Bea <b@example.org>");
    assert_eq!(
        first["parts"],
        serde_json::json!({ "text/plain": "Hällo\r\n.\r\nend" }),
        "a dot does not end it"
    );
    assert!(of("busy@example.org")["headers"]["message-id"].as_str().unwrap().contains(&busy.to_string()));
    assert!(mails.iter().all(|mail| mail["defects"] == serde_json::json!([])), "{mails:?}");

    let status = library.status("mails");
    assert_eq!((status.done, status.dead), (2, 2));
    let dead = library.dead("mails");
    let why = |id| dead.iter().find(|letter| letter.message.origin() == id).unwrap().reason().to_owned();
    assert!(
        why(refused).contains("550") && why(refused).contains("no such mailbox here"),
        "{}",
        why(refused)
    );
    assert!(why(forged).contains("the subject") && why(forged).contains("line break"), "{}", why(forged));
}

#[test]
fn g19_mails_of_json_have_text_and_html_and_go_where_the_operator_says() {
    let test = "g19_mails_of_json_have_text_and_html_and_go_where_the_operator_says";
    let Some(server) = Smtp::start(test, "none", None) else { return };
    let place = Place::new();
    let library = Library::with_topic(&place, "mails");
    let json = r#"{"to": "victim@example.org", "subject": "Both", "text": "plain", "html": "<b>fat</b>"}"#;
    library.push("mails", json);
    library.push("mails", r#"{"text": "plain"}"#);
    let options = ["--tls", "none", "--json-payload", "--to", "ops@example.org", "--subject", "Default"];
    place.ok(&deliver(&server, &options));
    let mails = server.mails();
    assert_eq!(mails.len(), 2, "{mails:?}");
    assert!(mails.iter().all(|mail| mail["to"] == serde_json::json!(["ops@example.org"])), "{mails:?}");
    let of = |subject: &str| mails.iter().find(|mail| mail["headers"]["subject"] == subject).unwrap();
    assert_eq!(of("Both")["kind"], "multipart/alternative");
    let parts = serde_json::json!({ "text/plain": "plain", "text/html": "<b>fat</b>" });
    assert_eq!(of("Both")["parts"], parts);
    assert_eq!(of("Default")["parts"], serde_json::json!({ "text/plain": "plain" }));
    assert!(mails.iter().all(|mail| mail["defects"] == serde_json::json!([])), "{mails:?}");
}

#[test]
fn g19_the_way_to_the_server_is_encrypted_and_the_user_known() {
    let test = "g19_the_way_to_the_server_is_encrypted_and_the_user_known";
    let authority = Authority::new();
    let certified = authority.certify("127.0.0.1");
    for mode in ["starttls", "implicit"] {
        let Some(server) = Smtp::start(test, mode, Some(&certified)) else { return };
        let place = Place::new();
        let library = Library::with_topic(&place, "mails");
        library.push("mails", mail("a@example.org", "secret things"));
        place.write("password", "s3cret\n");
        place.write("wrong", "guess\n");
        let with =
            |password| ["--tls", mode, "--user", "mill", "--password-file", password, "--retries", "0"];

        // The message is not at fault: it waits for a worker with the right password.
        let mut wrong = place.command(deliver(&server, &with("wrong")));
        let ended = Running::start(authority.trusted_by(&place, &mut wrong)).wait();
        ended.fails(1, &["user and password", "535"]);
        assert_eq!((library.status("mails").dead, server.mails().len()), (0, 0), "{mode}");

        let mut right = place.command(deliver(&server, &with("password")));
        Running::start(authority.trusted_by(&place, &mut right)).wait().ok();
        let mails = server.mails();
        assert_eq!(mails.len(), 1, "{mode}: {mails:?}");
        assert!(mails[0]["encrypted"] == true && mails[0]["user"] == "mill", "{mode}: {mails:?}");

        // A server with an untrusted certificate gets nothing.
        library.push("mails", mail("a@example.org", "secret things"));
        let other = Authority::new();
        let mut distrustful = place.command(deliver(&server, &with("password")));
        Running::start(other.trusted_by(&place, &mut distrustful)).wait().ok();
        let dead = library.dead("mails");
        assert_eq!((dead.len(), server.mails().len()), (1, 1), "{mode}");
        assert!(dead[0].reason().to_lowercase().contains("certificate"), "{mode}: {}", dead[0].reason());
    }
}

#[test]
fn g19_a_server_that_cannot_encrypt_is_told_nothing() {
    let test = "g19_a_server_that_cannot_encrypt_is_told_nothing";
    let Some(server) = Smtp::start(test, "none", None) else { return };
    let place = Place::new();
    let library = Library::with_topic(&place, "mails");
    library.push("mails", mail("a@example.org", "secret things"));
    let waits = || {
        let status = library.status("mails");
        assert_eq!((status.done, status.dead, status.retrying), (0, 0, 0), "no message is at fault");
        assert!(server.mails().is_empty(), "{:?}", server.mails());
    };
    for retries in ["0", "3"] {
        place.run(&deliver(&server, &["--retries", retries])).fails(1, &["STARTTLS"]);
        waits();
    }
    // It cannot get a password either: it has no authentication.
    place.write("password", "s3cret\n");
    let with_user = ["--tls", "none", "--user", "mill", "--password-file", "password", "--retries", "3"];
    place.run(&deliver(&server, &with_user)).fails(1, &["authentication mechanism"]);
    waits();
}

#[test]
fn g19_a_server_that_refuses_us_costs_no_message() {
    let test = "g19_a_server_that_refuses_us_costs_no_message";
    let place = Place::new();
    let library = Library::with_topic(&place, "mails");
    library.push("mails", mail("a@example.org", "x"));
    let Some(blocking) = Smtp::start(test, "blocked", None) else { return };
    let Some(server) = Smtp::start(test, "none", None) else { return };
    let plain = ["--tls", "none", "--retries", "0"];
    place.run(&deliver(&blocking, &plain)).fails(1, &["takes no e-mail from us", "your address is blocked"]);
    let stranger =
        deliver(&server, &plain).iter().map(|arg| arg.replace("mill@", "stranger@")).collect::<Vec<_>>();
    let stranger: Vec<&str> = stranger.iter().map(String::as_str).collect();
    place.run(&stranger).fails(1, &["takes no e-mail from us", "not owned"]);
    let status = library.status("mails");
    assert_eq!((status.done, status.dead, status.retrying), (0, 0, 0), "no message is at fault");
    place.ok(&deliver(&server, &plain));
    assert_eq!(server.mails().len(), 1);
}

#[test]
fn g19_a_server_that_is_away_costs_no_message() {
    let place = Place::new();
    let library = Library::with_topic(&place, "mails");
    library.push("mails", mail("a@example.org", "x"));
    // Nothing listens on a port that was bound and released.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let away = ["deliver", "email", "mails", "--server", "127.0.0.1", "--port", &port, "--tls", "none"];
    // More runs than the retries of a command that cannot be started.
    let often = ["--from", "mill@example.org", "--backoff", "1ms..1ms", "--limit", "8"];
    place.ok(&[&away[..], &often].concat());
    let status = library.status("mails");
    assert_eq!((status.done, status.dead), (0, 0));
}

#[test]
fn g19_only_what_the_server_cannot_send_is_a_dead_letter() {
    let test = "g19_only_what_the_server_cannot_send_is_a_dead_letter";
    let Some(server) = Smtp::start(test, "none", None) else { return };
    let place = Place::new();
    let library = Library::with_topic(&place, "mails");
    let foreign = library.push("mails", mail("jörg@example.org", "x"));
    library.push("mails", mail("a@example.org", "x"));
    place.ok(&deliver(&server, &["--tls", "none", "--retries", "3"]));
    let dead = library.dead("mails");
    assert_eq!((dead.len(), server.mails().len()), (1, 1));
    assert_eq!(dead[0].message.origin(), foreign);
    assert!(dead[0].reason().contains("SMTPUTF8"), "{}", dead[0].reason());

    // Addresses that the operator has set are no message's fault.
    library.push("mails", mail("a@example.org", "x"));
    let everybody = ["--tls", "none", "--retries", "3", "--to", "jörg@example.org"];
    place.run(&deliver(&server, &everybody)).fails(1, &["SMTPUTF8"]);
    assert_eq!((library.status("mails").dead, server.mails().len()), (1, 1));
}
