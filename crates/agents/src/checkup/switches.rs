//! Settings of harnesses that switch all hooks off.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::Harness;
use crate::setup::{Folders, settings_in};

/// The switches that are off: what was found, and what to do.
pub fn off(harness: Harness, folders: &Folders) -> Vec<(String, String)> {
    let found = match harness {
        Harness::Claude => in_settings(harness, folders, &["/disableAllHooks"], &Value::Bool(true)),
        Harness::Gemini | Harness::Qwen => {
            let mut found = in_settings(harness, folders, &["/hooksConfig/enabled"], &Value::Bool(false));
            found.extend(in_settings(harness, folders, &["/disableAllHooks"], &Value::Bool(true)));
            found.extend(disabled_by_name(harness, folders));
            found
        }
        Harness::Codex => in_codex_config(folders),
        Harness::Copilot | Harness::OpenCode | Harness::Cursor | Harness::Windsurf => Vec::new(),
    };
    let told = |(file, setting): (PathBuf, String)| {
        let shown = folders.shown(&file);
        (format!("`{setting}` in {shown} switches all hooks off"), format!("remove `{setting}` from {shown}"))
    };
    found.into_iter().map(told).collect()
}

fn files(harness: Harness, folders: &Folders) -> Vec<(PathBuf, Value)> {
    let paths = Folders::scopes(harness).iter().map(|scope| folders.file(harness, *scope));
    // A file that cannot be read is reported elsewhere.
    paths.filter_map(|path| Some((path.clone(), settings_in(harness, &path).ok().flatten()?))).collect()
}

fn in_settings(
    harness: Harness,
    folders: &Folders,
    pointers: &[&str],
    off: &Value,
) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for (path, settings) in files(harness, folders) {
        for pointer in pointers.iter().filter(|pointer| settings.pointer(pointer) == Some(off)) {
            let setting = format!("{}: {off}", pointer.trim_start_matches('/').replace('/', "."));
            found.push((path.clone(), setting));
        }
    }
    found
}

/// Gemini and Qwen can switch single hooks off by their name.
fn disabled_by_name(harness: Harness, folders: &Folders) -> Vec<(PathBuf, String)> {
    let is_ours = |settings: &Value| {
        let names = settings.pointer("/hooksConfig/disabled").and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).any(|name| name == "lockkeeper")
    };
    let found = files(harness, folders).into_iter().filter(|(_, settings)| is_ours(settings));
    found.map(|(path, _)| (path, "hooksConfig.disabled: lockkeeper".to_owned())).collect()
}

fn in_codex_config(folders: &Folders) -> Vec<(PathBuf, String)> {
    let path = folders.codex_config();
    let Ok(text) = fs::read_to_string(&path) else { return Vec::new() };
    // Codex itself refuses to start with a file that does not parse.
    let Ok(config) = text.parse::<toml::Table>() else { return Vec::new() };
    let features = config.get("features").and_then(toml::Value::as_table);
    let is_off = |name: &&str| {
        features.and_then(|features| features.get(*name)).and_then(toml::Value::as_bool) == Some(false)
    };
    let names = ["hooks", "codex_hooks"].into_iter().filter(is_off);
    names.map(|name| (path.clone(), format!("features.{name} = false"))).collect()
}
