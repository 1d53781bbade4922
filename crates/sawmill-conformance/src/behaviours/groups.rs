//! Groups: each has its own head on a topic and sees every message. A push does not depend on workers.

use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{EntryKey, Position, ReadRequest};
use sawmill::{Context, Push, Sawmill};

use super::gated_handler::GatedHandler;
use super::place::Seams;
use super::support::{LONG_TTL, POLL, Peek, Subject, numbered, orders_done, soon, topic};

pub async fn f1_each_group_has_its_own_head_and_none_affects_another(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 2).await;
    mill.push_many("orders", numbered(0..20)).await.unwrap();

    // One group is stuck with its first message; the other handles all of them.
    let (stuck, free) = (GatedHandler::closed(), GatedHandler::open());
    let other = place.mill().await;
    let slow = other
        .worker("orders")
        .group("slow")
        .concurrency(1)
        .ttl(LONG_TTL)
        .start(stuck.seat("slow"))
        .await
        .unwrap();
    stuck.started(1).await;
    let fast = mill
        .worker("orders")
        .group("fast")
        .concurrency(4)
        .ttl(LONG_TTL)
        .start(free.seat("fast"))
        .await
        .unwrap();
    free.ended(20).await;
    fast.drained().await;
    assert_eq!(free.numbers(), (0..20).collect::<Vec<_>>());

    let status = mill.admin().status("orders", "slow").await.unwrap();
    assert_eq!((status.done, status.waiting + status.claimed), (0, 20), "{status:?}");
    let status = mill.admin().status("orders", "fast").await.unwrap();
    assert_eq!((status.done, status.waiting, status.claimed), (20, 0, 0), "{status:?}");
    let after_heads = async |group: &str| {
        let peek = Peek::new(&place, &topic, group);
        let heads = peek.shards().await.into_iter().map(|state| state.cursor);
        let heads: Vec<(u16, Position)> = (0..).zip(heads).collect();
        peek.store.log.backlog(&topic, &heads).await.unwrap().ready
    };
    assert_eq!(after_heads("fast").await, [0, 0]);

    // A new group begins at the start.
    stuck.release_all();
    stuck.ended(20).await;
    let late = GatedHandler::open();
    let worker = mill.worker("orders").group("late").start(late.seat("late")).await.unwrap();
    late.ended(20).await;
    assert_eq!((stuck.count(), free.count(), late.count()), (20, 20, 20));
    for worker in [slow, fast, worker] {
        worker.stop().await;
    }
}

pub async fn f12_each_of_several_groups_handles_every_message_once(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 4).await;
    let mut handlers = Vec::new();
    let mut workers = Vec::new();
    for group in ["mail", "stock", "audit"] {
        let gated = GatedHandler::open();
        for name in ["one", "two"] {
            let builder =
                place.mill().await.worker("orders").group(group).concurrency(2).ttl(LONG_TTL).poll(POLL);
            workers.push(builder.start(gated.seat(name)).await.unwrap());
        }
        handlers.push((group, gated));
    }
    for part in 0..5 {
        mill.push_many("orders", numbered(20 * part..20 * part + 20)).await.unwrap();
    }
    for (_, gated) in &handlers {
        gated.ended(100).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    for (group, gated) in &handlers {
        assert_eq!(gated.numbers(), (0..100).collect::<Vec<_>>(), "{group}");
        assert!(gated.runs().iter().all(|run| run.context.group().to_string() == *group));
        assert_eq!(mill.admin().status("orders", group).await.unwrap().done, 100);
    }
}

pub async fn g3_a_push_assigns_a_shard_by_key_and_never_a_worker(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 4).await;
    let gated = GatedHandler::closed();
    let busy = place.mill().await;
    let busy = busy.worker("orders").concurrency(1).ttl(LONG_TTL).start(gated.seat("busy")).await.unwrap();
    mill.push("orders", Push::new("first").key("a")).await.unwrap();
    gated.started(1).await;

    // The running worker takes nothing more. New pushes are written to the log and nowhere else.
    let Seams { log, ledger } = place.store();
    let everything = EntryKey::raw("shards/");
    let before = ledger.list(&everything).await.unwrap();
    let keys = place.key_per_shard(4);
    mill.push_many("orders", keys.iter().map(|key| Push::new("later").key(key.clone()))).await.unwrap();
    for (shard, key) in (0..4).zip(&keys) {
        let (mut after, mut messages, mut more) = (Position::default(), Vec::new(), true);
        while more {
            let want = ReadRequest { shard, after, limit: 100 };
            let block = log.read(&topic, &[want]).await.unwrap().remove(0);
            messages.extend(block.messages);
            (after, more) = (block.end, block.more);
        }
        assert_eq!(messages.last().unwrap().key.as_deref(), Some(key.as_bytes()));
        assert!(messages.iter().all(|message| {
            place.shard_of(message.key.as_ref().unwrap(), 4) == shard && message.headers.is_empty()
        }));
    }
    assert_eq!(ledger.list(&everything).await.unwrap(), before);

    // So a worker that did not exist at the time of the push can take all of it.
    let late = GatedHandler::open();
    let worker = place.mill().await.worker("orders").ttl(LONG_TTL).start(late.seat("late")).await.unwrap();
    late.ended(4).await;
    gated.release_all();
    busy.stop().await;
    worker.drained().await;
    orders_done(&mill, 5).await;
    assert_eq!((gated.count(), late.count()), (1, 4));
    worker.stop().await;
}

pub async fn f15_two_installations_share_one_database_without_seeing_each_other(on: Subject) {
    let place = on.place();
    for (options, url) in [(Sawmill::options as fn() -> _, "memory:"), (on.options, &place.url())] {
        let open = async |namespace: &str| options().namespace(namespace).open(url).await.unwrap();
        // On a server that all tests share, others may use a namespace of that name.
        let alone = format!("{:x}", Env::system().rng().next_u64());
        let (shop, office) = (open(&format!("shop-{alone}")).await, open(&format!("office-{alone}")).await);
        shop.create_topic("mails").await.unwrap();
        assert!(office.admin().topics().await.unwrap().is_empty());
        topic(&office, "mails", 2).await;
        shop.push_many("mails", ["a", "b", "c"]).await.unwrap();
        office.push("mails", "d").await.unwrap();
        let work = async |mill: &Sawmill| {
            let worker = mill.worker("mails").poll(POLL).start(|_: Context| async {}).await.unwrap();
            soon("all is done", worker.drained()).await;
            worker
        };
        let (there, here) = (work(&shop).await, work(&office).await);
        assert_eq!((there.counts().done, here.counts().done), (3, 1));
        assert_eq!((shop.admin().workers("default").await.unwrap().len(), here.counts().rebalances), (1, 1));
        there.stop().await;
        shop.admin().delete_topic("mails").await.unwrap();
        office.push("mails", "e").await.unwrap();
        soon("the other goes on", here.drained()).await;
        assert_eq!(here.stop().await.done, 2);
    }
}
