//! Fields of a hook input: looked up by one of their names, checked for type and form.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Unread;

/// Two ids, a kind and colons fit into an owner of 255 bytes.
const MAX_ID: usize = 110;

/// An id that becomes part of an owner. A colon would make two parts of it, and so another agent's owner.
pub(super) fn id(input: &Map<String, Value>, keys: &[&'static str]) -> Result<Option<String>, Unread> {
    for key in keys {
        match input.get(*key) {
            None | Some(Value::Null) => {}
            Some(Value::String(id)) => {
                let fits =
                    |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '"' | '\'' | '\\' | '`' | '$');
                let good = !id.is_empty() && id.len() <= MAX_ID && id.chars().all(fits);
                return if good { Ok(Some(id.clone())) } else { Err(Unread::BadId(key)) };
            }
            Some(_) => return Err(Unread::WrongType(key)),
        }
    }
    Ok(None)
}

/// An optional text. A value of another type counts as missing.
pub(super) fn optional_text(input: &Map<String, Value>, keys: &[&str]) -> Option<String> {
    let text = keys.iter().find_map(|key| input.get(*key)?.as_str())?;
    (text.len() <= 1000).then(|| text.to_owned())
}

/// The folder in which the agent works, if it is absolute.
pub(super) fn absolute(input: &Map<String, Value>) -> Option<PathBuf> {
    let cwd = input.get("cwd").and_then(Value::as_str).filter(|cwd| !cwd.is_empty());
    let in_tool = || input.get("tool_info")?.get("cwd")?.as_str();
    let root = || input.get("workspace_roots")?.as_array()?.first()?.as_str();
    let path = cwd.or_else(in_tool).or_else(root)?;
    (Path::new(path).is_absolute() && !path.contains('\0')).then(|| PathBuf::from(path))
}
