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
