//! The rules of messages in flight, one by one.

use bytes::Bytes;
use sawmill_engine::model::{Claim, Failure, Message, MessageId, Progress, Token};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Entry, EntryKey, Position, Span, Version};

use super::*;
use crate::store::cancel::CancelledMessages;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

fn inflight(slots: usize) -> InFlight {
    inflight_with(
        InFlightLimits {
            slots,
            batch: 1,
            most: 1000,
            ahead: 100,
            starts: u64::MAX,
            strict: false,
            ordered: false,
        },
        [Gate::default()],
    )
}

/// Makes the in-flight state of a member that has refreshed, with one topic for each gate.
fn inflight_with(limits: InFlightLimits, gates: impl IntoIterator<Item = Gate>) -> InFlight {
    let mut inflight = InFlight::new(limits, gates);
    inflight.join(WorkerId::new("me"), at(1000));
    inflight.record_refresh(at(5000), &[], at(0));
    inflight
}

fn message(number: u128, key: &str) -> Message {
    Message {
        id: MessageId::from_u128(number),
        key: (!key.is_empty()).then(|| Bytes::from(key.to_owned())),
        payload: Bytes::new(),
        headers: Default::default(),
        due: None,
        created: Timestamp::default(),
    }
}

fn claim(token: u64, count: usize) -> Claim {
    Claim {
        token: Token(token),
        owner: Some(WorkerId::new("me")),
        from: Position::default(),
        span: Span::default(),
        count: count as u32,
        done: Progress::default(),
        failures: BTreeMap::new(),
        pass: 0,
        deaths: 0,
        once: false,
        lost: false,
        started: Progress::default(),
        stamp: None,
    }
}

/// Takes messages with these keys in hand, as one claim on one source.
fn take(inflight: &mut InFlight, source: usize, keys: &[&str]) -> Ticket {
    take_claim(inflight, source, keys, claim(source as u64 + 1, keys.len()))
}

fn take_claim(inflight: &mut InFlight, source: usize, keys: &[&str], claim: Claim) -> Ticket {
    take_of(inflight, 0, source, keys, claim)
}

fn take_of(inflight: &mut InFlight, topic: usize, source: usize, keys: &[&str], claim: Claim) -> Ticket {
    let messages = (0..).zip(keys).map(|(i, key)| message(i, key)).collect();
    let (cancelled_messages, cancelled) = (Arc::default(), Arc::default());
    let incoming = IncomingClaim { source, topic, claim, messages, cancelled_messages, cancelled };
    inflight.take(incoming, |_| Some(SECOND), at(0))
}

fn start(inflight: &mut InFlight) -> Option<HeldMessage> {
    inflight.next(at(1)).map(|start| start.held)
}

fn finish(inflight: &mut InFlight, held: HeldMessage) {
    inflight.finish(held, Disposition::Settled(Fate::Done), Duration::ZERO, at(1));
}

fn failure() -> Option<Failure> {
    Some(Failure::new(1, Timestamp::default(), "me", "no"))
}

#[test]
fn f10_messages_of_one_key_never_run_at_the_same_time() {
    let mut inflight = inflight(4);
    take(&mut inflight, 0, &["a", "a", "b", ""]);
    let first = start(&mut inflight).unwrap();
    let rest = [start(&mut inflight).unwrap().index, start(&mut inflight).unwrap().index];
    assert_eq!((first.index, rest), (0, [2, 3]));
    assert!(start(&mut inflight).is_none(), "the second of key a waits");
    finish(&mut inflight, first);
    assert_eq!(start(&mut inflight).unwrap().index, 1);
}

#[test]
fn keys_hold_across_claims_and_sources() {
    let mut inflight = inflight(4);
    take(&mut inflight, 0, &["a"]);
    take(&mut inflight, 1, &["a"]);
    let first = start(&mut inflight).unwrap();
    assert!(start(&mut inflight).is_none());
    finish(&mut inflight, first);
    assert!(start(&mut inflight).is_some());
}

#[test]
fn nothing_starts_past_the_lease_or_without_membership() {
    let mut inflight = inflight(1);
    take(&mut inflight, 0, &[""]);
    assert!(inflight.next(at(1000)).is_none());
    assert_eq!(inflight.capacity(0, at(1000)), 0);
    inflight.renew(at(2000));
    assert!(inflight.next(at(1000)).is_some());
    let mut inflight = InFlight::new(
        InFlightLimits {
            slots: 1,
            batch: 1,
            most: 10,
            ahead: 10,
            starts: u64::MAX,
            strict: false,
            ordered: false,
        },
        [Gate::default()],
    );
    take(&mut inflight, 0, &[""]);
    assert!(inflight.next(at(1)).is_none());
}

#[test]
fn a_message_that_waits_in_place_holds_up_its_key_alone() {
    let mut inflight = inflight(4);
    take(&mut inflight, 0, &["a", "a", "b"]);
    let first = start(&mut inflight).unwrap();
    inflight.finish(
        first,
        Disposition::Again { after: SECOND * 5, failure: failure() },
        Duration::ZERO,
        at(1),
    );
    assert_eq!(start(&mut inflight).unwrap().index, 2);
    assert!(start(&mut inflight).is_none());
    assert_eq!(inflight.next_wait(at(1)), Some(at(6)));
    let again = inflight.next(at(6)).unwrap().held;
    assert_eq!((again.index, again.attempt()), (0, 2));
    assert_eq!(inflight.reports(0)[0].1.failures, [(0, 1)].into(), "the claim counts the failure");
}

#[test]
fn a_retry_at_once_keeps_its_place() {
    let mut inflight = inflight(1);
    take(&mut inflight, 0, &["", ""]);
    let first = start(&mut inflight).unwrap();
    inflight.finish(
        first,
        Disposition::Again { after: Duration::ZERO, failure: failure() },
        Duration::ZERO,
        at(1),
    );
    let again = start(&mut inflight).unwrap();
    assert_eq!((again.index, again.attempt()), (0, 2));
}

#[test]
fn a_failed_message_is_settled_only_when_its_copy_is_in_the_log() {
    let mut inflight = inflight(1);
    let ticket = take(&mut inflight, 0, &["a", "a"]);
    let first = start(&mut inflight).unwrap();
    inflight.finish(
        first,
        Disposition::OnLane(LaneCopy::Dead { reason: "no".into() }, failure()),
        Duration::ZERO,
        at(1),
    );
    assert!(inflight.reports(0).is_empty() && start(&mut inflight).is_none());
    assert_eq!(inflight.settling().len(), 1, "however often they are asked for");
    let [failed] = inflight.settling().try_into().ok().unwrap();
    assert!(inflight.has_settling(), "they stay until their copy is in the log");
    inflight.settled_on_lane(failed, Fate::Dead);
    assert!(!inflight.has_settling());
    let reports = inflight.reports(0);
    assert_eq!((reports[0].0, reports[0].1.fates[&Fate::Dead].len()), (ticket, 1));
    assert_eq!(start(&mut inflight).unwrap().index, 1);
}

#[test]
fn a_claim_leaves_the_bench_when_its_last_report_is_written() {
    let mut inflight = inflight(2);
    let ticket = take(&mut inflight, 0, &["", ""]);
    let (first, second) = (start(&mut inflight).unwrap(), start(&mut inflight).unwrap());
    finish(&mut inflight, first);
    let report = inflight.reports(0).remove(0).1;
    finish(&mut inflight, second);
    inflight.reported(ticket, &report);
    assert_eq!(inflight.dirty(), [0], "the second one came after the report");
    let report = inflight.reports(0).remove(0).1;
    inflight.reported(ticket, &report);
    assert!(inflight.is_empty() && inflight.in_hand() == 0);
}

#[test]
fn f14_what_a_superseded_handler_says_counts_for_nothing() {
    let mut inflight = inflight(2);
    let ticket = take(&mut inflight, 0, &["a", "a"]);
    let running = inflight.next(at(1)).unwrap();
    inflight.lose(ticket);
    assert!(running.cancelled.is_cancelled(), "its handler is told");
    // The key stays taken as long as the old handler runs in this process.
    take(&mut inflight, 0, &["a"]);
    assert!(start(&mut inflight).is_none());
    finish(&mut inflight, running.held);
    assert!(inflight.reports(0).is_empty());
    assert!(start(&mut inflight).is_some());
}

#[test]
fn a_closed_source_starts_nothing_and_can_be_given_back_when_it_is_idle() {
    let mut inflight = inflight(4);
    take(&mut inflight, 0, &["a", "a", "b"]);
    take(&mut inflight, 1, &["c"]);
    let running = start(&mut inflight).unwrap();
    inflight.close(0);
    assert!(!inflight.is_closed(0), "one still runs");
    assert_eq!(start(&mut inflight).unwrap().message.key.as_deref(), Some(&b"c"[..]), "other sources go on");
    finish(&mut inflight, running);
    assert!(inflight.is_closed(0) && !inflight.is_closed(1));
    assert_eq!(inflight.reports(0)[0].1.fates[&Fate::Done].len(), 1, "what was done is reported with it");
    inflight.gave_back(0);
    assert!(inflight.tokens(0).is_empty());
}

#[test]
fn an_adopted_claim_skips_what_is_done_and_waits_for_what_failed() {
    let mut inflight = inflight(4);
    let mut adopted = claim(7, 4);
    adopted.done = [0, 2].into_iter().collect();
    adopted.failures = [(1, 3)].into();
    adopted.deaths = 1;
    take_claim(&mut inflight, 0, &["", "", "", ""], adopted);
    let held = start(&mut inflight).unwrap();
    assert_eq!((held.index, held.attempt()), (3, 2), "a death counts as an attempt");
    let held = inflight.next(at(2)).unwrap().held;
    assert_eq!((held.index, held.attempt()), (1, 5));
}

#[test]
fn a_block_that_is_gone_from_the_log_is_dropped() {
    let mut inflight = inflight(1);
    let mut adopted = claim(7, 3);
    adopted.done = [1].into_iter().collect();
    let incoming = IncomingClaim {
        source: 0,
        topic: 0,
        claim: adopted,
        messages: Vec::new(),
        cancelled_messages: Arc::default(),
        cancelled: Arc::default(),
    };
    inflight.take(incoming, |_| None, at(0));
    assert_eq!(inflight.reports(0)[0].1.fates[&Fate::Dropped].iter().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn what_is_buried_never_starts_and_its_key_waits_until_it_is_dead() {
    let mut inflight = inflight(4);
    let ticket = take(&mut inflight, 0, &["a", "a", "b", ""]);
    inflight.bury(ticket, |_| true, "lost");
    take(&mut inflight, 1, &["a", "c"]);
    assert_eq!(start(&mut inflight).unwrap().message.key.as_deref(), Some(&b"c"[..]));
    assert!(start(&mut inflight).is_none(), "key a waits");
    let failed = inflight.settling();
    assert_eq!(failed.iter().map(|settling| settling.held.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    inflight.settled_on_lane(failed[0].clone(), Fate::Dead);
    assert!(start(&mut inflight).is_none(), "one of key a is still to be buried");
    inflight.settled_on_lane(failed[1].clone(), Fate::Dead);
    assert_eq!(start(&mut inflight).unwrap().message.key.as_deref(), Some(&b"a"[..]));
}

#[test]
fn g16_some_of_a_claim_are_buried_and_the_others_run() {
    let mut inflight = inflight(4);
    let ticket = take(&mut inflight, 0, &["a", "a", "b", ""]);
    inflight.bury(ticket, |index| index == 0 || index == 3, "lost");
    assert_eq!(start(&mut inflight).unwrap().index, 2);
    assert!(start(&mut inflight).is_none(), "key a waits");
    let failed = inflight.settling();
    assert_eq!(failed.iter().map(|settling| settling.held.index).collect::<Vec<_>>(), [0, 3]);
    inflight.settled_on_lane(failed[0].clone(), Fate::Dead);
    assert_eq!(start(&mut inflight).unwrap().index, 1);
}

#[test]
fn g16_a_message_that_was_put_back_is_next_and_was_not_started() {
    let mut inflight = inflight(2);
    let ticket = take(&mut inflight, 0, &["a", "b"]);
    let first = start(&mut inflight).unwrap();
    assert!(inflight.may_go_on(ticket, at(0)) && !inflight.may_go_on(ticket, at(2000)));
    inflight.put_back(first);
    assert_eq!((inflight.running(), inflight.counts().0), (0, 0));
    let first = start(&mut inflight).unwrap();
    assert_eq!(first.index, 0);
    // Its claim is being given back meanwhile: it must not stay behind.
    inflight.close(0);
    inflight.put_back(first);
    assert!(start(&mut inflight).is_none() && inflight.is_closed(0));
    inflight.gave_back(0);
    take(&mut inflight, 1, &["a"]);
    assert!(start(&mut inflight).is_some(), "nothing is left in the queue of its key");
}

#[test]
fn g16_a_message_of_a_lost_claim_is_not_put_back() {
    let mut inflight = inflight(2);
    let ticket = take(&mut inflight, 0, &["a", ""]);
    let first = start(&mut inflight).unwrap();
    inflight.lose(ticket);
    assert!(!inflight.may_go_on(ticket, at(0)));
    inflight.put_back(first);
    assert!(start(&mut inflight).is_none() && inflight.is_empty());
}

#[test]
fn g10_a_limit_counts_what_is_done_and_not_reported() {
    let mut inflight = inflight_with(
        InFlightLimits {
            slots: 1,
            batch: 1,
            most: 2,
            ahead: 2,
            starts: u64::MAX,
            strict: true,
            ordered: false,
        },
        [Gate::default()],
    );
    let ticket = take(&mut inflight, 0, &["", ""]);
    let first = start(&mut inflight).unwrap();
    finish(&mut inflight, first);
    assert_eq!(inflight.capacity(0, at(1)), 0);
    assert!(inflight.is_full(), "so it is reported at once");
    let report = inflight.reports(0).remove(0).1;
    inflight.reported(ticket, &report);
    assert_eq!(inflight.capacity(0, at(1)), 1);
}

#[test]
fn g10_a_limit_counts_what_was_cancelled_and_not_reported() {
    let mut inflight = inflight_with(
        InFlightLimits {
            slots: 2,
            batch: 1,
            most: 2,
            ahead: 2,
            starts: u64::MAX,
            strict: true,
            ordered: false,
        },
        [Gate::default()],
    );
    let key = EntryKey::raw(format!("cancellations/t/{}", MessageId::from_u128(0)));
    let cancel = Entry { key, version: Version(1), value: Bytes::new() };
    let messages = vec![message(0, ""), message(1, "")];
    let (cancelled_messages, cancelled) = (Arc::new(CancelledMessages::named_by(&[cancel])), Arc::default());
    let incoming =
        IncomingClaim { source: 0, topic: 0, claim: claim(1, 2), messages, cancelled_messages, cancelled };
    let ticket = inflight.take(incoming, |_| Some(SECOND), at(0));
    assert_eq!(inflight.capacity(0, at(1)), 0, "in the ledger both are claimed");
    let report = inflight.reports(0).remove(0).1;
    inflight.reported(ticket, &report);
    assert_eq!(inflight.capacity(0, at(1)), 1);
}

#[test]
fn f3_room_is_what_free_slots_can_take() {
    let mut inflight = inflight(4);
    assert_eq!(inflight.capacity(0, at(1)), 4);
    take(&mut inflight, 0, &["", "", ""]);
    assert_eq!(inflight.capacity(0, at(1)), 1);
    // A key queue does not keep slots idle while other keys could run.
    take(&mut inflight, 1, &["k", "k", "k"]);
    assert_eq!(inflight.capacity(0, at(1)), 0);
    let (a, b) = (start(&mut inflight).unwrap(), start(&mut inflight).unwrap());
    finish(&mut inflight, a);
    finish(&mut inflight, b);
    assert!(inflight.capacity(0, at(1)) >= 2);
}

#[test]
fn an_ordered_worker_claims_more_each_time_while_a_line_grows() {
    let mut inflight = inflight_with(
        InFlightLimits {
            slots: 1,
            batch: 1,
            most: 1000,
            ahead: 1,
            starts: u64::MAX,
            strict: false,
            ordered: true,
        },
        [Gate::default()],
    );
    take(&mut inflight, 0, &["k"; 100]);
    let first = start(&mut inflight).unwrap();
    inflight.finish(
        first,
        Disposition::Again { after: SECOND * 60, failure: failure() },
        Duration::ZERO,
        at(1),
    );
    assert_eq!(inflight.capacity(0, at(1)), 25);
}

const WIDE: InFlightLimits = InFlightLimits {
    slots: 4,
    batch: 1,
    most: 1000,
    ahead: 100,
    starts: u64::MAX,
    strict: false,
    ordered: false,
};

/// Makes the view of a worker that is alone, once its entry says what it holds.
fn alone(paused: bool, said: InUse) -> TopicView {
    TopicView { paused, rank: Some(0), members: 1, said, others: InUse::default() }
}

/// Refreshes, sends a heartbeat and refreshes again, as a worker that is alone.
fn settle_in(inflight: &mut InFlight, now: Moment) {
    for _ in 0..2 {
        let views: Vec<TopicView> = inflight.says().into_iter().map(|said| alone(false, said)).collect();
        inflight.record_refresh(at(5000), &views, now);
        let holds = inflight.saying();
        inflight.said(&holds);
    }
}

#[test]
fn q10_the_first_topic_goes_first_also_with_what_is_in_hand() {
    let mut inflight = inflight_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut inflight, 1, 9, &["", "", ""], claim(1, 3));
    assert_eq!(start(&mut inflight).unwrap().topic, 1);
    take_of(&mut inflight, 0, 0, &["", ""], claim(1, 2));
    let topics: Vec<usize> = std::iter::from_fn(|| start(&mut inflight)).map(|held| held.topic).collect();
    assert_eq!(topics, [0, 0, 1, 1]);
}

#[test]
fn q10_what_is_in_hand_of_a_later_topic_leaves_room_for_an_earlier_one() {
    let mut inflight = inflight_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut inflight, 1, 9, &[""; 100], claim(1, 100));
    assert_eq!((inflight.capacity(0, at(1)), inflight.capacity(1, at(1))), (4, 0));
    let running: Vec<HeldMessage> = (0..4).filter_map(|_| start(&mut inflight)).collect();
    assert_eq!(
        inflight.capacity(0, at(1)),
        4,
        "also when all slots are taken: the next free one is not for the later topic"
    );
    take_of(&mut inflight, 0, 0, &[""; 4], claim(1, 4));
    assert_eq!((inflight.capacity(0, at(1)), inflight.capacity(1, at(1))), (0, 0));
    running.into_iter().for_each(|held| finish(&mut inflight, held));
    assert_eq!(start(&mut inflight).unwrap().topic, 0);
    // With nothing more in hand, a slot that is taken is taken: another worker may have a free one.
    let mut inflight = inflight_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut inflight, 1, 9, &[""; 4], claim(1, 4));
    (0..4).for_each(|_| assert!(start(&mut inflight).is_some()));
    assert_eq!(inflight.capacity(0, at(1)), 0);
}

#[test]
fn q22_a_paused_topic_starts_nothing_and_takes_nothing_while_others_go_on() {
    let mut inflight = inflight_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut inflight, 0, 0, &["", ""], claim(1, 2));
    take_of(&mut inflight, 1, 9, &[""], claim(1, 1));
    let running = start(&mut inflight).unwrap();
    inflight.record_refresh(
        at(5000),
        &[alone(true, InUse::default()), alone(false, InUse::default())],
        at(1),
    );
    assert_eq!(start(&mut inflight).unwrap().topic, 1);
    assert!(
        start(&mut inflight).is_none() && inflight.capacity(0, at(1)) == 0 && inflight.capacity(1, at(1)) > 0
    );
    finish(&mut inflight, running);
    assert_eq!(inflight.reports(0)[0].1.fates[&Fate::Done].len(), 1, "what runs ends normally");
    assert!(inflight.is_blocked(0) && inflight.tokens(0).len() == 1, "the claim stays");
    inflight.record_refresh(
        at(5000),
        &[alone(false, InUse::default()), alone(false, InUse::default())],
        at(1),
    );
    assert_eq!(start(&mut inflight).unwrap().topic, 0);
}

#[test]
fn a_worker_that_has_not_looked_for_too_long_starts_nothing() {
    let mut inflight = inflight(1);
    take(&mut inflight, 0, &["", ""]);
    inflight.record_refresh(at(3), &[], at(1));
    assert!(inflight.next(at(3)).is_none() && inflight.capacity(0, at(3)) == 0);
    inflight.record_refresh(at(6), &[], at(3));
    assert!(inflight.next(at(5)).is_some());
    inflight.evict();
    inflight.join(WorkerId::new("me-again"), at(1000));
    take(&mut inflight, 0, &[""]);
    assert!(inflight.next(at(5)).is_none(), "what an older self saw does not count");
}

#[test]
fn a_limit_on_what_runs_counts_handlers_of_lost_claims() {
    let mut inflight = inflight_with(WIDE, [Gate::new(Some(sawmill_engine::model::Limit::running(2)), None)]);
    let ticket = take(&mut inflight, 0, &["", ""]);
    assert!(start(&mut inflight).is_none(), "it has no share yet");
    settle_in(&mut inflight, at(1));
    let running = (start(&mut inflight).unwrap(), start(&mut inflight).unwrap());
    inflight.lose(ticket);
    take(&mut inflight, 1, &["", ""]);
    assert!(start(&mut inflight).is_none() && inflight.tasks_wanted(at(1)) == 0);
    finish(&mut inflight, running.0);
    assert!(start(&mut inflight).is_some() && start(&mut inflight).is_none());
}

#[test]
fn a_limited_topic_takes_no_more_in_hand_than_it_may_run() {
    let mut inflight = inflight_with(WIDE, [Gate::new(Some(sawmill_engine::model::Limit::running(2)), None)]);
    assert_eq!(inflight.capacity(0, at(1)), 0);
    settle_in(&mut inflight, at(1));
    assert_eq!(inflight.capacity(0, at(1)), 2);
    take(&mut inflight, 0, &["", ""]);
    assert_eq!(inflight.capacity(0, at(1)), 0);
}

#[test]
fn a_rate_starts_messages_one_by_one_and_says_when_the_next_is_due() {
    let mut inflight =
        inflight_with(WIDE, [Gate::new(Some(sawmill_engine::model::Limit::per_second(1)), None)]);
    settle_in(&mut inflight, at(1));
    assert_eq!(inflight.capacity(0, at(1)), 1, "one is taken in hand ahead");
    take(&mut inflight, 0, &["", ""]);
    assert!(start(&mut inflight).is_none(), "nothing is saved up by a newcomer");
    assert_eq!((inflight.next_wait(at(1)), inflight.capacity(0, at(1))), (Some(at(2)), 0));
    assert!(inflight.next(at(2)).is_some() && inflight.next(at(2)).is_none());
    assert_eq!(inflight.next_wait(at(2)), Some(at(3)));
}

#[test]
fn a_rate_of_each_key_holds_up_that_key_alone() {
    let limit = sawmill_engine::model::Limit::rate(1, SECOND * 10);
    let mut inflight = inflight_with(WIDE, [Gate::new(None, Some(limit))]);
    take(&mut inflight, 0, &["a", "a", "b", ""]);
    let first = start(&mut inflight).unwrap();
    finish(&mut inflight, first);
    let rest = [start(&mut inflight).unwrap().index, start(&mut inflight).unwrap().index];
    assert_eq!(rest, [2, 3]);
    assert!(start(&mut inflight).is_none());
    assert_eq!(inflight.next_wait(at(1)), Some(at(11)));
    assert_eq!(inflight.next(at(11)).unwrap().held.index, 1);
}

#[test]
fn q24_a_task_is_wanted_for_each_batch_that_is_ready() {
    let mut inflight = inflight_with(
        InFlightLimits {
            slots: 20,
            batch: 10,
            most: 1000,
            ahead: 100,
            starts: u64::MAX,
            strict: false,
            ordered: false,
        },
        [Gate::default()],
    );
    assert_eq!(inflight.capacity(0, at(1)), 20, "as much as all slots can take");
    take(&mut inflight, 0, &[""; 5]);
    assert_eq!(inflight.tasks_wanted(at(1)), 1);
    (inflight.tasks, inflight.lingering) = (1, 1);
    assert_eq!(inflight.tasks_wanted(at(1)), 0, "the one that waits for more takes them");
    take(&mut inflight, 1, &[""; 25]);
    assert_eq!(inflight.tasks_wanted(at(1)), 1, "there are no more than two slots");
}

#[test]
fn g17_only_what_somebody_asks_for_is_claimed() {
    let mut inflight = inflight(4);
    inflight.pulls = Some(0);
    assert_eq!(inflight.capacity(0, at(1)), 0);
    inflight.pulls = Some(2);
    assert_eq!(inflight.capacity(0, at(1)), 2);
    inflight.pulls = Some(9);
    assert_eq!(inflight.capacity(0, at(1)), 4, "not more than the slots can take");
    take(&mut inflight, 0, &["", "", "", ""]);
    let first = start(&mut inflight).unwrap();
    inflight.pulls = Some(0);
    finish(&mut inflight, first);
    assert_eq!(inflight.capacity(0, at(1)), 0);
    // Messages of quick jobs are claimed ahead, as with slots.
    inflight.pulls = Some(1);
    assert_eq!(inflight.capacity(0, at(1)), 97);
}
