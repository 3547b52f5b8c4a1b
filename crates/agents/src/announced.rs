//! Announced calls: before an agent calls a tool of `lockkeeper mcp`, its hook writes down who calls, and the server reads it.
//!
//! One small file for each call below `<state>/agents/calls/`. The hook after the call removes it. A call that never came, such as
//! one that the user refused, leaves its file behind: the next announcement removes it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_core::liveness::{Origin, ProcessRef, Proof};
use lockkeeper_platform::{random, wall_clock};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How many seconds an announcement is valid. The harness may ask the user for permission before it makes the call.
const COUNTS_FOR: i64 = 60 * 60;
/// The largest announcement, in bytes. Larger ones are not written.
const MAX_BYTES: usize = 64 * 1024;
/// The part of a tool's name that says that it is one of ours.
const OUR_NAME: &str = "lockkeeper";

/// A call that is about to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AnnouncedCall {
    /// The owner that calls.
    pub(crate) owner: String,
    /// The harness's id of the call, if it has one.
    pub(crate) call: Option<String>,
    /// The tool, as the harness calls it.
    pub(crate) tool: String,
    /// Its arguments.
    pub(crate) arguments: Map<String, Value>,
    /// Boot and pid namespace of the harness.
    boot: String,
    /// See `boot`.
    pid_namespace: u64,
    /// The process of the harness.
    pid: u32,
    /// When that process started, in the kernel's ticks.
    started: u64,
    /// When it was announced, in seconds since 1970.
    at: i64,
}

impl AnnouncedCall {
    /// Creates an announcement with the current time.
    pub(crate) fn new(owner: &str, call: Option<&str>, tool: &str, proof: &Proof) -> Self {
        let process = proof.process();
        Self {
            owner: owner.to_owned(),
            call: call.map(str::to_owned),
            tool: tool.to_owned(),
            arguments: Map::new(),
            boot: proof.origin.boot.clone(),
            pid_namespace: proof.origin.pid_namespace,
            pid: process.map_or(0, |process| process.pid),
            started: process.map_or(0, |process| process.started),
            at: wall_clock::epoch_seconds(),
        }
    }

    /// Whether the harness is this process.
    pub(crate) fn is_of(&self, here: &Origin, process: ProcessRef) -> bool {
        self.boot == here.boot
            && self.pid_namespace == here.pid_namespace
            && (self.pid, self.started) == (process.pid, process.started)
    }

    /// Whether it announces this tool with these arguments. Harnesses put the name of the server before that of the tool.
    pub(crate) fn is_for(&self, tool: &str, arguments: &Map<String, Value>) -> bool {
        let given = |arguments: &Map<String, Value>| {
            let mut arguments = arguments.clone();
            arguments.retain(|_, value| !value.is_null());
            arguments
        };
        self.tool.ends_with(tool) && given(&self.arguments) == given(arguments)
    }
}

/// Whether a tool is one of this program's server.
pub(crate) fn is_our_tool(name: &str) -> bool {
    name.to_ascii_lowercase().contains(OUR_NAME)
}

/// The arguments of a tool call in the input of a hook.
pub(crate) fn arguments_of(input: &[u8]) -> Map<String, Value> {
    let input = crate::input::json(input).unwrap_or_default();
    let of_windsurf = || input.get("tool_info")?.get("mcp_tool_arguments");
    match input.get("tool_input").or_else(|| input.get("toolArgs")).or_else(of_windsurf) {
        Some(Value::Object(arguments)) => arguments.clone(),
        // Copilot's own keys have the arguments as JSON within JSON.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        Some(_) | None => Map::new(),
    }
}

/// The announcements of one repository.
pub(crate) struct AnnouncedCalls {
    folder: PathBuf,
}

impl AnnouncedCalls {
    /// The announcements below a state folder.
    pub(crate) fn new(state: &Path) -> Self {
        Self { folder: state.join("agents").join("calls") }
    }

    /// Announces a call, and removes announcements that have expired.
    pub(crate) fn add(&self, call: &AnnouncedCall) -> io::Result<()> {
        let text = serde_json::to_vec(call)?;
        if text.len() > MAX_BYTES {
            return Ok(());
        }
        self.remove_if(|known| known.is_none_or(|known| !counts(known)));
        match fs::create_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let name = format!("{:016x}", random::number()?);
        let new = self.folder.join(format!("{name}.new"));
        let written =
            fs::write(&new, text).and_then(|()| fs::rename(&new, self.folder.join(format!("{name}.json"))));
        written.inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
    }

    /// Removes the announcement of a call that has ended.
    pub(crate) fn remove(&self, owner: &str, call: Option<&str>, tool: &str) {
        self.remove_if(|known| {
            known.is_some_and(|known| {
                (known.owner.as_str(), known.call.as_deref(), known.tool.as_str()) == (owner, call, tool)
            })
        });
    }

    /// All announcements that are still valid.
    pub(crate) fn all(&self) -> Vec<AnnouncedCall> {
        self.files().iter().filter_map(|path| read(path)).filter(counts).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
    }

    /// Removes files. A file that another hook removes at the same time, or is still writing, does no harm.
    fn remove_if(&self, is_over: impl Fn(Option<&AnnouncedCall>) -> bool) {
        for path in self.files() {
            let is_being_written =
                path.extension().is_some_and(|extension| extension == "new") && !is_old(&path);
            if !is_being_written && is_over(read(&path).as_ref()) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

fn counts(call: &AnnouncedCall) -> bool {
    (0..=COUNTS_FOR).contains(&(wall_clock::epoch_seconds() - call.at))
}

/// Whether a temporary file was left by a hook that was killed.
fn is_old(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let written = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let written = written.and_then(|at| i64::try_from(at.as_secs()).ok());
    written.is_none_or(|at| wall_clock::epoch_seconds() - at > 60)
}

fn read(path: &Path) -> Option<AnnouncedCall> {
    let meta = fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_BYTES as u64 || path.extension()? != "json" {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
