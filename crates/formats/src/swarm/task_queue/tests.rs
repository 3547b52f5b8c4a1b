//! Tests of changes to `tasks.json`, with another program that changes it in between.

use super::*;

const US: Executor<'_> = Executor { worker: "W-1", run: "RUN-1" };
const NOON: WallTime = WallTime::from_micros(1_770_000_000_000_000);

fn queue(text: &str) -> (tempfile::TempDir, TaskQueue) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.json");
    fs::write(&path, text).unwrap();
    (folder, TaskQueue::new(path))
}

fn entry(queue: &TaskQueue) -> Json {
    let file = Json::parse(&fs::read_to_string(queue.path()).unwrap()).unwrap();
    match file.get("tasks") {
        Some(Json::List(entries)) => entries[0].clone(),
        other => panic!("{other:?}"),
    }
}

fn text<'e>(entry: &'e Json, key: &str) -> &'e str {
    entry.get(key).and_then(Json::as_text).unwrap_or_default()
}

#[test]
fn an_end_that_another_program_overwrites_is_written_again() {
    let (_folder, queue) = queue(r#"{"tasks":[{"id":"t","status":"pending"}]}"#);
    assert_eq!(queue.assign("t", US, false, NOON).unwrap(), Assignment::Assigned);
    let before = fs::read_to_string(queue.path()).unwrap();
    let (end, mut overwritten) = (TaskEnd::Completed("out".to_owned()), 0);
    let ended = queue.end_and_look_after("t", US, &end, NOON, &mut || {
        if overwritten < 2 {
            overwritten += 1;
            fs::write(queue.path(), &before).unwrap();
        }
    });
    ended.unwrap();
    assert_eq!((overwritten, text(&entry(&queue), "status")), (2, "completed"));
    let endless = queue.end_and_look_after("t", US, &TaskEnd::Failed(String::new()), NOON, &mut || {
        fs::write(queue.path(), &before).unwrap();
    });
    assert!(endless.unwrap_err().to_string().contains("tasks.json"));
}

#[test]
fn a_task_is_assigned_kept_and_ended_without_loss() {
    let (folder, queue) =
        queue(r#"{"tasks":[{"id":7,"status":"pending","n":123456789012345678901234567890}]}"#);
    assert_eq!(queue.assign("7", US, false, NOON).unwrap(), Assignment::Assigned);
    let assigned = entry(&queue);
    assert_eq!((text(&assigned, "status"), text(&assigned, "assigned_to")), ("assigned", "W-1"));
    assert_eq!(assigned.get("n"), Some(&Json::Number("123456789012345678901234567890".to_owned())));
    // Another program read the file before our change, and wrote it back afterwards.
    fs::copy(folder.path().join("tasks.json.bak"), queue.path()).unwrap();
    queue.keep("7", US, NOON).unwrap();
    assert_eq!(text(&entry(&queue), "status"), "assigned");
    queue.end("7", US, &TaskEnd::Completed("out".to_owned()), NOON).unwrap();
    let ended = entry(&queue);
    assert_eq!((text(&ended, "status"), text(&ended, "result_file")), ("completed", "out"));
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|one| one.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["tasks.json", "tasks.json.bak", "tasks.json.tmp"]);
}

#[test]
fn a_task_of_another_program_is_left_alone() {
    let what = |status: &str| format!("{status} by w2");
    let found = [
        ("assigned", Assignment::Taken(what("assigned"))),
        ("ASSIGNED", Assignment::Taken(what("ASSIGNED"))),
        ("completed", Assignment::Completed(what("completed"))),
        ("DONE", Assignment::Completed(what("DONE"))),
        ("skipped", Assignment::Skipped(what("skipped"))),
    ];
    for (status, outcome) in found {
        let text = format!(r#"{{"tasks":[{{"id":"t","status":"{status}","assigned_to":"w2"}}]}}"#);
        let (_folder, queue) = queue(&text);
        let taken = queue.assign("t", US, false, NOON).unwrap();
        assert_eq!(taken, outcome);
        queue.end("t", US, &TaskEnd::Returned, NOON).unwrap();
        assert_eq!(fs::read_to_string(queue.path()).unwrap(), text, "nothing was written");
    }
    let (folder, queue) = queue(r#"{"tasks":[]}"#);
    assert_eq!(queue.assign("t", US, false, NOON).unwrap(), Assignment::Absent);
    fs::write(queue.path(), "{").unwrap();
    assert!(matches!(queue.assign("t", US, false, NOON), Err(QueueError::NotUnderstood { .. })));
    assert_eq!(fs::read_to_string(queue.path()).unwrap(), "{");
    drop(folder);
    assert_eq!(queue.assign("t", US, false, NOON).unwrap(), Assignment::Absent);
}

/// Requirement 67.
#[test]
fn a_task_whose_lock_has_expired_is_assigned_anew() {
    for (status, is_taken_over) in [("assigned", true), ("ASSIGNED", true), ("completed", false)] {
        let text = format!(r#"{{"tasks":[{{"id":"t","status":"{status}","assigned_to":"w2"}}]}}"#);
        let (_folder, queue) = queue(&text);
        assert_ne!(queue.assign("t", US, false, NOON).unwrap(), Assignment::Assigned);
        let assigned = queue.assign("t", US, true, NOON).unwrap() == Assignment::Assigned;
        assert_eq!(assigned, is_taken_over, "{status}");
        assert_eq!(text_of_worker(&queue), if is_taken_over { "W-1" } else { "w2" });
    }
}

fn text_of_worker(queue: &TaskQueue) -> String {
    text(&entry(queue), "assigned_to").to_owned()
}

#[test]
fn an_end_is_written_although_another_program_has_undone_the_assignment() {
    let (folder, queue) = queue(r#"{"tasks":[{"id":"t","status":"pending"}]}"#);
    queue.assign("t", US, false, NOON).unwrap();
    fs::copy(folder.path().join("tasks.json.bak"), queue.path()).unwrap();
    queue.end("t", US, &TaskEnd::Completed("out".to_owned()), NOON).unwrap();
    assert_eq!(text(&entry(&queue), "status"), "completed");
}

#[test]
fn a_task_that_succeeds_after_a_failure_has_no_error() {
    let (_folder, queue) = queue(r#"{"tasks":[{"id":"t","status":"pending"}]}"#);
    for end in [TaskEnd::Failed("EXIT_CODE".to_owned()), TaskEnd::Completed("out".to_owned())] {
        queue.assign("t", US, false, NOON).unwrap();
        queue.end("t", US, &end, NOON).unwrap();
        let has = |key| entry(&queue).get(key).is_some();
        let has_failed = matches!(end, TaskEnd::Failed(_));
        assert_eq!(
            (has("error"), has("failed_at"), has("completed_at")),
            (has_failed, has_failed, !has_failed)
        );
    }
}

#[test]
fn another_worker_goes_on_with_the_run() {
    let (_folder, queue) = queue(r#"{"tasks":[{"id":"t","status":"pending"}]}"#);
    queue.assign("t", US, false, NOON).unwrap();
    let other = Executor { worker: "W-2", run: "RUN-1" };
    queue.keep("t", other, NOON).unwrap();
    assert_eq!(text(&entry(&queue), "assigned_to"), "W-2");
    queue.end("t", other, &TaskEnd::Returned, NOON).unwrap();
    assert_eq!(text(&entry(&queue), "status"), "pending");
    // The swarm's master has assigned it to another worker.
    let theirs = r#"{"tasks":[{"id":"t","status":"ASSIGNED","assigned_to":"W-2","assigned_worker_id":"w9","lockkeeper":{"worker":"W-2","run_id":"RUN-1"}}]}"#;
    fs::write(queue.path(), theirs).unwrap();
    assert_eq!(
        queue.assign("t", other, false, NOON).unwrap(),
        Assignment::Taken("ASSIGNED by w9".to_owned())
    );
}
