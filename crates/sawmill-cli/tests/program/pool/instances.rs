//! One instance, and two with the same number: K1, K2, K3, K9.

use rustix::process::Signal;

use super::fixture::Pool;
use crate::support::{Place, until};

#[test]
fn k1_the_environment_configures_an_instance_and_what_is_missing_is_said() {
    let place = Place::new();
    let all = [("ORDERS_TOPIC", "o"), ("COORDINATION_TOPIC", "c"), ("INSTANCE_NUMBER", "1")];
    for (missing, _) in all.into_iter().chain([("KAFKA_BROKERS", "")]) {
        let mut command = place.command(["pool-worker"]);
        command.env_remove("KAFKA_BROKERS").envs(all).env_remove(missing);
        if missing != "KAFKA_BROKERS" {
            command.env("KAFKA_BROKERS", "127.0.0.1:9");
        }
        let ended = crate::support::Running::start(&mut command).wait();
        ended.fails(2, &[missing, "is not set", &format!("like {missing}=")]);
    }
    let mut command = place.command(["pool-worker"]);
    command.envs(all).env("KAFKA_BROKERS", "kafka://alice:secret@127.0.0.1:9");
    let ended =
        crate::support::Running::start(&mut command).wait().fails(3, &["127.0.0.1:9", "check that they run"]);
    assert!(!ended.stderr.contains("secret"), "{}", ended.stderr);
    command.env("INSTANCE_NUMBER", "first");
    crate::support::Running::start(&mut command)
        .wait()
        .fails(2, &["INSTANCE_NUMBER", "\"first\"", "whole number"]);
}

#[test]
fn k1_an_instance_works_one_order_and_exits() {
    let test = "k1_an_instance_works_one_order_and_exits";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["./job a 0", "./job b 0"]);
    pool.work(1);
    assert_eq!((pool.count("start"), pool.count("end")), (1, 1), "{:?}", pool.journal());
    pool.work(1);
    assert_eq!((pool.count("end a 1"), pool.count("end b 1")), (1, 1), "{:?}", pool.journal());
}

#[test]
fn k2_an_instance_that_died_resumes_its_order_before_any_other() {
    let test = "k2_an_instance_that_died_resumes_its_order_before_any_other";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["./job first go"]);
    let instance = pool.start(1);
    pool.until_noted("start first 1");
    pool.send(&["./job second 0", "./job third 0"]);
    instance.signal(Signal::KILL);
    // Its command dies with it; then the script of the order can be replaced by a short one.
    until("the command is gone", || !is_alive(&pool.place.read("pid-first")));
    pool.place.script("job", "echo \"start $1\" >> journal; echo \"end $1\" >> journal");
    let said = pool.work(1);
    assert_eq!(
        pool.journal()[1..],
        ["start first", "end first"],
        "the order it had begun comes first: {said}"
    );
    pool.work(1);
    pool.work(1);
    assert_eq!(pool.journal().len(), 7, "{:?}", pool.journal());
    assert_eq!(pool.count("end first"), 1);
}

fn is_alive(pid: &str) -> bool {
    let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::test_kill_process(pid).is_ok()
}

#[test]
fn k3_an_instance_that_is_up_to_date_waits_for_orders() {
    let test = "k3_an_instance_that_is_up_to_date_waits_for_orders";
    let Some(pool) = Pool::of(test) else { return };
    let instance = pool.start(4);
    until("it is a member", || pool.run(&["--json", "workers"]).ok().contains("instance-4"));
    pool.send(&["./job late 0"]);
    instance.wait().ok();
    assert_eq!(pool.count("end late 4"), 1);
}

#[test]
fn k9_a_second_instance_with_the_same_number_is_refused() {
    let test = "k9_a_second_instance_with_the_same_number_is_refused";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["./job a go"]);
    let first = pool.start(7);
    pool.until_noted("start a 7");
    pool.send(&["./job b 0"]);
    let refused = pool.start(7).wait();
    refused.fails(1, &["instance-7", "at work", "INSTANCE_NUMBER"]);
    // Another number is accepted, and the first instance is not disturbed.
    pool.work(8);
    assert_eq!(pool.count("end b 8"), 1, "{:?}", pool.journal());
    pool.place.write("go", "");
    first.wait().ok();
    assert_eq!((pool.count("start a"), pool.count("end a 7")), (1, 1), "{:?}", pool.journal());
    // After it has left, its number is free at once.
    pool.send(&["./job c 0"]);
    pool.work(7);
    assert_eq!(pool.count("end c 7"), 1);
}

#[test]
fn k9_of_two_that_start_with_one_number_at_the_same_moment_one_works() {
    let test = "k9_of_two_that_start_with_one_number_at_the_same_moment_one_works";
    let Some(pool) = Pool::of(test) else { return };
    let mut two = vec![pool.start(2), pool.start(2)];
    until("one is refused", || two.iter_mut().any(|instance| !instance.is_running()));
    let refused = if two[0].is_running() { two.remove(1) } else { two.remove(0) };
    refused.wait().fails(1, &["instance-2", "INSTANCE_NUMBER"]);
    // The remaining one takes the order.
    pool.send(&["./job a 0"]);
    two.remove(0).wait().ok();
    assert_eq!((pool.count("start a 2"), pool.count("end a 2")), (1, 1), "{:?}", pool.journal());
}
