//! Engines that break one promise each, and the check that finds it: this proves that the suite can fail.

mod breaking;

use std::panic::catch_unwind;

use breaking::{Breaking, Fault};
use sawmill_conformance as suite;

/// Runs a check on an engine with a fault, and asserts that it fails with this message.
fn assert_found<C: Future<Output = ()>>(fault: Fault, check: fn(suite::Place) -> C, says: &str) {
    let outcome = catch_unwind(|| suite::run("broken", async { Breaking::new(fault) }, check));
    let panic = outcome.expect_err("the check passes on an engine that breaks its promise");
    let said = panic.downcast_ref::<String>().cloned();
    let said =
        said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned())).unwrap_or_default();
    assert!(said.contains(says), "the check fails, but for another reason than {says:?}: {said}");
}

macro_rules! found {
    ($($fault:ident: $theme:ident::$check:ident, $says:literal;)*) => {
        $(
            #[test]
            #[allow(non_snake_case)]
            fn $fault() {
                assert_found(Fault::$fault, suite::$theme::$check, $says);
            }
        )*
    };
}

mod log {
    use super::*;

    found! {
        SkipsALateMessage: log_crowd::c1_readers_that_follow_a_crowd_lose_nothing, "are readable after";
        TurnsBatchesRound: log_append::messages_of_one_call_keep_their_order, "from its beginning";
        ReadsWhatIsNotDue: log_due::what_is_not_due_is_not_read, "from its beginning";
        GoesByItsOwnClock: log_due::the_callers_time_decides, "Promoted";
        PromotesInOrderOfPushing: log_promote::promotion_goes_by_due_time, "from its beginning";
        PromotesWithoutLimit: log_promote::the_limit_of_promotion_is_kept, "a limit of 0 moves nothing";
        HidesTheNextDueTime: log_due::promoting_says_when_the_next_one_is_due, "next_due";
        AddsAgain: log_idempotence::a_repeated_append_adds_only_what_is_new, "nothing more to read";
        AppendsInPart: log_refusals::a_batch_with_a_wrong_shard_is_refused_whole, "from its beginning";
        AcceptsAnyTopic: log_refusals::a_deleted_topic_is_refused, "should be refused with NotFound";
        NeverSaysMore: log_read::more_is_said_while_there_is_more, "there is more";
        AlwaysSaysMore: log_read::more_is_said_while_there_is_more, "still says that there may be more";
        AnswersByShard: log_read::several_wants_are_answered_in_their_order, "left == right";
        RereadsWhatIsThereNow: log_reread::a_short_block_does_not_grow, "left == right";
        RereadsWhatIsLeft: log_trim::a_trimmed_block_is_gone, "is left in the log";
        TrimsTheYoung: log_trim::nothing_young_is_trimmed, "may be dropped";
        TrimsBeyondThePosition: log_trim::nothing_after_the_position_is_trimmed, "nothing lies before the beginning";
        TrimsUpToTheLast: log_trim::only_what_lies_before_every_position_is_trimmed, "may be dropped";
        TrimsByWhatItWasTold: log_trim::what_is_needed_again_stays_when_other_shards_are_trimmed, "all of the shard is needed";
        CountsInAnotherOrder: log_backlog::what_lies_after_each_position_is_counted, "the backlog after";
        FindsOnlyWhatIsReadable: log_find::what_is_kept_aside_is_found, "it is there";
        SeeksToTheEnd: log_find::positions_divide_a_shard_by_time, "an engine may begin";
        TakesAnEmptyKeyForNone: log_content::keys_come_back_as_they_were, "left == right";
        KeepsOneHeaderOfAName: log_content::headers_come_back_as_they_were, "left == right";
        CutsPayloads: log_content::payloads_come_back_as_they_were, "came back changed";
        DeletesByName: log_topics::deleting_an_old_topic_leaves_the_new_one_alone, "was gone already";
        FindsWithOtherShards: log_topics::a_topic_with_other_shards_is_refused_and_stays_as_it_is, "with Exists";
        SharesNamespaces: log_topics::namespaces_share_nothing, "left == right";
        ForgetsAtReopen: log_reopen::what_was_acknowledged_survives_a_reopen, "left == right";
        GivesNoHints: log_news::news_comes_after_an_append, "a notification arrives";
    }
}

mod ledger {
    use super::*;

    found! {
        IgnoresVersions: ledger_commit::c11_a_stale_version_is_refused, "Conflict";
        ComparesBeforeItWrites: ledger_crowd::counting_together_loses_nothing, "count";
        LetsEveryoneCreate: ledger_commit::an_entry_is_created_once, "Conflict";
        BringsBackTheDeleted: ledger_commit::a_deleted_entry_stays_deleted, "Conflict";
        DeletesAnyVersion: ledger_commit::an_entry_is_deleted_with_its_version, "Conflict";
        TakesTheSameValueForNoChange: ledger_commit::versions_grow_with_every_change, "comes after";
        CutsValues: ledger_commit::values_come_back_as_they_were, "came back changed";
        ListsByWholeParts: ledger_list::only_the_prefix_is_listed, "left == right";
        ListsByPattern: ledger_list::only_the_prefix_is_listed, "left == right";
        ListsBackwards: ledger_list::entries_are_listed_in_order, "left == right";
        ReadsItsCache: ledger_list::a_commit_is_seen_at_once_from_everywhere, "left == right";
        SharesEntries: ledger_list::ledgers_of_other_namespaces_share_nothing, "left == right";
        ForgetsEntriesAtReopen: ledger_reopen::commits_survive_a_reopen, "left == right";
        GivesNoWatchHints: ledger_reopen::a_watch_hint_comes, "a notification arrives";
    }
}
