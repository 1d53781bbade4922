//! `sawmill topic`.

use crate::support::Place;

#[test]
fn a_topic_is_created_listed_shown_and_deleted() {
    let place = Place::new();
    assert_eq!(place.ok(&["topic", "list"]), "");
    place.ok(&["topic", "create", "emails"]);
    place.ok(&["topic", "create", "clicks", "--shards", "4", "--retention", "7d", "--drops-unread"]);
    assert_eq!(
        place.ok(&["topic", "list"]),
        "TOPIC   SHARDS  RETENTION  UNREAD\nclicks       4        7 d  dropped too\nemails      16        1 d  kept\n"
    );
    let shown = &place.json(&["topic", "show", "clicks"])[0];
    assert_eq!(shown["shards"], 4);
    assert_eq!(shown["retention_seconds"], 604_800.0);
    assert_eq!(shown["drops_unread"], true);

    place.run(&["topic", "delete", "clicks"]).fails(2, &["clicks", "--yes"]);
    assert_eq!(place.json(&["topic", "list"]).len(), 2, "nothing was deleted");
    place.ok(&["topic", "delete", "clicks", "--yes"]);
    assert_eq!(place.json(&["topic", "list"]).len(), 1);
}

#[test]
fn a_deletion_that_was_cut_short_is_finished_when_it_is_repeated() {
    let place = Place::new();
    place.ok(&["topic", "create", "emails"]);
    place.ok(&["work", "emails", "--drain", "--quiet", "--", "true"]);
    // The topic is gone, but lanes that a worker has created meanwhile exist.
    let database = rusqlite::Connection::open(place.path("sawmill.db")).unwrap();
    let kept = || -> i64 { database.query_row("SELECT count(*) FROM topic", [], |row| row.get(0)).unwrap() };
    assert_eq!(database.execute("DELETE FROM topic WHERE name = 'emails'", []).unwrap(), 1);
    assert!(kept() > 0, "there are lanes");
    assert!(place.json(&["topic", "list"]).is_empty());
    place.run(&["topic", "delete", "emails"]).fails(4, &["emails", "topic list"]);
    assert!(kept() > 0, "nothing was deleted");
    place.ok(&["topic", "delete", "emails", "--yes"]);
    assert_eq!(kept(), 0);
    place.run(&["topic", "delete", "emails", "--yes"]).fails(4, &["emails", "topic list"]);
}

#[test]
fn what_is_wrong_with_a_topic_is_said() {
    let place = Place::new();
    place.ok(&["topic", "create", "emails"]);
    place.run(&["topic", "show", "nothing"]).fails(4, &["nothing", "topic list"]);
    place.run(&["topic", "delete", "nothing", "--yes"]).fails(4, &["nothing"]);
    place.run(&["topic", "create", "emails", "--shards", "3"]).fails(1, &["exists with 16 shards"]);
    place.run(&["topic", "create", "emails", "--retention", "7d"]).fails(1, &["emails", "cannot be changed"]);
    place.ok(&["topic", "create", "emails", "--retention", "24h"]);
    place.run(&["topic", "create", "a b"]).fails(2, &["' '"]);
    place.run(&["topic", "create", "x", "--shards", "0"]).fails(2, &["1 to"]);
    place.run(&["topic", "create", "x", "--retention", "soon"]).fails(2, &["soon", "7d"]);
    place.run(&["topic", "create"]).fails(2, &["TOPIC"]);
}
