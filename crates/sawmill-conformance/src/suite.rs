//! The suites: which checks there are, and how each becomes a test.

/// Makes a test of every check of a log. Takes an expression that returns a [`Factory`](crate::Factory); it
/// is evaluated once for each check, and may `await`. A log without idempotent appends is passed with
/// `without(idempotent_append)`, and a check verifies that.
#[macro_export]
macro_rules! log_suite {
    ($factory:expr) => {
        $crate::log_suite!(@always $factory);
        $crate::checks! {
            $factory,
            log_idempotence: [
                the_same_id_in_one_call_is_added_once,
                a_repeated_append_adds_only_what_is_new,
                the_same_id_in_another_shard_is_not_added,
                the_same_ids_at_once_are_added_once,
                what_is_kept_aside_is_not_added_again,
                what_is_ready_is_not_kept_aside_again,
                the_same_id_in_another_topic_is_added,
                ids_are_known_after_a_reopen,
            ],
        }
    };
    ($factory:expr, without(idempotent_append)) => {
        $crate::log_suite!(@always $factory);
        $crate::checks! {
            $factory,
            log_idempotence: [
                the_log_says_that_it_cannot_tell_what_is_there,
            ],
        }
    };
    (@always $factory:expr) => {
        $crate::checks! {
            $factory,
            log_append: [
                messages_of_one_call_keep_their_order,
                calls_one_after_another_keep_their_order,
                calls_through_several_handles_keep_their_order,
                each_message_goes_to_its_shard,
                past_due_times_do_not_change_the_order,
                due_now_is_due,
                an_empty_batch_changes_nothing,
                a_large_batch_is_appended_whole,
            ],
            log_backlog: [
                what_lies_after_each_position_is_counted,
                what_is_kept_aside_is_counted_apart,
                the_oldest_message_is_dated,
            ],
            log_content: [
                payloads_come_back_as_they_were,
                keys_come_back_as_they_were,
                headers_come_back_as_they_were,
                ids_and_times_come_back_as_they_were,
                what_was_kept_aside_comes_back_as_it_was,
                the_largest_message_comes_back,
                a_batch_of_large_messages_comes_back,
            ],
            log_crowd: [
                c1_readers_that_follow_a_crowd_lose_nothing,
                promotion_amid_appends_loses_nothing,
            ],
            log_due: [
                what_is_not_due_is_not_read,
                what_is_due_now_is_promoted,
                the_callers_time_decides,
                promoting_says_when_the_next_one_is_due,
                the_far_future_can_wait,
                what_is_promoted_comes_after_what_was_read,
            ],
            log_find: [
                a_message_is_found_by_its_id,
                what_is_kept_aside_is_found,
                positions_divide_a_shard_by_time,
                positions_of_the_far_future_are_the_ends,
            ],
            log_news: [
                news_comes_after_an_append,
                news_comes_when_something_is_kept_aside,
                news_comes_after_a_promotion,
                news_comes_from_another_handle,
                news_of_a_promotion_comes_from_another_handle,
            ],
            log_promote: [
                promotion_goes_by_due_time,
                equal_due_times_do_not_collide,
                equal_due_times_keep_the_order_of_pushing,
                what_is_promoted_keeps_its_shard,
                the_limit_of_promotion_is_kept,
                many_that_are_due_are_all_promoted,
                promoting_at_once_moves_each_message_once,
            ],
            log_read: [
                blocks_of_all_sizes_give_everything_once_in_order,
                every_position_divides_the_shard,
                reading_goes_on_where_it_ended,
                reading_does_not_consume,
                more_is_said_while_there_is_more,
                a_limit_of_zero_gives_an_empty_block,
                several_wants_are_answered_in_their_order,
                positions_can_be_written_down,
                a_handle_that_was_left_behind_goes_on_where_others_are,
            ],
            log_refusals: [
                a_topic_that_never_was_is_refused,
                a_deleted_topic_is_refused,
                a_batch_with_a_wrong_shard_is_refused_whole,
                a_wrong_shard_is_refused,
                capabilities_are_always_the_same,
                what_is_too_large_is_refused_naming_the_limit,
            ],
            log_reopen: [
                what_was_acknowledged_survives_a_reopen,
                what_was_kept_aside_survives_a_reopen,
                positions_and_spans_survive_a_reopen,
            ],
            log_reread: [
                a_block_read_again_is_the_same,
                a_short_block_does_not_grow,
                an_empty_block_read_again_is_empty,
            ],
            log_topics: [
                c12_a_created_topic_is_found_as_it_was_made,
                c10_creating_a_topic_again_finds_it,
                a_topic_with_other_shards_is_refused_and_stays_as_it_is,
                impossible_numbers_of_shards_are_refused,
                creating_a_topic_at_once_makes_one,
                topics_are_listed_by_name_with_their_lanes,
                topics_with_similar_names_and_lanes_are_kept_apart,
                the_longest_names_can_be_used,
                uids_are_letters_and_digits_and_differ,
                a_deleted_topic_is_gone,
                a_recreated_topic_is_another_topic,
                deleting_an_old_topic_leaves_the_new_one_alone,
                a_uid_is_not_used_again_after_a_reopen,
                namespaces_share_nothing,
            ],
            log_trim: [
                nothing_after_the_position_is_trimmed,
                only_what_lies_before_every_position_is_trimmed,
                nothing_young_is_trimmed,
                what_is_kept_aside_is_not_trimmed,
                a_trimmed_block_is_gone,
                positions_outlive_a_full_trim,
                trimming_again_is_no_error,
                what_is_needed_again_stays_when_other_shards_are_trimmed,
            ],
        }
    };
}

/// Makes a test of every check of a ledger. Takes an expression that returns a [`Factory`](crate::Factory);
/// it is evaluated once for each check, and may `await`.
#[macro_export]
macro_rules! ledger_suite {
    ($factory:expr) => {
        $crate::checks! {
            $factory,
            ledger_commit: [
                an_absent_entry_is_not_there,
                an_entry_is_created_once,
                a_light_commit_is_conditional_and_seen,
                versions_grow_with_every_change,
                c11_a_stale_version_is_refused,
                a_version_from_the_future_is_refused,
                a_version_of_an_absent_entry_is_refused,
                an_entry_is_deleted_with_its_version,
                a_deleted_entry_stays_deleted,
                deleting_nothing_does_nothing,
                values_come_back_as_they_were,
            ],
            ledger_crowd: [
                counting_together_loses_nothing,
                one_of_many_creators_wins,
                one_of_many_changers_wins,
                different_entries_do_not_conflict,
            ],
            ledger_list: [
                only_the_prefix_is_listed,
                entries_are_listed_in_order,
                a_key_that_begins_another_is_apart,
                long_keys_are_kept_apart,
                a_commit_is_seen_at_once_from_everywhere,
                ledgers_of_other_namespaces_share_nothing,
            ],
            ledger_reopen: [
                commits_survive_a_reopen,
                a_watch_hint_comes,
                a_watch_hint_comes_from_another_handle,
            ],
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! checks {
    ($factory:expr, $($theme:ident: [$($check:ident,)*],)*) => {
        $($(
            #[test]
            fn $check() {
                $crate::run(stringify!($check), async { $factory }, $crate::$theme::$check);
            }
        )*)*
    };
}

#[cfg(test)]
mod tests {
    /// A check that is in no suite would never run.
    #[test]
    fn every_check_is_in_a_suite() {
        let suites = include_str!("suite.rs");
        for theme in [
            include_str!("ledger_commit.rs"),
            include_str!("ledger_crowd.rs"),
            include_str!("ledger_list.rs"),
            include_str!("ledger_reopen.rs"),
            include_str!("log_append.rs"),
            include_str!("log_backlog.rs"),
            include_str!("log_content.rs"),
            include_str!("log_crowd.rs"),
            include_str!("log_due.rs"),
            include_str!("log_find.rs"),
            include_str!("log_idempotence.rs"),
            include_str!("log_news.rs"),
            include_str!("log_promote.rs"),
            include_str!("log_read.rs"),
            include_str!("log_refusals.rs"),
            include_str!("log_reopen.rs"),
            include_str!("log_reread.rs"),
            include_str!("log_topics.rs"),
            include_str!("log_trim.rs"),
        ] {
            let checks = theme.lines().filter_map(|line| line.strip_prefix("pub async fn "));
            let mut count = 0;
            for check in checks.filter_map(|line| line.split_once('(')).map(|(name, _)| name) {
                assert!(suites.contains(&format!(" {check},\n")), "{check} is in no suite");
                count += 1;
            }
            assert!(count > 0, "a theme without checks");
        }
    }
}
