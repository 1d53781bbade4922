//! The rules of the bench, one by one.

use bytes::Bytes;

use super::*;
use crate::claim::Claim;
use crate::clock::Timestamp;
use crate::ledger::{Entry, EntryKey, Version};
use crate::log::{Position, Span};
use crate::message::{Message, MessageId};
use crate::retry::Failure;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Moment {
    Moment::at(Duration::from_secs(seconds))
}

fn bench(slots: usize) -> Bench {
    bench_with(
        Limits { slots, batch: 1, most: 1000, ahead: 100, starts: u64::MAX, strict: false, hoards: false },
        [Gate::default()],
    )
}

/// A member's bench that has looked around, with one topic for each gate.
fn bench_with(limits: Limits, gates: impl IntoIterator<Item = Gate>) -> Bench {
    let mut bench = Bench::new(limits, gates);
    bench.join(WorkerId::new("me"), at(1000));
    bench.looked(at(5000), &[], at(0));
    bench
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
fn take(bench: &mut Bench, source: usize, keys: &[&str]) -> Ticket {
    take_claim(bench, source, keys, claim(source as u64 + 1, keys.len()))
}

fn take_claim(bench: &mut Bench, source: usize, keys: &[&str], claim: Claim) -> Ticket {
    take_of(bench, 0, source, keys, claim)
}

fn take_of(bench: &mut Bench, topic: usize, source: usize, keys: &[&str], claim: Claim) -> Ticket {
    let messages = (0..).zip(keys).map(|(i, key)| message(i, key)).collect();
    let (unwanted, cancelled) = (Arc::default(), Arc::default());
    let incoming = Incoming { source, topic, claim, messages, unwanted, cancelled };
    bench.take(incoming, |_| Some(SECOND), at(0))
}

fn start(bench: &mut Bench) -> Option<Item> {
    bench.next(at(1)).map(|start| start.item)
}

fn finish(bench: &mut Bench, item: Item) {
    bench.finish(item, Verdict::Settled(Fate::Done), Duration::ZERO, at(1));
}

fn failure() -> Option<Failure> {
    Some(Failure::new(1, Timestamp::default(), "me", "no"))
}

#[test]
fn f10_messages_of_one_key_never_run_at_the_same_time() {
    let mut bench = bench(4);
    take(&mut bench, 0, &["a", "a", "b", ""]);
    let first = start(&mut bench).unwrap();
    let rest = [start(&mut bench).unwrap().index, start(&mut bench).unwrap().index];
    assert_eq!((first.index, rest), (0, [2, 3]));
    assert!(start(&mut bench).is_none(), "the second of key a waits");
    finish(&mut bench, first);
    assert_eq!(start(&mut bench).unwrap().index, 1);
}

#[test]
fn keys_hold_across_claims_and_sources() {
    let mut bench = bench(4);
    take(&mut bench, 0, &["a"]);
    take(&mut bench, 1, &["a"]);
    let first = start(&mut bench).unwrap();
    assert!(start(&mut bench).is_none());
    finish(&mut bench, first);
    assert!(start(&mut bench).is_some());
}

#[test]
fn nothing_starts_past_the_lease_or_without_membership() {
    let mut bench = bench(1);
    take(&mut bench, 0, &[""]);
    assert!(bench.next(at(1000)).is_none());
    assert_eq!(bench.room(0, at(1000)), 0);
    bench.renew(at(2000));
    assert!(bench.next(at(1000)).is_some());
    let mut bench = Bench::new(
        Limits { slots: 1, batch: 1, most: 10, ahead: 10, starts: u64::MAX, strict: false, hoards: false },
        [Gate::default()],
    );
    take(&mut bench, 0, &[""]);
    assert!(bench.next(at(1)).is_none());
}

#[test]
fn a_message_that_waits_in_place_holds_up_its_key_alone() {
    let mut bench = bench(4);
    take(&mut bench, 0, &["a", "a", "b"]);
    let first = start(&mut bench).unwrap();
    bench.finish(first, Verdict::Again { after: SECOND * 5, failure: failure() }, Duration::ZERO, at(1));
    assert_eq!(start(&mut bench).unwrap().index, 2);
    assert!(start(&mut bench).is_none());
    assert_eq!(bench.next_wait(at(1)), Some(at(6)));
    let again = bench.next(at(6)).unwrap().item;
    assert_eq!((again.index, again.attempt()), (0, 2));
    assert_eq!(bench.reports(0)[0].1.failures, [(0, 1)].into(), "the claim counts the failure");
}

#[test]
fn a_retry_at_once_keeps_its_place() {
    let mut bench = bench(1);
    take(&mut bench, 0, &["", ""]);
    let first = start(&mut bench).unwrap();
    bench.finish(first, Verdict::Again { after: Duration::ZERO, failure: failure() }, Duration::ZERO, at(1));
    let again = start(&mut bench).unwrap();
    assert_eq!((again.index, again.attempt()), (0, 2));
}

#[test]
fn a_failed_message_is_settled_only_when_its_copy_is_in_the_log() {
    let mut bench = bench(1);
    let ticket = take(&mut bench, 0, &["a", "a"]);
    let first = start(&mut bench).unwrap();
    bench.finish(first, Verdict::Copy(Copy::Dead { reason: "no".into() }, failure()), Duration::ZERO, at(1));
    assert!(bench.reports(0).is_empty() && start(&mut bench).is_none());
    assert_eq!(bench.failed().len(), 1, "however often they are asked for");
    let [failed] = bench.failed().try_into().ok().unwrap();
    assert!(bench.has_failed(), "they stay until their copy is in the log");
    bench.failed_settled(&failed, Fate::Dead);
    assert!(!bench.has_failed());
    let reports = bench.reports(0);
    assert_eq!((reports[0].0, reports[0].1.fates[&Fate::Dead].len()), (ticket, 1));
    assert_eq!(start(&mut bench).unwrap().index, 1);
}

#[test]
fn a_claim_leaves_the_bench_when_its_last_report_is_written() {
    let mut bench = bench(2);
    let ticket = take(&mut bench, 0, &["", ""]);
    let (first, second) = (start(&mut bench).unwrap(), start(&mut bench).unwrap());
    finish(&mut bench, first);
    let report = bench.reports(0).remove(0).1;
    finish(&mut bench, second);
    bench.reported(ticket, &report);
    assert_eq!(bench.dirty(), [0], "the second one came after the report");
    let report = bench.reports(0).remove(0).1;
    bench.reported(ticket, &report);
    assert!(bench.is_empty() && bench.in_hand() == 0);
}

#[test]
fn f14_what_a_superseded_handler_says_counts_for_nothing() {
    let mut bench = bench(2);
    let ticket = take(&mut bench, 0, &["a", "a"]);
    let running = bench.next(at(1)).unwrap();
    bench.lose(ticket);
    assert!(running.cancelled.is_cancelled(), "its handler is told");
    // The key stays taken as long as the old handler runs in this process.
    take(&mut bench, 0, &["a"]);
    assert!(start(&mut bench).is_none());
    finish(&mut bench, running.item);
    assert!(bench.reports(0).is_empty());
    assert!(start(&mut bench).is_some());
}

#[test]
fn a_closed_source_starts_nothing_and_can_be_given_back_when_it_is_idle() {
    let mut bench = bench(4);
    take(&mut bench, 0, &["a", "a", "b"]);
    take(&mut bench, 1, &["c"]);
    let running = start(&mut bench).unwrap();
    bench.close(0);
    assert!(!bench.is_closed(0), "one still runs");
    assert_eq!(start(&mut bench).unwrap().message.key.as_deref(), Some(&b"c"[..]), "other sources go on");
    finish(&mut bench, running);
    assert!(bench.is_closed(0) && !bench.is_closed(1));
    assert_eq!(bench.reports(0)[0].1.fates[&Fate::Done].len(), 1, "what was done is reported with it");
    bench.gave_back(0);
    assert!(bench.tokens(0).is_empty());
}

#[test]
fn an_adopted_claim_skips_what_is_done_and_waits_for_what_failed() {
    let mut bench = bench(4);
    let mut adopted = claim(7, 4);
    adopted.done = [0, 2].into_iter().collect();
    adopted.failures = [(1, 3)].into();
    adopted.deaths = 1;
    take_claim(&mut bench, 0, &["", "", "", ""], adopted);
    let item = start(&mut bench).unwrap();
    assert_eq!((item.index, item.attempt()), (3, 2), "a death counts as an attempt");
    let item = bench.next(at(2)).unwrap().item;
    assert_eq!((item.index, item.attempt()), (1, 5));
}

#[test]
fn a_block_that_is_gone_from_the_log_is_dropped() {
    let mut bench = bench(1);
    let mut adopted = claim(7, 3);
    adopted.done = [1].into_iter().collect();
    let incoming = Incoming {
        source: 0,
        topic: 0,
        claim: adopted,
        messages: Vec::new(),
        unwanted: Arc::default(),
        cancelled: Arc::default(),
    };
    bench.take(incoming, |_| None, at(0));
    assert_eq!(bench.reports(0)[0].1.fates[&Fate::Dropped].iter().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn what_is_buried_never_starts_and_its_key_waits_until_it_is_dead() {
    let mut bench = bench(4);
    let ticket = take(&mut bench, 0, &["a", "a", "b", ""]);
    bench.bury(ticket, |_| true, "lost");
    take(&mut bench, 1, &["a", "c"]);
    assert_eq!(start(&mut bench).unwrap().message.key.as_deref(), Some(&b"c"[..]));
    assert!(start(&mut bench).is_none(), "key a waits");
    let failed = bench.failed();
    assert_eq!(failed.iter().map(|failed| failed.item.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    bench.failed_settled(&failed[0], Fate::Dead);
    assert!(start(&mut bench).is_none(), "one of key a is still to be buried");
    bench.failed_settled(&failed[1], Fate::Dead);
    assert_eq!(start(&mut bench).unwrap().message.key.as_deref(), Some(&b"a"[..]));
}

#[test]
fn g16_some_of_a_claim_are_buried_and_the_others_run() {
    let mut bench = bench(4);
    let ticket = take(&mut bench, 0, &["a", "a", "b", ""]);
    bench.bury(ticket, |index| index == 0 || index == 3, "lost");
    assert_eq!(start(&mut bench).unwrap().index, 2);
    assert!(start(&mut bench).is_none(), "key a waits");
    let failed = bench.failed();
    assert_eq!(failed.iter().map(|failed| failed.item.index).collect::<Vec<_>>(), [0, 3]);
    bench.failed_settled(&failed[0], Fate::Dead);
    assert_eq!(start(&mut bench).unwrap().index, 1);
}

#[test]
fn g16_a_message_that_was_put_back_is_next_and_was_not_started() {
    let mut bench = bench(2);
    let ticket = take(&mut bench, 0, &["a", "b"]);
    let first = start(&mut bench).unwrap();
    assert!(bench.may_go_on(ticket, at(0)) && !bench.may_go_on(ticket, at(2000)));
    bench.put_back(first);
    assert_eq!((bench.running(), bench.counts().0), (0, 0));
    let first = start(&mut bench).unwrap();
    assert_eq!(first.index, 0);
    // Its claim is being given back meanwhile: it must not stay behind.
    bench.close(0);
    bench.put_back(first);
    assert!(start(&mut bench).is_none() && bench.is_closed(0));
    bench.gave_back(0);
    take(&mut bench, 1, &["a"]);
    assert!(start(&mut bench).is_some(), "nothing is left in its line");
}

#[test]
fn g16_a_message_of_a_lost_claim_is_not_put_back() {
    let mut bench = bench(2);
    let ticket = take(&mut bench, 0, &["a", ""]);
    let first = start(&mut bench).unwrap();
    bench.lose(ticket);
    assert!(!bench.may_go_on(ticket, at(0)));
    bench.put_back(first);
    assert!(start(&mut bench).is_none() && bench.is_empty());
}

#[test]
fn g10_a_limit_counts_what_is_done_and_not_reported() {
    let mut bench = bench_with(
        Limits { slots: 1, batch: 1, most: 2, ahead: 2, starts: u64::MAX, strict: true, hoards: false },
        [Gate::default()],
    );
    let ticket = take(&mut bench, 0, &["", ""]);
    let first = start(&mut bench).unwrap();
    finish(&mut bench, first);
    assert_eq!(bench.room(0, at(1)), 0);
    assert!(bench.is_full(), "so it is reported at once");
    let report = bench.reports(0).remove(0).1;
    bench.reported(ticket, &report);
    assert_eq!(bench.room(0, at(1)), 1);
}

#[test]
fn g10_a_limit_counts_what_was_cancelled_and_not_reported() {
    let mut bench = bench_with(
        Limits { slots: 2, batch: 1, most: 2, ahead: 2, starts: u64::MAX, strict: true, hoards: false },
        [Gate::default()],
    );
    let key = EntryKey::raw(format!("cancels/t/{}", MessageId::from_u128(0)));
    let cancel = Entry { key, version: Version(1), value: Bytes::new() };
    let messages = vec![message(0, ""), message(1, "")];
    let (unwanted, cancelled) = (Arc::new(Unwanted::named_by(&[cancel])), Arc::default());
    let incoming = Incoming { source: 0, topic: 0, claim: claim(1, 2), messages, unwanted, cancelled };
    let ticket = bench.take(incoming, |_| Some(SECOND), at(0));
    assert_eq!(bench.room(0, at(1)), 0, "in the ledger both are claimed");
    let report = bench.reports(0).remove(0).1;
    bench.reported(ticket, &report);
    assert_eq!(bench.room(0, at(1)), 1);
}

#[test]
fn f3_room_is_what_free_slots_can_take() {
    let mut bench = bench(4);
    assert_eq!(bench.room(0, at(1)), 4);
    take(&mut bench, 0, &["", "", ""]);
    assert_eq!(bench.room(0, at(1)), 1);
    // A line of one key does not keep slots idle while other keys could run.
    take(&mut bench, 1, &["k", "k", "k"]);
    assert_eq!(bench.room(0, at(1)), 0);
    let (a, b) = (start(&mut bench).unwrap(), start(&mut bench).unwrap());
    finish(&mut bench, a);
    finish(&mut bench, b);
    assert!(bench.room(0, at(1)) >= 2);
}

#[test]
fn an_ordered_worker_grabs_more_each_time_while_a_line_grows() {
    let mut bench = bench_with(
        Limits { slots: 1, batch: 1, most: 1000, ahead: 1, starts: u64::MAX, strict: false, hoards: true },
        [Gate::default()],
    );
    take(&mut bench, 0, &["k"; 100]);
    let first = start(&mut bench).unwrap();
    bench.finish(first, Verdict::Again { after: SECOND * 60, failure: failure() }, Duration::ZERO, at(1));
    assert_eq!(bench.room(0, at(1)), 25);
}

const WIDE: Limits =
    Limits { slots: 4, batch: 1, most: 1000, ahead: 100, starts: u64::MAX, strict: false, hoards: false };

/// What a worker sees that is alone, once its entry says what it holds.
fn alone(paused: bool, said: InUse) -> Sight {
    Sight { paused, rank: Some(0), members: 1, said, others: InUse::default() }
}

/// Looks, beats and looks again, as a worker that is alone.
fn settle_in(bench: &mut Bench, now: Moment) {
    for _ in 0..2 {
        let sights: Vec<Sight> = bench.says().into_iter().map(|said| alone(false, said)).collect();
        bench.looked(at(5000), &sights, now);
        let holds = bench.saying();
        bench.said(&holds);
    }
}

#[test]
fn q10_the_first_topic_goes_first_also_with_what_is_in_hand() {
    let mut bench = bench_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut bench, 1, 9, &["", "", ""], claim(1, 3));
    assert_eq!(start(&mut bench).unwrap().topic, 1);
    take_of(&mut bench, 0, 0, &["", ""], claim(1, 2));
    let topics: Vec<usize> = std::iter::from_fn(|| start(&mut bench)).map(|item| item.topic).collect();
    assert_eq!(topics, [0, 0, 1, 1]);
}

#[test]
fn q10_what_is_in_hand_of_a_later_topic_leaves_room_for_an_earlier_one() {
    let mut bench = bench_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut bench, 1, 9, &[""; 100], claim(1, 100));
    assert_eq!((bench.room(0, at(1)), bench.room(1, at(1))), (4, 0));
    let running: Vec<Item> = (0..4).filter_map(|_| start(&mut bench)).collect();
    assert_eq!(
        bench.room(0, at(1)),
        4,
        "also when all slots are taken: the next free one is not for the later topic"
    );
    take_of(&mut bench, 0, 0, &[""; 4], claim(1, 4));
    assert_eq!((bench.room(0, at(1)), bench.room(1, at(1))), (0, 0));
    running.into_iter().for_each(|item| finish(&mut bench, item));
    assert_eq!(start(&mut bench).unwrap().topic, 0);
    // With nothing more in hand, a slot that is taken is taken: another worker may have a free one.
    let mut bench = bench_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut bench, 1, 9, &[""; 4], claim(1, 4));
    (0..4).for_each(|_| assert!(start(&mut bench).is_some()));
    assert_eq!(bench.room(0, at(1)), 0);
}

#[test]
fn q22_a_paused_topic_starts_nothing_and_takes_nothing_while_others_go_on() {
    let mut bench = bench_with(WIDE, [Gate::default(), Gate::default()]);
    take_of(&mut bench, 0, 0, &["", ""], claim(1, 2));
    take_of(&mut bench, 1, 9, &[""], claim(1, 1));
    let running = start(&mut bench).unwrap();
    bench.looked(at(5000), &[alone(true, InUse::default()), alone(false, InUse::default())], at(1));
    assert_eq!(start(&mut bench).unwrap().topic, 1);
    assert!(start(&mut bench).is_none() && bench.room(0, at(1)) == 0 && bench.room(1, at(1)) > 0);
    finish(&mut bench, running);
    assert_eq!(bench.reports(0)[0].1.fates[&Fate::Done].len(), 1, "what runs ends normally");
    assert!(bench.is_shut(0) && bench.tokens(0).len() == 1, "the claim stays");
    bench.looked(at(5000), &[alone(false, InUse::default()), alone(false, InUse::default())], at(1));
    assert_eq!(start(&mut bench).unwrap().topic, 0);
}

#[test]
fn a_worker_that_has_not_looked_for_too_long_starts_nothing() {
    let mut bench = bench(1);
    take(&mut bench, 0, &["", ""]);
    bench.looked(at(3), &[], at(1));
    assert!(bench.next(at(3)).is_none() && bench.room(0, at(3)) == 0);
    bench.looked(at(6), &[], at(3));
    assert!(bench.next(at(5)).is_some());
    bench.evict();
    bench.join(WorkerId::new("me-again"), at(1000));
    take(&mut bench, 0, &[""]);
    assert!(bench.next(at(5)).is_none(), "what an older self saw does not count");
}

#[test]
fn a_limit_on_what_runs_counts_handlers_of_lost_claims() {
    let mut bench = bench_with(WIDE, [Gate::new(Some(crate::Limit::running(2)), None)]);
    let ticket = take(&mut bench, 0, &["", ""]);
    assert!(start(&mut bench).is_none(), "it has no share yet");
    settle_in(&mut bench, at(1));
    let running = (start(&mut bench).unwrap(), start(&mut bench).unwrap());
    bench.lose(ticket);
    take(&mut bench, 1, &["", ""]);
    assert!(start(&mut bench).is_none() && bench.runners_wanted(at(1)) == 0);
    finish(&mut bench, running.0);
    assert!(start(&mut bench).is_some() && start(&mut bench).is_none());
}

#[test]
fn a_limited_topic_takes_no_more_in_hand_than_it_may_run() {
    let mut bench = bench_with(WIDE, [Gate::new(Some(crate::Limit::running(2)), None)]);
    assert_eq!(bench.room(0, at(1)), 0);
    settle_in(&mut bench, at(1));
    assert_eq!(bench.room(0, at(1)), 2);
    take(&mut bench, 0, &["", ""]);
    assert_eq!(bench.room(0, at(1)), 0);
}

#[test]
fn a_rate_starts_messages_one_by_one_and_says_when_the_next_is_due() {
    let mut bench = bench_with(WIDE, [Gate::new(Some(crate::Limit::per_second(1)), None)]);
    settle_in(&mut bench, at(1));
    assert_eq!(bench.room(0, at(1)), 1, "one is taken in hand ahead");
    take(&mut bench, 0, &["", ""]);
    assert!(start(&mut bench).is_none(), "nothing is saved up by a newcomer");
    assert_eq!((bench.next_wait(at(1)), bench.room(0, at(1))), (Some(at(2)), 0));
    assert!(bench.next(at(2)).is_some() && bench.next(at(2)).is_none());
    assert_eq!(bench.next_wait(at(2)), Some(at(3)));
}

#[test]
fn a_rate_of_each_key_holds_up_that_key_alone() {
    let limit = crate::Limit::rate(1, SECOND * 10);
    let mut bench = bench_with(WIDE, [Gate::new(None, Some(limit))]);
    take(&mut bench, 0, &["a", "a", "b", ""]);
    let first = start(&mut bench).unwrap();
    finish(&mut bench, first);
    let rest = [start(&mut bench).unwrap().index, start(&mut bench).unwrap().index];
    assert_eq!(rest, [2, 3]);
    assert!(start(&mut bench).is_none());
    assert_eq!(bench.next_wait(at(1)), Some(at(11)));
    assert_eq!(bench.next(at(11)).unwrap().item.index, 1);
}

#[test]
fn q24_a_task_is_wanted_for_each_batch_that_is_ready() {
    let mut bench = bench_with(
        Limits {
            slots: 20,
            batch: 10,
            most: 1000,
            ahead: 100,
            starts: u64::MAX,
            strict: false,
            hoards: false,
        },
        [Gate::default()],
    );
    assert_eq!(bench.room(0, at(1)), 20, "as much as all slots can take");
    take(&mut bench, 0, &[""; 5]);
    assert_eq!(bench.runners_wanted(at(1)), 1);
    (bench.runners, bench.lingering) = (1, 1);
    assert_eq!(bench.runners_wanted(at(1)), 0, "the one that waits for more takes them");
    take(&mut bench, 1, &[""; 25]);
    assert_eq!(bench.runners_wanted(at(1)), 1, "there are no more than two slots");
}

#[test]
fn g17_only_what_somebody_asks_for_is_grabbed() {
    let mut bench = bench(4);
    bench.pulls = Some(0);
    assert_eq!(bench.room(0, at(1)), 0);
    bench.pulls = Some(2);
    assert_eq!(bench.room(0, at(1)), 2);
    bench.pulls = Some(9);
    assert_eq!(bench.room(0, at(1)), 4, "not more than the slots can take");
    take(&mut bench, 0, &["", "", "", ""]);
    let first = start(&mut bench).unwrap();
    bench.pulls = Some(0);
    finish(&mut bench, first);
    assert_eq!(bench.room(0, at(1)), 0);
    // Quick jobs are grabbed ahead, as with slots.
    bench.pulls = Some(1);
    assert_eq!(bench.room(0, at(1)), 97);
}
