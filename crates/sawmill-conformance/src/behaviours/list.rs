//! The list of behaviours, and the macros that make tests of them.

/// Makes a test of every behaviour. Takes a [`TestStore`](crate::behaviours::TestStore) that is in scope, and
/// what its engine lacks:
///
/// - `idempotent_append`, as its [`Capabilities`](sawmill::engine::storage::Capabilities) say;
/// - `trimming`, where nothing is dropped before it expires.
///
/// Tests that need a missing capability are left out.
#[macro_export]
macro_rules! behaviours {
    ($store:ty) => {
        $crate::behaviours!($store, without());
    };
    ($store:ty, without($($lack:ident),* $(,)?)) => {
        $($crate::lack_of_an_engine!($lack);)*
        $crate::behaviours!($store, @lacks ($($lack),*), &[$(stringify!($lack)),*]);
    };
    ($store:ty, @lacks $lacks:tt, $names:expr) => {
        fn subject() -> $crate::behaviours::Subject {
            $crate::behaviours::Subject::of::<$store>(module_path!())
        }

        #[test]
        fn left_out_tests_match_what_the_engine_lacks() {
            let check = |on| $crate::behaviours::check_lacks(on, $names);
            $crate::behaviours::one_thread("left_out_tests_match_what_the_engine_lacks", subject(), check);
        }

        $crate::coordination_tests!($lacks);
        $crate::tests_of! {
            behaviours, $lacks,
            batches: [
                q24_a_slot_takes_several_messages_at_once,
                q24_a_batch_may_wait_until_it_is_full,
                q24_a_batch_does_not_wait_longer_than_it_may,
                q24_no_two_messages_of_a_key_are_in_a_batch,
                q24_each_message_of_a_batch_has_its_own_outcome,
                q24_what_fails_a_batch_fails_every_message_of_it,
            ],
            cancel: [
                a_message_that_waits_is_not_started_in_any_group in many_threads,
                a_message_that_runs_is_told_dropped_and_not_tried_again in many_threads,
                a_message_that_waits_for_its_next_attempt_is_not_tried_again in many_threads,
                what_is_not_there_cannot_be_cancelled_and_is_found_by_nobody,
            ],
            claims: [
                f2_a_claim_records_the_messages_and_moves_the_head_in_one_step,
                f14_a_worker_that_was_superseded_changes_nothing,
                g4_claiming_is_conditional_and_the_second_drops_the_messages,
                g5_g20_a_claim_of_many_costs_one_write_and_a_conflict_one_more,
            ],
            databases: [
                g13_every_database_gives_the_same_answers in many_threads,
            ],
            due: [
                a_worker_that_leaves_finishes_what_it_promotes,
                c3_nothing_starts_before_it_is_due_and_a_shard_goes_by_due_time,
                c3_every_shard_ascends_also_when_much_has_become_due,
                c4_equal_due_times_never_collide,
                a_drain_does_what_is_due_though_nobody_has_tended_the_topic_yet,
            ],
            failure: [
                f7_an_error_is_tried_again_at_once_and_then_marked,
                f8_what_failed_is_tried_again_later,
                q13_a_failed_task_is_kept_with_its_origin_and_retried_on_demand,
                q13_or_a_failed_task_is_only_logged,
                g11_a_person_can_queue_a_dead_message_again,
                q20_a_task_can_stop_the_worker_without_being_marked_done,
            ],
            flow: [
                q10_a_topic_with_priority_goes_before_what_is_in_hand_of_another,
                q22_a_paused_group_starts_nothing_and_goes_on_when_it_is_resumed,
                q22_pausing_moves_no_claim,
                a_group_may_be_paused_before_it_exists_and_a_topic_may_not,
                two_workers_never_run_more_than_the_limit_of_their_group,
                a_worker_that_joins_waits_for_what_runs_beyond_its_share,
                what_others_are_to_run_is_given_back,
                a_rate_holds_for_all_workers_of_a_group_together,
                a_rate_of_each_key_holds_up_that_key_alone,
                limits_that_make_no_sense_are_refused_with_advice,
            ],
            groups: [
                f1_each_group_has_its_own_head_and_none_affects_another,
                f12_each_of_several_groups_handles_every_message_once,
                g3_a_push_assigns_a_shard_by_key_and_never_a_worker,
                f15_two_installations_share_one_database_without_seeing_each_other in many_threads,
            ],
            handlers: [
                g18_payloads_are_read_as_json,
                g18_payloads_are_read_as_protocol_buffers,
                g18_payloads_are_read_as_text_and_as_bytes,
                an_argument_of_ones_own_decides_what_becomes_of_the_message,
                layers_wrap_the_handler_the_first_outermost,
                q23_an_attempt_that_takes_too_long_is_dropped_and_fails,
                blocking_handlers_do_not_hold_up_the_beat,
                blocking_handlers_fail_by_errors_and_panics,
                a_blocking_handler_learns_that_its_time_is_over,
                notes_are_shown_to_others_while_the_message_runs,
            ],
            journal: [
                g16_a_restarted_worker_runs_at_once_what_it_had_claimed_and_not_started,
                g16_without_a_journal_all_that_was_claimed_and_not_done_is_lost,
                g16_each_life_recovers_what_the_ones_before_it_left,
                g16_an_ordered_group_keeps_its_order_when_claims_are_recovered,
                g16_what_was_resent_is_recovered_too,
                g16_what_others_were_faster_to_take_over_is_lost_as_ever,
                g16_a_journal_belongs_to_one_running_worker,
                g16_a_journal_that_makes_no_sense_is_refused,
            ],
            observing: [
                q16_the_counters_agree_with_the_ledger,
                q16_what_runs_twice_is_done_once_for_the_counters_too,
                q16_the_busy_slots_are_shown,
                q16_each_run_has_a_span_and_each_step_a_line,
                q14_trouble_with_the_store_is_told_when_it_begins_and_when_it_is_over,
                q16_events_tell_a_messages_story,
                q16_a_listener_that_sleeps_slows_nobody_and_is_told_what_it_missed,
            ],
            pulling: [
                g17_messages_are_pulled_and_acknowledged,
                g17_whoever_waits_gets_the_next_message,
                g17_a_job_may_have_a_time_limit_of_its_own,
                g17_nothing_is_taken_that_nobody_asks_for,
                g17_as_many_jobs_are_out_as_there_are_slots,
                g17_answers_decide_what_becomes_of_a_message,
                g17_a_job_that_is_dropped_has_failed,
                g17_a_job_that_is_not_answered_in_time_fails_and_its_answer_is_refused,
                g17_stopping_waits_for_jobs_that_are_out_and_gives_back_the_rest,
                g17_after_an_abort_answers_are_refused_and_a_dropped_puller_stops,
            ],
            pushing: [
                g15_concurrent_single_pushes_share_appends_and_each_caller_keeps_its_order,
                g15_when_nothing_is_under_way_a_push_is_appended_by_itself,
                g15_a_bad_message_fails_alone_and_an_error_of_the_store_is_everybodys,
                g15_what_is_queued_is_pushed_although_nobody_waits_for_it,
                g15_a_producer_finds_its_topic_again_or_says_that_there_is_none,
            ],
            schedule: [
                every_second_there_is_a_message,
                what_was_missed_is_pushed_as_the_schedule_says,
                a_tick_whose_note_was_not_written_is_not_pushed_twice needs idempotent_append,
                adding_a_schedule_again_changes_it_and_it_goes_on_from_where_it_was,
                what_could_not_be_pushed_is_not_scheduled,
            ],
            seek: [
                g17_a_group_reads_the_stream_again_from_the_start_a_time_or_an_id in many_threads,
                skipping_ahead_leaves_what_waits_undone in many_threads,
                what_fails_again_in_a_replay_is_tried_again in many_threads,
                replaying_is_the_one_way_to_start_again_what_is_done_at_most_once in many_threads,
                a_seek_that_makes_no_sense_is_refused_and_says_why,
                a_seek_gives_the_names_of_unique_messages_back in many_threads,
            ],
            setup: [
                q12_hooks_run_once_before_the_first_message_and_after_the_last,
                q12_the_stop_hook_waits_for_handlers_and_runs_after_an_abort,
                q12_a_worker_whose_start_hook_fails_never_joins,
                q12_a_state_that_nobody_provides_is_found_out_at_the_start,
                settings_that_make_no_sense_are_refused,
            ],
            slots: [
                f3_a_worker_with_busy_slots_claims_what_the_free_ones_can_take,
                f3_a_log_that_has_nothing_at_hand_yet_is_not_taken_for_an_empty_one,
                f4_a_worker_says_what_it_waits_for_and_how_its_slots_are,
                f10_messages_of_one_key_never_run_at_the_same_time_in_a_worker,
                q9_messages_are_fetched_one_by_one_or_in_batches,
            ],
            trim: [
                what_every_group_is_past_goes_when_it_is_old needs trimming,
                the_lanes_are_trimmed_too_and_dead_letters_stay needs trimming,
                a_topic_may_drop_what_is_old_and_unread needs trimming,
                what_a_new_group_has_not_read_stays needs trimming,
            ],
            unique: [
                while_one_waits_a_second_is_not_added,
                a_message_is_live_until_every_group_has_settled_it,
                a_retry_is_live_and_a_dead_letter_is_not_and_stays_so_when_it_is_resent,
                what_a_group_only_logs_is_not_live_any_more,
                for_a_time_there_is_no_second_one_though_the_first_is_done,
                whatever_becomes_of_a_push_the_name_is_not_lost_and_there_is_one_message needs idempotent_append,
                of_many_who_push_at_the_same_time_one_adds_it needs idempotent_append,
                a_worker_that_cannot_give_a_name_back_does_not_count_the_message_as_settled,
                names_have_a_limit_and_go_with_their_topic,
            ],
            waking: [
                f11_a_push_wakes_a_waiting_worker,
                f11_polling_is_the_fallback_when_every_hint_is_lost,
                f13_a_full_block_is_followed_by_the_next_one_and_a_drained_shard_is_left_alone,
                q18_idle_waiting_backs_off_with_jitter_and_resets_on_work,
            ],
            whereabouts: [
                q17_a_message_is_followed_from_its_push_to_its_end in many_threads,
                q17_a_failed_message_is_followed_through_its_retries_its_death_and_its_resending in many_threads,
                q17_what_was_skipped_or_dropped_is_not_called_done in many_threads,
                q17_a_dead_letter_is_found_when_its_message_is_gone in many_threads needs trimming,
                what_waits_is_seen_and_stays in many_threads,
                groups_and_workers_are_listed_with_what_they_hold in many_threads,
            ],
        }
    };
}

/// Makes a test of every behaviour of workers and their coordination, for a pair of engines that each pass
/// the full list elsewhere. Takes a [`TestStore`](crate::behaviours::TestStore) that is in scope.
#[macro_export]
macro_rules! coordination {
    ($store:ty) => {
        fn subject() -> $crate::behaviours::Subject {
            $crate::behaviours::Subject::of::<$store>(module_path!())
        }

        $crate::coordination_tests!(());
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! coordination_tests {
    ($lacks:tt) => {
        $crate::tests_of! {
            behaviours, $lacks,
            members: [
                g1_workers_beat_and_only_who_is_silent_for_the_limit_is_removed,
                q3_workers_register_at_start_and_unregister_at_stop,
                g8_a_graceful_stop_finishes_what_runs_and_then_leaves,
                g14_a_worker_that_finds_itself_removed_registers_again,
                q7_ten_workers_that_start_or_stop_together_settle_without_a_storm in many_threads,
            ],
            shards: [
                q1_a_worker_handles_many_queues_and_no_shard_has_two_workers,
                q2_shards_are_shared_out_and_surplus_workers_idle_without_load,
                q4_a_shard_moves_only_when_its_old_holder_has_let_go,
                g2_membership_changes_move_work_without_any_stop,
                q6_losing_a_shard_drops_what_was_cached_of_it,
            ],
            trouble: [
                q5_without_its_coordinator_a_worker_starts_nothing_and_goes_on_when_it_is_back,
                q14_when_the_store_is_down_the_worker_stays_alive_and_waits,
                g10_at_most_once_a_death_loses_what_was_claimed_and_no_more,
                q8_progress_survives_restarts_of_everything in no_runtime,
            ],
        }
    };
}

/// Makes a test of every trial with real processes. Takes a [`TestStore`](crate::behaviours::TestStore) that
/// is in scope. `without(crowds)` leaves out the trial with nine processes, which one engine runs for all.
/// The test program starts itself for each child and measures times, so this belongs in a test file of its
/// own.
#[macro_export]
macro_rules! processes {
    ($store:ty) => {
        $crate::processes!($store, without());
    };
    ($store:ty, without($($lack:ident),* $(,)?)) => {
        $($crate::lack_of_processes!($lack);)*
        $crate::processes!($store, @lacks ($($lack),*));
    };
    ($store:ty, @lacks $lacks:tt) => {
        fn subject() -> $crate::behaviours::Subject {
            $crate::behaviours::Subject::of::<$store>(module_path!())
        }

        /// Runs in child processes; does nothing in the test program itself.
        #[test]
        fn child() {
            $crate::processes::child::run_job(subject());
        }

        $crate::tests_of! {
            processes, $lacks,
            deliveries: [
                g7_at_most_once_no_message_is_started_twice_whatever_happens_to_processes in no_runtime,
                at_least_once_nothing_is_lost_and_nothing_is_repeated_without_need in no_runtime,
            ],
            #[cfg(target_os = "linux")]
            journal: [
                g16_a_killed_process_that_is_started_again_runs_what_it_had_claimed_and_not_started in no_runtime,
                g16_without_a_journal_a_killed_process_loses_all_it_had_claimed in no_runtime,
            ],
            order: [
                f5_a_message_waits_for_the_one_before_it_across_processes_that_die_and_stand_still in no_runtime,
            ],
            sharded: [
                c8_one_worker_alone_covers_all_shards in no_runtime,
                c8_c9_three_workers_share_six_shards_and_one_stands_still in no_runtime,
                c8_c9_nine_workers_share_six_shards_and_one_stands_still in no_runtime needs crowds,
                c6_c7_a_crash_frees_the_shards_and_repeats_only_what_was_in_hand in no_runtime,
            ],
            takeover: [
                f9_the_claims_of_a_killed_process_are_taken_over_and_its_entry_is_pruned in no_runtime,
                g9_the_claims_of_a_process_that_stands_still_are_taken_over_and_it_joins_anew in no_runtime,
            ],
        }
    };
}

/// The capabilities that an engine can lack. Any other word would leave out nothing, so it does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! lack_of_an_engine {
    (idempotent_append) => {};
    (trimming) => {};
    ($other:ident) => {
        compile_error!(concat!(
            "no engine lacks `",
            stringify!($other),
            "`: see the words that `behaviours!` knows"
        ));
    };
}

/// The parts of the process trials that can be left out.
#[doc(hidden)]
#[macro_export]
macro_rules! lack_of_processes {
    (crowds) => {};
    ($other:ident) => {
        compile_error!(concat!(
            "no trial needs `",
            stringify!($other),
            "`: see the words that `processes!` knows"
        ));
    };
}

/// Makes a module of each theme, with a test of each listed function.
#[doc(hidden)]
#[macro_export]
macro_rules! tests_of {
    ($list:ident, $lacks:tt, $(
        $(#[$attribute:meta])*
        $theme:ident: [$($test:ident $(in $runtime:ident)? $(needs $what:ident)?,)*],
    )*) => {
        $(
            $(#[$attribute])*
            mod $theme {
                $($crate::test_of!($lacks, $list, $theme, $test, [$($runtime)?], [$($what)?]);)*
            }
        )*
    };
}

/// Makes one test, unless it needs a missing capability.
#[doc(hidden)]
#[macro_export]
macro_rules! test_of {
    ($lacks:tt, $list:ident, $theme:ident, $test:ident, [], $needs:tt) => {
        $crate::test_of!($lacks, $list, $theme, $test, [one_thread], $needs);
    };
    ((idempotent_append $(, $more:ident)*), $list:ident, $theme:ident, $test:ident, $runtime:tt, [idempotent_append]) => {};
    ((trimming $(, $more:ident)*), $list:ident, $theme:ident, $test:ident, $runtime:tt, [trimming]) => {};
    ((crowds $(, $more:ident)*), $list:ident, $theme:ident, $test:ident, $runtime:tt, [crowds]) => {};
    (($other:ident $(, $more:ident)*), $list:ident, $theme:ident, $test:ident, $runtime:tt, [$needs:ident]) => {
        $crate::test_of!(($($more),*), $list, $theme, $test, $runtime, [$needs]);
    };
    ($lacks:tt, $list:ident, $theme:ident, $test:ident, [$runtime:ident], $needs:tt) => {
        #[test]
        fn $test() {
            $crate::behaviours::$runtime(stringify!($test), super::subject(), $crate::$list::$theme::$test);
        }
    };
}

#[cfg(test)]
mod tests {
    /// A test that is in no list is never run.
    #[test]
    fn every_test_is_in_the_list() {
        let list = include_str!("list.rs");
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for folder in ["behaviours", "processes"] {
            for file in std::fs::read_dir(source.join(folder)).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                let tests =
                    text.lines().filter(|line| line.starts_with("pub ") && line.ends_with(": Subject) {"));
                for test in tests.filter_map(|line| line.split("fn ").nth(1)?.split('(').next()) {
                    // The entry point of child processes is not a listed test.
                    if test == "run_job" {
                        continue;
                    }
                    let is_listed = |end: &str| list.contains(&format!(" {test}{end}"));
                    assert!(
                        is_listed(",\n") || is_listed(" in ") || is_listed(" needs "),
                        "{test} is in no list"
                    );
                }
            }
        }
    }
}
