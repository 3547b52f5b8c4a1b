//! Resources as JSON: the same words in the store, in `--json` and in the library.

use std::num::NonZeroU32;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::resource::{Mode, Resource, Target};
use serde_json::{Value, json};

/// `[{"name":"db","mode":"exclusive"},{"path":"src/**","mode":"shared"}]`.
pub fn resources_to_json(resources: &[Resource]) -> String {
    Value::Array(resources.iter().map(resource_to_json).collect()).to_string()
}

/// One resource of that list.
pub fn resource_to_json(resource: &Resource) -> Value {
    let mode = resource.mode.to_string();
    match &resource.target {
        Target::Name(name) => json!({ "name": name.as_str(), "mode": mode }),
        Target::Path(pattern) => json!({ "path": pattern.as_str(), "mode": mode }),
    }
}

/// Reads what [`resources_to_json`] wrote.
pub fn resources_from_json(text: &str) -> Option<Vec<Resource>> {
    let values: Vec<Value> = serde_json::from_str(text).ok()?;
    values.iter().map(resource_from_json).collect()
}

fn resource_from_json(value: &Value) -> Option<Resource> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let target = match (text("name"), text("path")) {
        (Some(name), None) => Target::Name(name.parse().ok()?),
        (None, Some(path)) => Target::Path(path.parse().ok()?),
        (Some(_), Some(_)) | (None, None) => return None,
    };
    Some(Resource { target, mode: mode_from(text("mode")?)? })
}

fn mode_from(text: &str) -> Option<Mode> {
    match text {
        "exclusive" => Some(Mode::Exclusive),
        "shared" => Some(Mode::Shared),
        counted => counted.strip_prefix("slots:")?.parse::<NonZeroU32>().ok().map(Mode::Slots),
    }
}

/// `[1,2]`.
pub fn lease_ids_to_json(ids: &[LeaseId]) -> String {
    Value::Array(ids.iter().map(|id| id.0.into()).collect()).to_string()
}

/// Reads what [`lease_ids_to_json`] wrote.
pub fn lease_ids_from_json(text: &str) -> Option<Vec<LeaseId>> {
    let numbers: Vec<u64> = serde_json::from_str(text).ok()?;
    Some(numbers.into_iter().map(LeaseId).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_come_back_as_they_went() {
        let slots = NonZeroU32::new(3).unwrap();
        let resources = vec![
            Resource { target: Target::Name("git/index".parse().unwrap()), mode: Mode::Exclusive },
            Resource { target: Target::Path("src/{a,b}/**".parse().unwrap()), mode: Mode::Shared },
            Resource { target: Target::Name("数据库 \"x\"".parse().unwrap()), mode: Mode::Slots(slots) },
        ];
        assert_eq!(resources_from_json(&resources_to_json(&resources)), Some(resources));
    }

    #[test]
    fn what_is_not_a_resource_is_not_guessed_at() {
        for text in ["", "{}", "[1]", r#"[{"name":"a"}]"#, r#"[{"name":"a","path":"b","mode":"shared"}]"#] {
            assert_eq!(resources_from_json(text), None, "{text}");
        }
    }
}
