//! Imports the pending tasks of a swarm's `tasks.json` as requests.

use std::collections::BTreeMap;
use std::path::Path;

use lockkeeper_core::id::RequestId;
use lockkeeper_formats::swarm::{TASKS_VARIABLE, check_task};
use serde::Deserialize;
use serde_json::Value;

use super::new_request::NewRequest;
use super::template::Template;

/// The file. Other fields are ignored.
#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Object { tasks: Vec<Task> },
    List(Vec<Task>),
}

#[derive(Deserialize)]
struct Task {
    id: Value,
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    priority: Option<f64>,
}

/// The tasks of a file as requests.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// The requests, in the order of the file.
    pub requests: Vec<NewRequest>,
    /// How many tasks were skipped because they are not pending.
    pub skipped: usize,
}

/// Makes a request of every pending task; the template is the command of the agent.
///
/// Each request has the key `swarm:ID`, so that a task is submitted once, also if its file is imported again. `queue` is the path
/// of the file: workers record there who has a task, and how it ended. The error says what is wrong with the file.
pub fn import(text: &str, agent: &Template, queue: Option<&Path>) -> Result<Imported, String> {
    let file: File = serde_json::from_str(text).map_err(|error| {
        if serde_json::from_str::<Value>(text).is_ok() {
            "it is JSON, but no list of tasks with an id each".to_owned()
        } else {
            format!("it is not JSON: {error}")
        }
    })?;
    let (File::Object { tasks } | File::List(tasks)) = file;
    let queue = queue.and_then(Path::to_str).map(|path| (TASKS_VARIABLE.to_owned(), path.to_owned()));
    let queue: BTreeMap<String, String> = queue.into_iter().collect();
    let mut imported = Imported::default();
    for (place, task) in tasks.iter().enumerate() {
        if task.status.as_deref().is_some_and(|status| status != "pending") {
            imported.skipped += 1;
            continue;
        }
        let about = |what: &str| format!("task {} {what}", place + 1);
        let id = match &task.id {
            Value::String(id) => id.clone(),
            Value::Number(id) => id.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(about("has an id that is neither a text nor a number"));
            }
        };
        check_task(&id).map_err(|error| about(&format!("has a bad id: {error}")))?;
        let prompt = task.prompt.as_deref().filter(|prompt| !prompt.trim().is_empty());
        let prompt = prompt.ok_or_else(|| about("has no prompt"))?;
        let key = format!("swarm:{id}");
        imported.requests.push(NewRequest {
            title: Some(first_line(prompt)),
            command: agent.fill(&[("prompt", prompt), ("task", &id), ("id", &id)]),
            priority: priority(task.priority),
            origin: Some(key.clone()),
            key: Some(key),
            env: queue.clone(),
            // A task may have a longer id than a request.
            id: id.parse::<RequestId>().is_ok().then_some(id),
            ..NewRequest::default()
        });
    }
    Ok(imported)
}

/// Converts a priority. In a swarm 1 is the most urgent and 5 the least; here larger numbers are more urgent, and 0 is normal.
fn priority(of_swarm: Option<f64>) -> i32 {
    let level = of_swarm.unwrap_or(3.0).clamp(1.0, 5.0);
    ((3.0 - level) * 10.0) as i32
}

fn first_line(prompt: &str) -> String {
    prompt.trim().lines().next().unwrap_or_default().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Imported, String> {
        import(text, &Template::parse("agent --task {task} {prompt}").unwrap(), None)
    }

    #[test]
    fn pending_tasks_become_requests() {
        let text = r#"{"tasks":[
            {"id":"t1","prompt":"翻译 README\nand more","status":"pending","priority":1,"created_at":"x","extra":{}},
            {"id":2,"prompt":"test","priority":5},
            {"id":"t3","prompt":"p","status":"assigned","assigned_to":"w1"},
            {"id":"t4","prompt":"p","status":"DONE"},
            {"id":"t5","prompt":"p","status":"failed"}]}"#;
        let imported = read(text).unwrap();
        assert_eq!((imported.requests.len(), imported.skipped), (2, 3));
        let [first, second] = imported.requests.as_slice() else { panic!("two of them") };
        assert_eq!(first.command, ["agent", "--task", "t1", "翻译 README\nand more"]);
        assert_eq!((first.priority, second.priority), (20, -20));
        assert_eq!((first.key.as_deref(), first.title.as_deref()), (Some("swarm:t1"), Some("翻译 README")));
        assert_eq!(second.id.as_deref(), Some("2"));
        assert_eq!(read(r#"[{"id":"a","prompt":"b"}]"#).unwrap().requests[0].priority, 0);
    }

    #[test]
    fn what_is_no_list_of_tasks_says_so() {
        for (text, what) in [
            ("", "not JSON"),
            ("{}", "no list of tasks"),
            (r#"{"tasks":[{"prompt":"x"}]}"#, "no list of tasks"),
            (r#"{"tasks":[{"id":"a"}]}"#, "task 1 has no prompt"),
            (r#"{"tasks":[{"id":[],"prompt":"x"}]}"#, "task 1 has an id"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
