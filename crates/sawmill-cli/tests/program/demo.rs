//! `sawmill demo` and `sawmill bench`.

use crate::support::Place;

#[test]
fn the_demonstration_proves_the_promise() {
    let place = Place::new();
    let proof = &place.json(&["demo", "--keep", "kept"])[0];
    for (field, count) in [("pushed", 300), ("lost", 0), ("doubled", 0), ("out_of_order", 0), ("dead", 3)] {
        assert_eq!(proof[field], count, "{field}: {proof}");
    }
    assert_eq!(proof["delivered"], 297);
    assert!(proof["retried"].as_u64().unwrap() > 0, "{proof}");
    // The store must agree with the counts.
    let status =
        &place.json(&["--store", "sqlite:kept/sawmill.db", "status", "letters", "--sample", "0s"])[0];
    assert_eq!(
        (&status["done"], &status["dead"], &status["waiting"]),
        (&297.into(), &3.into(), &0.into()),
        "{status}"
    );
    place.run(&["demo", "--keep", "kept"]).fails(1, &["cannot be made"]);
}

#[test]
fn the_benchmark_measures_and_tidies_up() {
    let place = Place::new();
    let args = ["bench", "--messages", "3000", "--processes", "20", "--latency", "200ms"];
    let measures = place.json(&args);
    let names: Vec<&str> = measures.iter().map(|measure| measure["measure"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "library: push in batches",
            "library: work",
            "push --lines",
            "library: push to start",
            "a process per message",
            "--stream"
        ]
    );
    for measure in &measures {
        assert!(measure["per_second"].as_f64().unwrap() > 0.0, "{measure}");
    }
    assert_eq!(place.ok(&["topic", "list"]), "", "its topics are deleted again");
    place.run(&["bench", "--messages", "0"]).fails(2, &["1 at least"]);
}
