use crate::program::{bare, run};

#[test]
fn every_command_has_help() {
    for (name, words) in [
        ("help", vec![]),
        ("help_enqueue", vec!["enqueue"]),
        ("help_queues", vec!["queues"]),
        ("help_queues_list", vec!["queues", "list"]),
        ("help_queues_declare", vec!["queues", "declare"]),
        ("help_queues_pause", vec!["queues", "pause"]),
        ("help_queues_resume", vec!["queues", "resume"]),
        ("help_queues_purge", vec!["queues", "purge"]),
        ("help_jobs", vec!["jobs"]),
        ("help_jobs_list", vec!["jobs", "list"]),
        ("help_jobs_show", vec!["jobs", "show"]),
        ("help_jobs_cancel", vec!["jobs", "cancel"]),
        ("help_dead", vec!["dead"]),
        ("help_dead_list", vec!["dead", "list"]),
        ("help_dead_show", vec!["dead", "show"]),
        ("help_dead_replay", vec!["dead", "replay"]),
        ("help_dead_purge", vec!["dead", "purge"]),
        ("help_periodic", vec!["periodic"]),
        ("help_periodic_preview", vec!["periodic", "preview"]),
        ("help_plan", vec!["plan"]),
        ("help_stats", vec!["stats"]),
        ("help_tasks", vec!["tasks"]),
        ("help_migrate", vec!["migrate"]),
        ("help_doctor", vec!["doctor"]),
        ("help_bench", vec!["bench"]),
        ("help_completions", vec!["completions"]),
    ] {
        let mut words = words;
        words.push("--help");
        let run = run(&mut bare(&words));
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{words:?}");
        insta::assert_snapshot!(name, run.out);
    }
}

#[test]
fn without_a_command_the_help_is_an_error() {
    let run = run(&mut bare(&[]));
    assert_eq!(run.code, 2);
    assert!(run.err.contains("Usage: celeriac"), "{run:?}");
}

#[test]
fn the_password_in_the_environment_is_not_shown() {
    let run = run(bare(&["--help"]).env("CELERIAC_BROKER", "postgres://me:s3cret@host/db"));
    assert!(run.out.contains("CELERIAC_BROKER") && !run.out.contains("s3cret"), "{run:?}");
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let run = run(&mut bare(&["completions", shell]));
        assert_eq!(run.code, 0);
        assert!(run.out.contains("enqueue") && run.out.contains("queues"), "{shell}");
    }
}
