//! Invariants beyond the order of starts: causes, retries, names, pauses, limits, seeks, trims. Each has a
//! correct history and a wrong one.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::{Fate, Lane, NewClaim, Rules, ShardState};
use sawmill::engine::storage::{EntryKey, Position, Span};
use sawmill::{Message, Timestamp};
use sawmill_sim::checker::{GroupRules, How, Invariant, Target};

use crate::world::{BACKOFF, SNOOZE, TTL, World, group_name, worker};

/// Creates a message that worker `a` claims, starts, and ends like this.
fn tried(world: &mut World, how: How) -> (Message, sawmill::engine::model::Token) {
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.end(run, how);
    (message, token)
}

#[test]
fn i8_an_acknowledged_seek_has_moved_every_shard() {
    let mut world = World::new(false, false);
    world.push(None);
    world.claim_block(0, 0, 1);
    world.book.seek_begins(0, &world.topic.clone(), Target::Start);
    world.state.seek(Position::default());
    world.commit(0);
    assert_eq!(world.found(), None);
    world.book.seek_acknowledged();
    assert_eq!(world.found(), Some(Invariant::Cursor), "shard 1 was not moved");
}

#[test]
fn i8_a_seek_goes_where_it_was_sent() {
    for (target, fine) in [
        (Target::Now, true),
        (Target::Start, false),
        (Target::Time(Timestamp::from_millis(1)), false),
        (Target::Time(Timestamp::from_millis(2)), true),
    ] {
        let mut world = World::new(false, false);
        world.push(None);
        let (message, token) = (world.push(None), world.claim_block(0, 0, 1));
        let _ = (message, token);
        world.book.seek_begins(0, &world.topic.clone(), target);
        world.state.seek(Position::from_number(2));
        world.commit(0);
        assert_eq!(world.found(), (!fine).then_some(Invariant::Cursor), "{target:?}");
    }
}

#[test]
fn i10_each_end_counts_as_what_it_is() {
    let all = [Fate::Done, Fate::Retried, Fate::Dead, Fate::Dropped, Fate::Cancelled];
    for (is, counted) in all.into_iter().flat_map(|is| all.map(|counted| (is, counted))) {
        let rules = GroupRules { logs_failures: is == Fate::Dropped, ..World::rules(false, false) };
        let mut world = World::with(rules);
        let message = world.push(None);
        let token = world.claim_block(0, 0, 1);
        let how = match is {
            Fate::Done => Some(How::Done),
            Fate::Retried => Some(How::Failed),
            Fate::Dead | Fate::Dropped => Some(How::GaveUp),
            Fate::Cancelled => None,
        };
        if let Some(how) = how {
            let run = world.start(0, &message, token);
            world.end(run, how);
        }
        let due = world.wall();
        match is {
            Fate::Retried => drop(world.copy(&message, Lane::Retry, Some(due))),
            Fate::Dead => drop(world.copy(&message, Lane::Dead, None)),
            Fate::Cancelled => world.cancel(message.id),
            Fate::Done | Fate::Dropped => {}
        }
        assert_eq!(world.found(), None, "{is:?}");
        world.settle(0, token, 0, counted);
        let found = (is != counted).then_some(Invariant::CountsConserve);
        assert_eq!(world.found(), found, "{is:?}, counted as {counted:?}");
    }
}

#[test]
fn i11_what_the_dead_held_starts_again_within_a_ttl_and_five_seconds() {
    for starts in [true, false] {
        let mut world = World::new(false, false);
        let message = world.push(None);
        let token = world.claim_block(0, 0, 1);
        world.start(0, &message, token);
        world.book.dies_in_calm(world.nodes[0]);
        world.now += TTL;
        world.write(1, EntryKey::member(&group_name(), "a"), None);
        let adopted = world.state.adopt(&worker(1), Rules::default(), |_| true);
        world.commit(1);
        if starts {
            world.start(1, &message, adopted[0].token);
        }
        world.now += Duration::from_secs(5);
        world.book.claims_of_dead_taken_over();
        assert_eq!(world.found(), (!starts).then_some(Invariant::Drains), "adopted, and started: {starts}");
    }
}

#[test]
fn i12_of_one_name_two_are_not_live() {
    let mut world = World::new(false, false);
    world.push(None);
    let second = world.push(None);
    world.book.named(0, "name");
    world.book.named(1, "name");
    world.book.check_only_live(&world.topic.clone(), &second, &|_| Vec::new());
    assert_eq!(world.found(), Some(Invariant::Unique));
}

#[test]
fn i12_no_name_stays_taken_by_a_message_that_is_there() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let taken = |id: &str, sure| Bytes::from(format!(r#"{{"names":{{"n":{{"id":"{id}","sure":{sure}}}}}}}"#));
    let never = sawmill::MessageId::from_u128(7).to_string();
    world.book.names_are_free("uniques/t1/00", &taken(&never, false));
    assert_eq!(world.found(), None, "the message of that name never came");
    for sure in [false, true] {
        let mut world = World::new(false, false);
        world.push(None);
        world.book.names_are_free("uniques/t1/00", &taken(&message.id.to_string(), sure));
        assert_eq!(world.found(), Some(Invariant::Unique), "sure: {sure}");
    }
}

#[test]
fn i12_a_push_is_not_answered_with_what_was_settled_before_it_began() {
    let mut world = World::new(false, false);
    let (message, token) = tried(&mut world, How::Done);
    let began = world.now;
    world.now += Duration::from_secs(1);
    world.settle(0, token, 0, Fate::Done);
    world.book.answered(&[1], &[message.id], began);
    assert_eq!(world.found(), None, "it was settled while the push was under way");
    world.book.answered(&[1], &[message.id], world.now + Duration::from_millis(1));
    assert_eq!(world.found(), Some(Invariant::Unique));
}

#[test]
fn i13_what_was_cancelled_in_hand_is_not_started_after_a_ttl() {
    for (after, found) in [(TTL, None), (TTL + Duration::from_millis(1), Some(Invariant::Cancelled))] {
        let mut world = World::new(false, false);
        let message = world.push(None);
        let token = world.claim_block(0, 0, 1);
        world.book.cancelled(message.id);
        world.now += after;
        world.start(0, &message, token);
        assert_eq!(world.found(), found);
    }
}

#[test]
fn i13_what_was_cancelled_is_not_started_under_a_later_claim() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.book.cancelled(message.id);
    let token = world.claim_block(0, 0, 1);
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::Cancelled));
}

#[test]
fn i13_nothing_is_cancelled_that_nobody_wants_to_cancel() {
    let mut world = World::new(false, false);
    let (one, other) = (world.push(None), world.push(None));
    world.cancel(one.id);
    assert_eq!(world.found(), None);
    world.write(0, EntryKey::cancel(&world.topic.clone(), other.id), Some("{}".into()));
    assert_eq!(world.found(), Some(Invariant::Cancelled));
}

#[test]
fn i14_a_paused_group_starts_nothing() {
    let mut world = World::new(false, false);
    let (first, second) = (world.push(None), world.push(None));
    let token = world.claim_block(0, 0, 2);
    world.book.paused(0, "t", world.now);
    world.now += TTL;
    world.start(0, &first, token);
    assert_eq!(world.found(), None, "its worker may not have looked yet");
    world.now += Duration::from_millis(1);
    world.start(0, &second, token);
    assert_eq!(world.found(), Some(Invariant::Paused));
}

#[test]
fn i15_no_more_run_than_may() {
    let mut world = World::with(GroupRules { limit: Some(1), ..World::rules(false, false) });
    let (first, second) = (world.push(None), world.push(None));
    let token = world.claim_block(0, 0, 2);
    world.start(0, &first, token);
    assert_eq!(world.found(), None);
    world.start(0, &second, token);
    assert_eq!(world.found(), Some(Invariant::Limited));
}

#[test]
fn i15_a_rate_holds_over_many_seconds() {
    let mut world = World::with(GroupRules { rate: Some(5), ..World::rules(false, false) });
    let messages: Vec<Message> = (0..60).map(|_| world.push(None)).collect();
    let token = world.claim_block(0, 0, 60);
    let mut started = 0;
    for message in &messages {
        // 8 per second could be saved-up starts, but not for long.
        world.now += Duration::from_millis(125);
        let run = world.start(0, message, token);
        world.end(run, How::Done);
        started += 1;
        if world.found().is_some() {
            break;
        }
    }
    assert_eq!(world.found(), Some(Invariant::Limited));
    assert!(started > 20, "{started}");
}

#[test]
fn i15_no_more_is_claimed_than_may_be() {
    let mut world = World::with(GroupRules { max_in_flight: Some(2), ..World::rules(false, false) });
    for _ in 0..3 {
        world.push(None);
    }
    world.claim_block(0, 0, 2);
    assert_eq!(world.found(), None);
    world.claim_block(0, 2, 3);
    assert_eq!(world.found(), Some(Invariant::Limited));
}

#[test]
fn i17_a_dead_letter_needs_a_cause() {
    for (how, found) in
        [(How::GaveUp, None), (How::Failed, Some(Invariant::GivenUp)), (How::Done, Some(Invariant::GivenUp))]
    {
        let mut world = World::new(false, false);
        let (message, _) = tried(&mut world, how);
        world.copy(&message, Lane::Dead, None);
        assert_eq!(world.found(), found, "{how:?}");
    }
}

#[test]
fn i17_what_never_started_is_not_given_up() {
    for once in [false, true] {
        let mut world = World::new(false, once);
        let message = world.push(None);
        world.claim_block(0, 0, 1);
        world.copy(&message, Lane::Dead, None);
        assert_eq!(world.found(), Some(Invariant::GivenUp), "at most once: {once}");
    }
}

#[test]
fn i17_what_was_started_under_at_most_once_is_given_up() {
    let mut world = World::new(false, true);
    let (message, _) = tried(&mut world, How::Dropped);
    world.copy(&message, Lane::Dead, None);
    assert_eq!(world.found(), None);
}

#[test]
fn i17_a_message_is_given_up_after_ten_deaths_and_not_after_nine() {
    for (deaths, found) in [(10, None), (9, Some(Invariant::GivenUp))] {
        let mut world = World::new(false, false);
        let message = world.push(None);
        world.claim_block(0, 0, 1);
        for death in 0..deaths {
            world.take_over((death + 1) % 2, Rules::default());
        }
        world.copy(&message, Lane::Dead, None);
        assert_eq!(world.found(), found, "{deaths} deaths");
    }
}

#[test]
fn i4_a_message_is_not_started_after_ten_deaths() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.claim_block(0, 0, 1);
    for death in 0..10 {
        let node = (death + 1) % 2;
        let token = world.take_over(node, Rules::default());
        assert_eq!(world.found(), None, "after {death} deaths");
        world.start(node, &message, token);
    }
    assert_eq!(world.found(), Some(Invariant::AtLeastOnce));
}

#[test]
fn i17_what_was_sent_back_needs_a_cause_of_its_own() {
    for (fails, found) in [(true, None), (false, Some(Invariant::GivenUp))] {
        let mut world = World::new(false, false);
        let (message, token) = tried(&mut world, How::GaveUp);
        let letter = world.copy(&message, Lane::Dead, None);
        world.settle(0, token, 0, Fate::Dead);
        let again = world.send_back(&letter);
        if fails {
            let (key, number) = (EntryKey::shard(&world.lane(Lane::Retry), &group_name(), 0), 2);
            let mut state = ShardState::default();
            let (span, end) = (Span::from_range(0, number, 1), Position::from_number(number));
            let token =
                state.claim_block(&worker(0), Rules::default(), &NewClaim { span, end, count: 1 }).unwrap();
            world.write(0, key, Some(state.encode()));
            let run = world.start(0, &again, token);
            world.end(run, How::GaveUp);
        }
        world.copy(&again, Lane::Dead, None);
        assert_eq!(world.found(), found, "it gave up again: {fails}");
    }
}

#[test]
fn i17_under_at_most_once_a_lost_claim_is_a_cause_and_one_that_was_given_back_is_none() {
    for lost in [true, false] {
        let mut world = World::new(false, true);
        let message = world.push(None);
        let token = world.claim_block(0, 0, 1);
        if lost {
            world.now += TTL;
            world.write(1, EntryKey::member(&group_name(), "a"), None);
        } else {
            world.state.give_back(&worker(0), token).unwrap();
            world.commit(0);
        }
        world.state.adopt(&worker(1), Rules { ordered: false, once: true }, |_| true);
        world.commit(1);
        world.copy(&message, Lane::Dead, None);
        assert_eq!(world.found(), (!lost).then_some(Invariant::GivenUp), "lost: {lost}");
    }
}

#[test]
fn i18_there_are_no_more_attempts_than_the_plan_has() {
    let mut world = World::new(false, false);
    let (message, token) = tried(&mut world, How::Failed);
    for attempt in 2..=4 {
        assert_eq!(world.found(), None, "attempt {attempt} is to come");
        world.now += 2 * BACKOFF;
        let run = world.start(0, &message, token);
        world.end(run, How::Failed);
    }
    assert_eq!(world.found(), Some(Invariant::Retried), "two retries are three attempts");
}

#[test]
fn i18_a_wait_in_place_takes_its_time() {
    for (wait, found) in
        [(BACKOFF * 3 / 4, None), (BACKOFF * 3 / 4 - Duration::from_millis(10), Some(Invariant::Retried))]
    {
        let mut world = World::new(true, false);
        let (message, token) = tried(&mut world, How::Failed);
        // The first retry is immediate.
        let run = world.start(0, &message, token);
        world.end(run, How::Failed);
        world.now += wait;
        world.start(0, &message, token);
        assert_eq!(world.found(), found, "{wait:?}");
    }
}

#[test]
fn i18_a_snooze_takes_its_time() {
    let mut world = World::new(true, false);
    let (message, token) = tried(&mut world, How::Snoozed);
    world.now += SNOOZE - Duration::from_millis(10);
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::Retried));
}

#[test]
fn i18_a_retry_is_due_when_the_plan_says() {
    for (after, found) in [
        (BACKOFF * 3 / 4, None),
        (BACKOFF * 5 / 4, None),
        (BACKOFF / 2, Some(Invariant::Retried)),
        (BACKOFF * 2, Some(Invariant::Retried)),
    ] {
        let mut world = World::new(false, false);
        let (message, token) = tried(&mut world, How::Failed);
        let run = world.start(0, &message, token);
        world.end(run, How::Failed);
        let due = world.wall() + after;
        world.copy(&message, Lane::Retry, Some(due));
        assert_eq!(world.found(), found, "{after:?}");
    }
}

#[test]
fn i18_a_retry_without_a_due_time_is_due_at_once() {
    let mut world = World::new(false, false);
    let (message, token) = tried(&mut world, How::Failed);
    let run = world.start(0, &message, token);
    world.end(run, How::Failed);
    world.copy(&message, Lane::Retry, None);
    assert_eq!(world.found(), Some(Invariant::Retried));
}

#[test]
fn i18_a_snoozed_message_is_due_when_it_said() {
    for (after, found) in [
        (SNOOZE, None),
        (SNOOZE / 2, Some(Invariant::Retried)),
        (SNOOZE + Duration::from_millis(10), Some(Invariant::Retried)),
    ] {
        let mut world = World::new(false, false);
        let (message, _) = tried(&mut world, How::Snoozed);
        let due = world.wall() + after;
        world.copy(&message, Lane::Retry, Some(due));
        assert_eq!(world.found(), found, "{after:?}");
    }
}

#[test]
fn i19_a_key_has_one_shard() {
    let mut world = World::new(false, false);
    world.push_to(0, 1, Some("one"));
    world.push_to(1, 1, Some("other"));
    world.push_to(1, 2, None);
    assert_eq!(world.found(), None);
    world.push_to(1, 3, Some("one"));
    assert_eq!(world.found(), Some(Invariant::OneShard));
}

#[test]
fn i1_nothing_is_trimmed_that_a_group_has_not_read() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.now += Duration::from_secs(100);
    world.book.set_time(world.now, world.wall());
    world.book.trimmed(&world.topic.clone(), 0, 1, &message);
    assert_eq!(world.found(), Some(Invariant::NothingLost), "the group has no entry of this shard");
}

#[test]
fn i20_nothing_is_trimmed_before_its_retention_is_over() {
    for (age, found) in [(Duration::from_secs(60), None), (Duration::from_secs(59), Some(Invariant::Trimmed))]
    {
        let mut world = World::new(false, false);
        let (message, token) = tried(&mut world, How::Done);
        world.settle(0, token, 0, Fate::Done);
        world.now = Duration::from_millis(1) + age;
        world.book.set_time(world.now, world.wall());
        world.book.trimmed(&world.topic.clone(), 0, 1, &message);
        assert_eq!(world.found(), found, "{age:?}");
    }
}

#[test]
fn i20_a_trim_drops_what_is_old() {
    let mut world = World::new(false, false);
    let left = [(0, 1, world.push(None))];
    world.book.set_time(world.now, world.wall());
    world.book.nothing_needless_is_left(&world.topic.clone(), &left, world.wall());
    assert_eq!(world.found(), None, "it is young");
    let trimmed_at = world.wall();
    world.now += Duration::from_secs(60);
    world.book.set_time(world.now, world.wall());
    world.book.nothing_needless_is_left(&world.topic.clone(), &left, trimmed_at);
    assert_eq!(world.found(), None, "it was young");
    world.book.nothing_needless_is_left(&world.topic.clone(), &left, world.wall());
    assert_eq!(world.found(), Some(Invariant::Trimmed));
}
